//! Ways to ask the members of a cluster: where they listen, and by which certificates.
//!
//! A budget may name a way. Otherwise candidates are *gathered*, the likeliest first, from etcd's
//! settings and from what its pods mount ([`gather`], pure). What the settings refer to is *read*
//! ([`read`]), and the candidates are *tried* side by side ([`super::trial`]), in the background.
//! The one by which members answer is recorded in the budget, and every replica asks by it. Until
//! one is recorded, verdicts use the first candidate that needs no reading.
//!
//! A way says how members are asked, and nothing of what they answer: a wrong one costs evidence,
//! and makes none.

pub(super) mod credentials;
mod found;
pub(super) mod gather;
pub(super) mod in_use;
pub(super) mod named;
pub(super) mod read;

#[cfg(test)]
mod tests;
