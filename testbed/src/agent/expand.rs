//! `$(VAR)` in commands, arguments and environment values, expanded as the kubelet does.

/// Replaces `$(NAME)` by its value. `$$` stands for one `$`, and an unknown name stays as it is.
pub(super) fn expand<'a>(input: &str, value_of: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        let (before, from_dollar) = rest.split_at(at);
        out.push_str(before);
        let after = from_dollar.get(1..).unwrap_or_default();
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|r| r.split_once(')')) {
            if let Some(value) = value_of(name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(input: &str) -> String {
        expand(input, |name| match name {
            "A" => Some("one"),
            "EMPTY" => Some(""),
            _ => None,
        })
    }

    #[test]
    fn known_names_are_replaced() {
        assert_eq!(expanded("--name=$(A)-$(A)$(EMPTY)"), "--name=one-one");
    }

    #[test]
    fn unknown_names_stay() {
        assert_eq!(expanded("$(B) and $(A)"), "$(B) and one");
    }

    #[test]
    fn a_doubled_dollar_escapes() {
        assert_eq!(expanded("$$(A) $$$(A) $$"), "$(A) $one $");
    }

    #[test]
    fn shell_syntax_is_left_to_the_shell() {
        assert_eq!(
            expanded("echo $A ${A} $(unclosed"),
            "echo $A ${A} $(unclosed"
        );
    }
}
