//! File descriptors: every caller, and every member whose connection is kept, takes one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Takes as many as the system allows, which is often more than a process begins with. How many that are.
pub(super) fn take_all() -> usize {
    let (now, most) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            warn!(%error, "how many files and connections it may open is not known");
            return usize::MAX;
        }
    };
    let allowed = match setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        Ok(()) => most,
        Err(error) => {
            warn!(%error, now, most, "it cannot open more files and connections than it may to begin with");
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
