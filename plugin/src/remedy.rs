//! Remedies of refusals and conditions, from the page that lists every one.

/// The page, which tests hold against the code.
const PAGE: &str = include_str!("../../docs/reference.md");

/// The remedy of the refusal with this identifier, as far as its message gives occasion.
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

/// The remedy of a condition with this reason.
pub(crate) fn of_condition(condition: &str, reason: &str) -> Option<String> {
    let rows = PAGE
        .lines()
        .skip_while(|line| *line != "## Conditions of a budget");
    let rows = rows.skip(1).take_while(|line| !line.starts_with("## "));
    let mut of = "";
    for row in rows.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
        // The first cell of further rows of a condition is empty.
        let row = row.strip_prefix("| ").map_or(row, |rest| rest);
        let cells: Vec<&str> = row.split(" | ").collect();
        let (reasons, remedy) = match cells.as_slice() {
            [condition, reasons, _, remedy] => {
                of = condition.trim_matches('`');
                (reasons, remedy)
            }
            [reasons, _, remedy] => (reasons, remedy),
            _ => continue,
        };
        let mut reasons = reasons.split(", ").map(|reason| reason.trim_matches('`'));
        if of == condition && reasons.any(|known| known == reason) {
            let told = plain(remedy);
            return Some(told).filter(|told| told != "nothing" && told != "see there");
        }
    }
    None
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
    use quorumgate_core::quorum::Reason;
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
        assert!(remedy("NoSuchPod", "").is_some());
        assert_eq!(remedy("never-heard-of", ""), None);
    }

    #[test]
    fn conditions_that_fail_have_a_remedy() {
        for (condition, reason) in [
            ("QuorumHealthy", "QuorumLost"),
            ("EvidenceLive", "TLSFailed"),
            ("AlarmsClear", "NoSpace"),
            ("LedgerTrusted", "Untrusted"),
            ("GateActive", "NoWebhookConfiguration"),
        ] {
            let told = of_condition(condition, reason);
            assert!(
                told.as_ref().is_some_and(|told| told.len() > 15),
                "{condition} {reason}: {told:?}"
            );
        }
        assert_eq!(of_condition("LedgerTrusted", "Watched"), None);
        assert_eq!(of_condition("GateActive", "QuorumLost"), None);
        assert_eq!(of_condition("NeverHeardOf", "Untrusted"), None);
    }

    #[test]
    fn what_the_message_gives_no_occasion_for_is_left_out() {
        let told = remedy("NoHeadroom", "it is needed; not serving: etcd-2").unwrap();
        assert!(told.starts_with(r#"fix those "not serving""#), "{told}");
        assert!(!told.contains("scale-out"), "{told}");
        assert!(!told.contains("permitted"), "{told}");
        let both = "already permitted: etcd-1; not serving: etcd-1";
        let told = remedy("NoHeadroom", both).unwrap();
        assert!(
            told.contains("permitted") && told.contains("not serving"),
            "{told}"
        );
    }

    #[test]
    fn the_remedy_is_the_last_cell_without_marks() {
        assert_eq!(
            remedy("TooSmall", "").as_deref(),
            Some(r#"set "spec.policy.singleMember" or "twoMembers" of the budget"#)
        );
        assert_eq!(
            plain("look ([security.md](security.md)) at `it`"),
            "look (security.md) at \"it\""
        );
    }
}
