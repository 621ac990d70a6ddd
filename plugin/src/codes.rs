//! Reasons for programs: one word in CamelCase, as Kubernetes writes them.

use heck::ToUpperCamelCase as _;
use serde::Serializer;

/// The code of a reason: `NoHeadroom` of `no-headroom`. A reason in CamelCase is its own code.
pub(crate) fn code(reason: &str) -> String {
    if reason.starts_with(|first: char| first.is_ascii_uppercase()) {
        reason.to_owned()
    } else {
        reason.to_upper_camel_case()
    }
}

/// Writes a reason as its code.
pub(crate) fn as_code<S: Serializer>(reason: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&code(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_one_code_however_it_is_written() {
        assert_eq!(code("no-headroom"), "NoHeadroom");
        assert_eq!(code("NoHeadroom"), "NoHeadroom");
        assert_eq!(code("TLSFailed"), "TLSFailed");
        assert_eq!(code("delete"), "Delete");
        assert_eq!(code(""), "");
    }
}
