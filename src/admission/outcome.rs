//! The outcome of a request, before it becomes a response.

use json_patch::Patch;

use super::asked::ReviewContext;
use super::rejection::Rejection;
use crate::judge::{Allowed, Answer, Ground, Refused};
use crate::quorum::Waiver;

/// A request that has its outcome.
#[derive(Debug)]
pub(super) struct HandledReview {
    /// The request.
    pub(super) about: ReviewContext,
    /// The outcome.
    pub(super) outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The judge answered.
    Judged(Answer),
    /// The request takes nothing, so nobody was asked.
    Unasked(Waiver),
    /// The request passes, changed or as it is. Nothing was asked but whether to change it.
    Changed(Option<Patch>),
}

impl HandledReview {
    /// The refusal of the request, also of one that is only reported.
    pub(super) fn rejection(&self) -> Option<Rejection> {
        let refused = match &self.outcome {
            Outcome::Judged(answer) => match answer.decision.as_ref().map(Allowed::ground) {
                Err(refused) | Ok(Ground::Warned(refused)) => refused,
                Ok(_) => return None,
            },
            Outcome::Unasked(_) | Outcome::Changed(_) => return None,
        };
        Some(Rejection::new(&self.about.subject, refused))
    }
}

impl Outcome {
    /// Whether the request passes.
    pub(super) fn is_allowed(&self) -> bool {
        self.refused().is_none()
    }

    /// A stable word for the reason.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Judged(answer) => match &answer.decision {
                Ok(allowed) => allowed.slug(),
                Err(refused) => refused.slug(),
            },
            Self::Unasked(waiver) => waiver.slug(),
            Self::Changed(Some(_)) => "patched",
            Self::Changed(None) => "unchanged",
        }
    }

    /// The answer of the judge.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Judged(answer) => Some(answer),
            Self::Unasked(_) | Self::Changed(_) => None,
        }
    }

    fn refused(&self) -> Option<&Refused> {
        self.answer()?.decision.as_ref().err()
    }
}
