//! Log lines on their way out: together where they come fast, at once where they matter.
//!
//! A system call per line is a good part of what it costs to let a stranger's pod pass. So lines wait for each other, for at most
//! [`LONGEST_WAIT`]; a warning takes all that wait along with it, and so does the end of the process.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits for others.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// When more than this waits, bytes, whoever has a line writes them all, as slowly as the reader takes them.
const MOST_WAITING: usize = 1024 * 1024;

/// Where lines go. Clones are the same.
#[derive(Clone)]
pub(super) struct Lines {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Vec<u8>>,
    /// Something waits.
    some: Condvar,
    /// Locked before `waiting`, so that lines stay in order.
    out: Mutex<Out>,
}

struct Out {
    to: Box<dyn Write + Send>,
    /// Changes places with what waits, so that neither has to grow again.
    lines: Vec<u8>,
}

impl Lines {
    /// Starts the thread that writes them.
    pub(super) fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let lines = Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                some: Condvar::new(),
                out: Mutex::new(Out {
                    to: Box::new(out),
                    lines: Vec::new(),
                }),
            }),
        };
        let shared = Arc::clone(&lines.shared);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.run())?;
        Ok(lines)
    }

    /// Writes all that waits.
    pub(super) fn flush(&self) {
        self.shared.flush();
    }
}

impl Shared {
    fn run(&self) -> ! {
        loop {
            let waiting = self.waiting();
            drop(self.some.wait_while(waiting, |waiting| waiting.is_empty()));
            thread::sleep(LONGEST_WAIT);
            self.flush();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) -> usize {
        let mut waiting = self.waiting();
        let first = waiting.is_empty();
        waiting.extend_from_slice(line);
        let waiting = waiting.len();
        if first {
            self.some.notify_one();
        }
        waiting
    }

    /// Nobody is there to hear of a log that cannot be written.
    fn flush(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let Out { to, lines } = &mut *out;
        std::mem::swap(lines, &mut *self.waiting());
        let _ = to.write_all(lines).and_then(|()| to.flush());
        lines.clear();
        lines.shrink_to(MOST_WAITING);
    }
}

/// Takes one line.
pub(super) struct Line<'a> {
    shared: &'a Shared,
    urgent: bool,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            shared: &self.shared,
            urgent: true,
        }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line<'a> {
        Line {
            shared: &self.shared,
            urgent: *of.level() <= Level::WARN,
        }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let waiting = self.shared.add(line);
        if self.urgent || waiting > MOST_WAITING {
            self.shared.flush();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
