//! testbed.
