//! A log line as a JSON object in the form of `tracing_subscriber`, for less processor time.
//!
//! The formatter of `tracing_subscriber` passes every quote and comma through two layers that check
//! it again, some hundred times a line, and the gate writes a line for each pod that anybody
//! deletes. That formatter is still used for lines within spans and for lines of the `log` crate.

use std::fmt::{self, Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The usual length in bytes of the line of a decision.
const USUAL_LENGTH: usize = 768;

/// Most bytes of one field: callers choose the content of some fields.
const LONGEST_TEXT: usize = 2048;

/// The formatter.
pub(super) struct JsonLines {
    of_the_library: Format<Json>,
}

impl JsonLines {
    pub(super) fn new() -> Self {
        Self {
            of_the_library: tracing_subscriber::fmt::format().json().flatten_event(true),
        }
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        if context.event_scope().is_some() || about.fields().field("log.target").is_some() {
            return self.of_the_library.format_event(context, writer, event);
        }
        let mut line = Line(String::with_capacity(USUAL_LENGTH));
        line.0.push_str(r#"{"timestamp":""#);
        SystemTime.format_time(&mut Writer::new(&mut line.0))?;
        line.0.push('"');
        line.text("level", about.level().as_str());
        event.record(&mut line);
        line.text("target", about.target());
        line.0.push_str("}\n");
        writer.write_str(&line.0)
    }
}

/// A JSON object that is not closed yet.
struct Line(String);

impl Line {
    fn key(&mut self, name: &str) {
        self.0.push_str(",\"");
        // A field that is named like a Rust keyword is `r#type` in the code and `type` in the log.
        self.0.push_str(name.strip_prefix("r#").unwrap_or(name));
        self.0.push_str("\":");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        let (value, rest) = beginning(value);
        if value
            .bytes()
            .any(|byte| byte < b' ' || byte == b'"' || byte == b'\\')
        {
            self.0.push_str(&serde_json::Value::from(value).to_string());
        } else {
            self.0.push('"');
            self.0.push_str(value);
            self.0.push('"');
        }
        if rest > 0 {
            self.0.pop();
            let _ = write!(self.0, "… and {rest} bytes\"");
        }
    }

    fn number(&mut self, name: &str, value: impl fmt::Display) {
        self.key(name);
        // Writing to a String does not fail.
        let _ = write!(self.0, "{value}");
    }
}

/// The part of `text` that is logged, and the number of bytes that are left out.
fn beginning(text: &str) -> (&str, usize) {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (kept, rest) = text.split_at(end);
    (kept, rest.len())
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // NaN and infinity become `null`, since JSON has no number for them.
        self.number(field.name(), serde_json::Value::from(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use serde_json::Value;
    use tracing_subscriber::fmt::format::JsonFields;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `format` writes for these events, without the times.
    fn lines<F>(format: F, events: impl Fn()) -> Vec<Value>
    where
        F: FormatEvent<tracing_subscriber::Registry, JsonFields> + Send + Sync + 'static,
    {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(format)
            .with_writer(move || writer.clone());
        let subscriber =
            tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
        tracing::subscriber::with_default(subscriber, events);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| {
            let mut line: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
            assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
            line
        });
        lines.collect()
    }

    #[test]
    fn a_line_says_what_the_library_would_write() {
        let events = || {
            let nothing: Option<&str> = None;
            let error = std::fmt::Error;
            let cause: &(dyn std::error::Error + 'static) = &error;
            tracing::info!(
                name = "etcd-0",
                dry_run = false,
                seq = 7_u64,
                left = -1_i64,
                nothing,
                some = Some("one"),
                "decided"
            );
            tracing::warn!(
                quoted = "a \"b\" \\ c",
                lines = "one\ntwo\t\u{1}\u{7f}",
                words = "größer ⎈",
                empty = "",
                "said {}",
                "so"
            );
            tracing::error!(%error, debugged = ?Some("x\"y"), cause, r#type = "word", "the end\n");
            tracing::info!(
                milliseconds = 0.25,
                whole = 3.0,
                tiny = 1e-9,
                huge = 1e300,
                none = f64::NAN
            );
            tracing::debug!("only words");
            let outer = tracing::info_span!("outer", cluster = "a/b");
            outer.in_scope(|| tracing::info!(inside = true, "in a span"));
        };
        let ours = lines(JsonLines::new(), events);
        assert_eq!(ours, lines(JsonLines::new().of_the_library, events));
        assert_eq!(ours.len(), 6);
        assert_eq!(ours[5]["span"]["cluster"], "a/b");
    }

    #[test]
    fn a_field_that_is_too_long_is_cut_at_the_edge_of_a_character() {
        let long = format!("\"{}", "ü".repeat(1024 * 1024));
        let [line] = &lines(JsonLines::new(), || tracing::info!(user = long, "decided"))[..] else {
            panic!("not one line")
        };
        let user = line["user"].as_str().unwrap();
        assert!(user.len() < 2100, "{} bytes", user.len());
        assert!(user.ends_with("… and 2095106 bytes"), "{user}");
    }
}
