//! The limit of file descriptors. Each caller and each open connection to a member takes one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the limit of this process to the most that the system allows, and returns the limit.
/// `usize::MAX` where the limit is not known.
pub(super) fn take_all() -> usize {
    let (now, most) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            warn!(%error, "cannot read the limit of open files");
            return usize::MAX;
        }
    };
    let allowed = match setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        Ok(()) => most,
        Err(error) => {
            warn!(%error, now, most, "cannot raise the limit of open files");
            now
        }
    };
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_taken_as_the_system_allows() {
        let taken = take_all();
        let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(now, most);
        assert_eq!(taken, usize::try_from(most).unwrap());
    }
}
