//! The deadlines of a request, by the time that the API server waits: 90 % of it for the judge, and
//! 95 % for any answer. The API server tells that time in the parameter `timeout`. At most 5 s of
//! it count, which the webhook configurations say, too.

use std::time::Duration;

use tokio::time::Instant;

use super::malformed::Problem;

/// The `timeoutSeconds` of the webhook configurations. A caller that names a longer time does not
/// follow them, and would occupy the places of a request for that long.
const LONGEST_HEEDED: Duration = Duration::from_secs(5);

/// The two deadlines of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// The deadline of the judge: 90 % of the time.
    pub judge: Instant,
    /// The deadline of any answer: 95 % of the time. A judge that has not answered by then is left
    /// behind.
    pub answer: Instant,
}

impl Deadline {
    /// The deadlines of a request with this query string. The API server waits since `start`.
    pub(super) fn parse(start: Instant, query: Option<&str>) -> Result<Self, Problem> {
        let given = query
            .unwrap_or_default()
            .split('&')
            .find_map(|pair| pair.strip_prefix("timeout="));
        let timeout = match given {
            None | Some("") => LONGEST_HEEDED,
            Some(text) => parse(text).map_err(Problem::Timeout)?,
        };
        let timeout = timeout.min(LONGEST_HEEDED);
        Ok(Self {
            judge: start + timeout.mul_f64(0.90),
            answer: start + timeout.mul_f64(0.95),
        })
    }
}

/// A duration as Go writes it: `5s`, `1m30s`, `1.5s`, `250ms`.
fn parse(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a duration like 5s or 1m30s");
    let mut seconds = 0.0_f64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(refused)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(letters);
        let number: f64 = number.parse().map_err(|_| refused())?;
        seconds += number * unit_seconds(unit).ok_or_else(refused)?;
        rest = next;
    }
    if seconds <= 0.0 {
        return Err(format!("`{text}` leaves no time to answer"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}

fn unit_seconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "%C2%B5s" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("5s", 5000),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1.5s", 1500),
            ("250ms", 250),
            ("1m0s", 60_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "5", "s", "-5s", "5x", "0s", "1..5s", "1e3s", "5s ", "∞s", "5sx",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_judge_has_90_percent_of_the_time_the_api_server_waits() {
        let start = Instant::now();
        let after = |query| {
            let deadline = Deadline::parse(start, query).unwrap();
            (deadline.judge - start, deadline.answer - start)
        };
        let seconds = Duration::from_secs_f64;
        assert_eq!(after(None), (seconds(4.5), seconds(4.75)));
        assert_eq!(after(Some("timeout=10s")), (seconds(4.5), seconds(4.75)));
        assert_eq!(after(Some("timeout=5s")), (seconds(4.5), seconds(4.75)));
        assert_eq!(after(Some("a=b&timeout=2s")), (seconds(1.8), seconds(1.9)));
        assert_eq!(after(Some("timeout=9000h")), (seconds(4.5), seconds(4.75)));
        assert!(Deadline::parse(start, Some("timeout=soon")).is_err());
    }
}
