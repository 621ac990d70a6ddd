//! The listeners: rotation under load, shutting down, impatience, and the pages for kubelets and Prometheus.

mod admin;
mod listener;
mod patience;
mod rotation;
mod shutdown;
