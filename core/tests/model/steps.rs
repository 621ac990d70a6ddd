//! The remaining steps of a rollout's cycle, in order.

use crate::state::MEMBERS;

/// The members to take, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Steps([Option<u8>; MEMBERS]);

impl Steps {
    pub(crate) fn new(members: impl IntoIterator<Item = usize>) -> Self {
        let mut steps = Self::default();
        for (place, member) in steps.0.iter_mut().zip(members) {
            *place = Some(u8::try_from(member).unwrap());
        }
        steps
    }

    /// The first step, and those after it.
    pub(crate) fn split(self) -> Option<(usize, Self)> {
        let first = usize::from(self.0[0]?);
        Some((first, Self::new(self.iter().skip(1))))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0[0].is_none()
    }

    /// The steps before this member's.
    pub(crate) fn until(self, member: usize) -> Self {
        Self::new(self.iter().take_while(|other| *other != member))
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten().map(usize::from)
    }
}
