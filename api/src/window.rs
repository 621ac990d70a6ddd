//! Hours of the day in which the gate may begin something.

use jiff::Timestamp;
use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BadField;

/// Hours of the day.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowSpec {
    /// The beginning, such as 22:30.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"), length(max = 5))]
    pub from: String,
    /// The end, such as 04:00. An end before the beginning is on the next day.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"), length(max = 5))]
    pub to: String,
    /// The time zone, such as Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    #[schemars(extend("default" = "UTC"))]
    pub time_zone: Option<String>,
    /// The days on which it begins. Default: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
}

/// Days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

/// Hours of the day, as read. `Display` is `from 22:30 to 04:00 Europe/Berlin on Mon, Tue`.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("from {} to {} {}{}", text.from, text.to, text.time_zone.as_deref().unwrap_or("UTC"), on(&text.days))]
pub struct Window {
    text: WindowSpec,
    /// The minutes of the day at which it begins and ends.
    from: i16,
    to: i16,
    zone: TimeZone,
}

impl WindowSpec {
    /// Reads the window in this field. The schema refuses no time zone, since it knows none.
    pub fn read(&self, field: &'static str) -> Result<Window, BadField> {
        let bad = |problem: String| BadField { field, problem };
        let hours = minute(&self.from).zip(minute(&self.to));
        let (from, to) = hours
            .ok_or_else(|| bad("must name two times of the day, such as 22:30 and 04:00".into()))?;
        let name = self.time_zone.as_deref().unwrap_or("UTC");
        let zone = TimeZone::get(name);
        let zone = zone.map_err(|_| bad(format!("{name:?} is no time zone like Europe/Berlin")))?;
        let text = self.clone();
        Ok(Window {
            text,
            from,
            to,
            zone,
        })
    }
}

impl Window {
    /// Whether it is open at this time. One that ends when it begins lasts for the whole day.
    pub fn is_open(&self, now: Timestamp) -> bool {
        let now = now.to_zoned(self.zone.clone());
        let minute = i16::from(now.hour()) * 60 + i16::from(now.minute());
        let today = now.weekday();
        let begins_on = |day: Weekday| {
            let days = &self.text.days;
            days.is_empty() || days.iter().any(|own| own.weekday() == day)
        };
        let over_midnight = self.to <= self.from;
        let since_today = minute >= self.from && (over_midnight || minute < self.to);
        let since_yesterday = over_midnight && minute < self.to;
        since_today && begins_on(today) || since_yesterday && begins_on(today.previous())
    }
}

impl Day {
    fn weekday(self) -> Weekday {
        match self {
            Self::Mon => Weekday::Monday,
            Self::Tue => Weekday::Tuesday,
            Self::Wed => Weekday::Wednesday,
            Self::Thu => Weekday::Thursday,
            Self::Fri => Weekday::Friday,
            Self::Sat => Weekday::Saturday,
            Self::Sun => Weekday::Sunday,
        }
    }
}

fn minute(text: &str) -> Option<i16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (i16, i16) = (hours.parse().ok()?, minutes.parse().ok()?);
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(hours * 60 + minutes)
}

fn on(days: &[Day]) -> String {
    let days: Vec<String> = days.iter().map(|day| format!("{day:?}")).collect();
    if days.is_empty() {
        return String::new();
    }
    format!(" on {}", days.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: &str, to: &str, zone: Option<&str>, days: &[Day]) -> Result<Window, BadField> {
        let spec = WindowSpec {
            from: from.into(),
            to: to.into(),
            time_zone: zone.map(str::to_owned),
            days: days.to_vec(),
        };
        spec.read("spec.rollout.window")
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        // 2026-11-30 is a Monday.
        let nights = window("22:30", "04:00", None, &[Day::Mon]).unwrap();
        let open = |at: &str| nights.is_open(at.parse().unwrap());
        assert!(open("2026-11-30T22:30:00Z") && open("2026-12-01T03:59:59Z"));
        assert!(!open("2026-11-30T22:29:59Z") && !open("2026-12-01T04:00:00Z"));
        assert!(!open("2026-11-30T03:00:00Z"), "that is Sunday's");
        assert!(!open("2026-12-01T23:00:00Z"), "that is Tuesday's");
        assert_eq!(nights.to_string(), "from 22:30 to 04:00 UTC on Mon");
    }

    #[test]
    fn hours_are_those_of_the_time_zone_in_summer_and_in_winter() {
        let berlin = window("09:00", "10:00", Some("Europe/Berlin"), &[]).unwrap();
        let open = |at: &str| berlin.is_open(at.parse().unwrap());
        assert!(open("2026-01-15T08:30:00Z") && !open("2026-01-15T07:30:00Z"));
        assert!(open("2026-07-15T07:30:00Z") && !open("2026-07-15T08:30:00Z"));
    }

    #[test]
    fn one_that_ends_when_it_begins_lasts_for_the_whole_day() {
        let all = window("00:00", "00:00", None, &[]).unwrap();
        assert!(all.is_open("2026-07-15T00:00:00Z".parse().unwrap()));
        assert!(all.is_open("2026-07-15T23:59:00Z".parse().unwrap()));
    }

    #[test]
    fn times_and_zones_that_do_not_exist_are_named() {
        for wrong in ["24:00", "4", "-1:00", "04:60", ""] {
            let problem = window("22:30", wrong, None, &[]).unwrap_err().problem;
            assert!(problem.contains("22:30 and 04:00"), "{wrong}: {problem}");
        }
        let problem = window("22:30", "04:00", Some("Europe/Atlantis"), &[]);
        assert!(problem.unwrap_err().problem.contains("Atlantis"));
    }
}
