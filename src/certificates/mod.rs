//! Certificates of the gate's own making: an authority, and the serving certificate that it signs.
//! Both are in Secrets of the gate's namespace, and every webhook of the gate has the authority in
//! its `caBundle`.
//!
//! [`plan`] says what is to be done now, given what there is; it is a function of data. [`keeper`]
//! does it, on the replica that leads. Every replica takes the serving certificate from its Secret
//! ([`follower`]).
//!
//! No call may fail while certificates change, so the order is: a new authority is stored, then it
//! is added to every `caBundle`, and only when API servers have had time to notice does it sign.
//! The authority before it stays in the bundles until it ends. What others wrote (a deleted or a
//! spoiled Secret, a changed `caBundle`) is put right in the same order.

mod follower;
mod held;
mod keeper;
mod make;
mod objects;
mod plan;
mod root;
mod wishes;

pub use follower::follow;
pub use keeper::{Keeper, Signals};
pub use objects::Objects;
pub use wishes::{SecretNames, Wishes};

#[cfg(test)]
mod tests;
