//! The path at which API servers call a webhook: `/validate/pods/WORD`. The word is left out where
//! the gate does not make its own certificates.

/// The word of a path that has none.
pub const PLAIN: &str = "";

/// The path of the validating webhook of this name, such as `pods.quorumgate.io`, without a word.
pub fn validating(name: &str) -> String {
    format!("/validate/{}", first_label(name))
}

/// The path of the mutating webhook of this name, without a word.
pub fn mutating(name: &str) -> String {
    format!("/mutate/{}", first_label(name))
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The path of a webhook without its word, and the word.
pub fn split(path: &str) -> (&str, &str) {
    let mut slashes = path.match_indices('/').map(|(at, _)| at);
    match slashes.nth(2) {
        Some(at) => {
            let (path, word) = path.split_at(at);
            (path, word.trim_start_matches('/'))
        }
        None => (path, PLAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_word_after_two_segments() {
        for (path, expected) in [
            ("/validate/pods", ("/validate/pods", PLAIN)),
            ("/validate/pods/", ("/validate/pods", PLAIN)),
            ("/validate/pods/ab", ("/validate/pods", "ab")),
            ("/validate/pods/ab/cd", ("/validate/pods", "ab/cd")),
            ("/", ("/", PLAIN)),
        ] {
            assert_eq!(split(path), expected);
        }
    }
}
