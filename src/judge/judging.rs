//! The judge as those who ask see it, so that the webhooks can be tested without a cluster behind them.

use futures::future::BoxFuture;

use super::question::{Answer, Question};

/// Somebody who answers questions about disruptions: [`super`]'s judge, or a test's.
///
/// The answer comes before the question's deadline; what could not be found out in time is a
/// [`super::Refusal::Wait`], never an error.
pub trait Judging: Send + Sync + 'static {
    /// Answers one question.
    fn judge(&self, question: Question) -> BoxFuture<'_, Answer>;
}
