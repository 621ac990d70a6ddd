//! A number that was measured in several rounds.

/// A number that was measured in several rounds: the median stands for all, and the extremes show
/// its reliability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn from_numbers(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: at(numbers.len() / 2),
            least: at(0),
            most: at(numbers.len().saturating_sub(1)),
        }
    }

    /// A number that was measured once.
    pub(crate) fn once(number: f64) -> Self {
        Self::from_numbers([number])
    }
}
