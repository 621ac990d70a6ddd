//! Updates of the conditions in a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The name that [`crate::api::condition::LEDGER_TRUSTED`] had in the releases before. The report
/// takes a condition of that name away.
pub(super) const LEDGER_TRUSTED_BEFORE: &str = "LedgerWarm";

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

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
}
