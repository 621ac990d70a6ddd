//! Kubernetes' rules for the names of objects. A name that keeps them cannot mean anything else in
//! a URL.

/// Whether `text` is a DNS label (RFC 1123), like the names of namespaces: 1 to 63 lower-case
/// letters, digits and inner dashes.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// The pattern of a DNS subdomain in the definition of a resource; its length is said beside it.
pub const SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Whether `text` is a DNS subdomain (RFC 1123), like the names of pods and `StatefulSet`s: parts
/// like labels with dots between them, at most 253 characters in all. Kubernetes does not limit
/// each part to 63 characters.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = text.bytes().all(|b| plain(b) || b == b'-');
    let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
    inner && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_definitions_takes_what_is_a_subdomain() {
        let pattern = regex::Regex::new(SUBDOMAIN).unwrap();
        for name in [
            "a",
            "0",
            "a.b",
            "etcd-0.x",
            "a--b",
            "",
            "-",
            "a-",
            "-a",
            "a..b",
            ".a",
            "a.",
            "a.-b",
            "A",
            "a_b",
            "a/b",
            "../x",
            "x?resourceVersion=0",
            "a%2f",
            "a b",
            "a\n",
        ] {
            assert_eq!(pattern.is_match(name), is_subdomain(name), "{name:?}");
        }
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for name in ["a", "0", "etcd-main-0", "a--b", &"x".repeat(63)] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        for name in ["a.b", "etcd-0.example.org", &"x".repeat(253)] {
            assert!(is_subdomain(name) && !is_label(name), "{name}");
        }
        for name in [
            "",
            "-",
            "a-",
            "-a",
            "A",
            "a_b",
            "a b",
            "a/b",
            "..",
            ".",
            "a..b",
            "a.",
            "x?",
            "x%2f",
            "ä",
            "a\n",
            "\u{0}",
            "a.-b",
            &"x".repeat(254),
        ] {
            assert!(!is_label(name) && !is_subdomain(name), "{name:?}");
        }
    }
}
