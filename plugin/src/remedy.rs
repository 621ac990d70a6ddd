//! What to do about a refusal, from the page that lists every one.

/// The page, which tests hold against the code.
const PAGE: &str = include_str!("../../docs/reference.md");

/// What to do about the refusal with this identifier, as far as its message gives occasion.
pub(crate) fn remedy(reason: &str, message: &str) -> Option<String> {
    let cells = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = cells.filter_map(|row| row.split_once("` | "));
    let (_, rest) = row.into_iter().find(|(slug, rest)| {
        let refuses = ["429", "403", "404"]
            .iter()
            .any(|code| rest.starts_with(code));
        *slug == reason && refuses
    })?;
    let told = rest.splitn(3, " | ").nth(2)?.trim_end_matches(" |");
    let told = plain(told);
    Some(fitting(&told, message).unwrap_or(told))
}

/// The sentences of a remedy that quote words of the message; `None` if none does.
fn fitting(remedy: &str, message: &str) -> Option<String> {
    let is_about_it = |sentence: &&str| {
        let quoted = sentence.split('"').nth(1);
        quoted.is_some_and(|words| message.contains(words))
    };
    let sentences: Vec<_> = remedy.split(". ").filter(is_about_it).collect();
    let mut fitting = sentences.join(". ");
    if let Some(first) = fitting.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    (!fitting.is_empty()).then_some(fitting)
}

/// Markdown without its links, and with quotes in the place of its code marks.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((link, after)) = after.split_once(')') else {
            break;
        };
        plain.push_str(link.split_once("](").map_or(link, |(words, _)| words));
        rest = after;
    }
    plain.push_str(rest);
    plain.replace('*', "").replace('`', "\"")
}

#[cfg(test)]
mod tests {
    use quorumgate::quorum::Reason;
    use strum::VariantNames as _;

    use super::*;

    #[test]
    fn every_refusal_has_a_remedy() {
        for reason in Reason::VARIANTS {
            let told = remedy(reason, "");
            assert!(
                told.as_ref().is_some_and(|told| told.len() > 15),
                "{reason}: {told:?}"
            );
        }
        assert!(remedy("no-such-pod", "").is_some());
        assert_eq!(remedy("never-heard-of", ""), None);
    }

    #[test]
    fn what_the_message_gives_no_occasion_for_is_left_out() {
        let told = remedy("no-headroom", "it has to stay; not serving: etcd-2").unwrap();
        assert!(
            told.starts_with(r#"repair what is "not serving""#),
            "{told}"
        );
        assert!(!told.contains("scale-out"), "{told}");
        assert!(!told.contains("permitted"), "{told}");
        let both = "already permitted to go: etcd-1; not serving: etcd-1";
        let told = remedy("no-headroom", both).unwrap();
        assert!(
            told.contains("permitted") && told.contains("not serving"),
            "{told}"
        );
    }

    #[test]
    fn the_remedy_is_the_last_cell_without_marks() {
        assert_eq!(
            remedy("too-small", "").as_deref(),
            Some(r#"change "spec.policy.singleMember" or "twoMembers" of the budget"#)
        );
        assert_eq!(
            plain("look ([security.md](security.md)) at `it`"),
            "look (security.md) at \"it\""
        );
    }
}
