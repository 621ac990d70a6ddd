use std::sync::mpsc::{Receiver, Sender, channel};

use tracing::subscriber::with_default;

use super::*;

/// Each write as one message.
struct Writes(Sender<String>);

impl Write for Writes {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0
            .send(String::from_utf8_lossy(text).into_owned())
            .unwrap();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines() -> (Lines, Receiver<String>) {
    let (sender, writes) = channel();
    (Lines::to(Writes(sender)).unwrap(), writes)
}

/// Logs only their messages through `lines`.
fn log(lines: &Lines, what: impl FnOnce()) {
    let bare = tracing_subscriber::fmt::format()
        .with_level(false)
        .with_target(false)
        .without_time();
    let subscriber = tracing_subscriber::fmt()
        .event_format(bare)
        .with_ansi(false)
        .with_writer(lines.clone());
    with_default(subscriber.finish(), what);
}

#[test]
fn lines_that_nobody_flushes_are_written_all_the_same() {
    let (lines, writes) = lines();
    for round in ["one", "two"] {
        log(&lines, || tracing::info!("{round}"));
        let written = writes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(written.trim(), round);
    }
}

#[test]
fn lines_that_come_together_are_written_together_and_in_order() {
    let (lines, writes) = lines();
    // Nothing is written while somebody holds what is written to.
    let out = lines.shared.out.lock().unwrap();
    log(&lines, || {
        (0..100).for_each(|number| tracing::info!("{number}"));
    });
    drop(out);
    let written = writes.recv_timeout(Duration::from_secs(20)).unwrap();
    let numbers: Vec<u32> = written
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_warning_is_written_before_it_returns_with_all_that_came_before() {
    let (lines, writes) = lines();
    log(&lines, || {
        tracing::info!("before");
        tracing::warn!("wrong");
        let written: String = writes.try_iter().collect();
        assert!(
            written.contains("before") && written.trim_end().ends_with("wrong"),
            "{written}"
        );
    });
}

#[test]
fn a_flood_is_written_by_those_who_cause_it() {
    let (lines, writes) = lines();
    let much = "x".repeat(MOST_WAITING);
    log(&lines, || {
        tracing::info!("{much}");
        let written: String = writes.try_iter().collect();
        assert!(written.len() > MOST_WAITING, "{}", written.len());
    });
}
