//! quorumgate.
