//! The listeners: rotation under load, shutdown, time limits, many connections of unknown clients,
//! client certificates, and the pages for kubelets and Prometheus.

#![expect(clippy::expect_used, reason = "it says what did not happen in time")]

mod admin;
mod callers;
pub(crate) mod listener;
mod rotation;
mod shutdown;
mod strangers;
mod timeouts;
