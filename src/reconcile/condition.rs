//! Updates of the conditions in a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::operation::{OperationContext, Report};

/// Replaces the condition of the same type. The transition time is kept if the status is unchanged.
pub(super) fn put(conditions: &mut Vec<Condition>, mut shown: Condition) {
    match conditions.iter_mut().find(|c| c.type_ == shown.type_) {
        Some(place) => {
            if place.status == shown.status {
                shown
                    .last_transition_time
                    .clone_from(&place.last_transition_time);
            }
            *place = shown;
        }
        None => conditions.push(shown),
    }
}

/// The condition of this type.
pub(super) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The report of a duty by a condition: the status, the reason and the words.
pub(super) type ConditionText = (&'static str, &'static str, String);

/// The report by one condition. A cluster that never had a cause for the condition gets none as
/// long as all is well.
pub(super) fn report(
    context: &OperationContext<'_>,
    kind: &'static str,
    said: ConditionText,
    had_cause: bool,
) -> Report {
    let now = Time(context.run.clock.now());
    let generation = context.look.page.budget().metadata.generation;
    Box::new(move |status| {
        let shown = find(&status.conditions, kind);
        if !is_due(shown, &said, had_cause) {
            return;
        }
        let (is, reason, message) = &said;
        let condition = Condition {
            type_: kind.into(),
            status: (*is).into(),
            reason: (*reason).into(),
            message: message.clone(),
            last_transition_time: now.clone(),
            observed_generation: generation,
        };
        put(&mut status.conditions, condition);
    })
}

fn is_due(
    shown: Option<&Condition>,
    (is, reason, message): &ConditionText,
    had_cause: bool,
) -> bool {
    match shown {
        Some(shown) => shown.status != *is || shown.reason != *reason || shown.message != *message,
        None => *is != "True" || had_cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: &str, status: &str, seconds: i64) -> Condition {
        Condition {
            type_: kind.into(),
            status: status.into(),
            reason: format!("At{seconds}"),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::from_second(seconds).unwrap()),
        }
    }

    #[test]
    fn a_condition_keeps_its_place_and_while_its_status_stands_its_time() {
        let mut conditions = vec![shown("A", "True", 1), shown("B", "True", 1)];
        put(&mut conditions, shown("A", "True", 2));
        let mut expected = shown("A", "True", 2);
        expected.last_transition_time = shown("A", "True", 1).last_transition_time;
        assert_eq!(conditions, [expected, shown("B", "True", 1)]);

        put(&mut conditions, shown("A", "False", 3));
        put(&mut conditions, shown("C", "Unknown", 3));
        let (a, b, c) = (
            shown("A", "False", 3),
            shown("B", "True", 1),
            shown("C", "Unknown", 3),
        );
        assert_eq!(conditions, [a, b, c]);
    }

    #[test]
    fn a_cluster_has_the_condition_once_there_was_a_cause() {
        let good = ("True", "NothingToReplace", "none".to_owned());
        let bad = ("False", "NotAllServing", "some".to_owned());
        assert!(!is_due(None, &good, false));
        assert!(is_due(None, &bad, false));
        // A replacement in which nothing was waited for.
        assert!(is_due(None, &good, true));
    }

    #[test]
    fn a_condition_is_written_when_its_status_reason_or_words_change() {
        let shown = shown("DataProtected", "False", 1);
        let is_due = |is, reason, words: &str| {
            super::is_due(Some(&shown), &(is, reason, words.to_owned()), false)
        };
        assert!(!is_due("False", "At1", ""));
        assert!(is_due("False", "At1", "etcd-1"));
        assert!(is_due("False", "Owner", ""));
        assert!(is_due("True", "At1", ""));
    }
}
