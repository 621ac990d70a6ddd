//! Alarms, parsed from the `errors` of a `Status` answer.
//!
//! etcd prints each alarm there in protobuf's text form: `memberID:10501334649042878790
//! alarm:NOSPACE`. The order of the fields and the number of spaces between them are not fixed
//! (newer protobuf libraries print one space or two). Other texts stand beside alarms, such as
//! `etcdserver: no leader`.

use crate::quorum::MemberId;
use crate::quorum::evidence::{Alarm, AlarmKind};

/// The alarms among `errors`.
pub(super) fn alarms(errors: &[String]) -> Vec<Alarm> {
    errors.iter().filter_map(|error| alarm(error)).collect()
}

fn alarm(text: &str) -> Option<Alarm> {
    // Protobuf leaves out fields with their default value, so an alarm without a member id has the
    // id 0, which names no particular member.
    let mut member = MemberId(0);
    let mut kind = None;
    for field in text.replace(": ", ":").split_whitespace() {
        match field.split_once(':')? {
            ("memberID", id) => member = MemberId(id.parse().ok()?),
            ("alarm", "NOSPACE") => kind = Some(AlarmKind::NoSpace),
            ("alarm", "CORRUPT") => kind = Some(AlarmKind::Corrupt),
            _ => return None,
        }
    }
    kind.map(|kind| Alarm { member, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Alarm> {
        alarms(&[text.to_owned()])
    }

    #[test]
    fn an_alarm_is_read_however_protobuf_spaces_it() {
        let member = MemberId(10_501_334_649_042_878_790);
        let kind = AlarmKind::NoSpace;
        for text in [
            "memberID:10501334649042878790 alarm:NOSPACE ",
            "memberID:10501334649042878790  alarm:NOSPACE",
            "memberID: 10501334649042878790 alarm: NOSPACE",
            "alarm:NOSPACE memberID:10501334649042878790",
        ] {
            assert_eq!(parsed(text), [Alarm { member, kind }], "{text}");
        }
    }

    #[test]
    fn corruption_is_told_from_lack_of_space() {
        let member = MemberId(7);
        let kind = AlarmKind::Corrupt;
        assert_eq!(
            parsed("memberID:7 alarm:CORRUPT "),
            [Alarm { member, kind }]
        );
    }

    #[test]
    fn an_alarm_without_a_member_is_kept() {
        let member = MemberId(0);
        let kind = AlarmKind::Corrupt;
        assert_eq!(parsed("alarm:CORRUPT "), [Alarm { member, kind }]);
    }

    #[test]
    fn other_errors_are_no_alarms() {
        for text in [
            "etcdserver: no leader",
            "",
            "memberID:7 ",
            "memberID:x alarm:NOSPACE",
        ] {
            assert_eq!(parsed(text), [], "{text:?}");
        }
    }
}
