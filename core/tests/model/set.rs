//! A set of members, small enough to be a byte.

use std::fmt;

/// Members by their index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Set(u8);

impl Set {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(members: impl IntoIterator<Item = usize>) -> Self {
        Self(
            members
                .into_iter()
                .fold(0, |bits, member| bits | 1 << member),
        )
    }

    pub(crate) fn has(self, member: usize) -> bool {
        self.0 & 1 << member != 0
    }

    #[must_use]
    pub(crate) fn with(self, member: usize) -> Self {
        Self(self.0 | 1 << member)
    }

    #[must_use]
    pub(crate) fn without(self, member: usize) -> Self {
        Self(self.0 & !(1 << member))
    }

    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |member| self.has(*member))
    }

    /// Every set of at most `most` of these members, the empty one first.
    pub(crate) fn subsets(self, most: u32) -> impl Iterator<Item = Self> {
        let next = move |set: &Self| {
            Some(Self(set.0.wrapping_sub(self.0) & self.0)).filter(|set| !set.is_empty())
        };
        std::iter::successors(Some(Self::NONE), next).filter(move |set| set.count() <= most)
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
