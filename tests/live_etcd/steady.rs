//! What is claimed here is claimed of time (deadlines, election timeouts), and holds on a machine that gives everybody some.
//!
//! A scenario that failed is run again where a thread that only sleeps was woken far too late meanwhile: members and test
//! stood still as well. A failure without such a stall counts at once, and so does the last try.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::FutureExt as _;

const TRIES: u32 = 4;

/// Several heartbeats of 100 ms; a third of the election timeout.
const STALL: Duration = Duration::from_millis(300);

pub(crate) async fn on_a_steady_machine(scenario: impl AsyncFn() -> Result<()>) -> Result<()> {
    let mut tries = 1;
    loop {
        let watch = Watch::start();
        let outcome = AssertUnwindSafe(scenario()).catch_unwind().await;
        let stall = watch.longest_stall();
        if matches!(outcome, Ok(Ok(()))) || stall < STALL || tries == TRIES {
            return outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        eprintln!("failed while the machine stood still for {stall:?}: once more");
        tries += 1;
    }
}

/// A thread that sleeps, and notes by how much it was woken too late.
struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let nap = Duration::from_millis(10);
            let mut longest = Duration::ZERO;
            while !watched.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                std::thread::sleep(nap);
                longest = longest.max(asleep.elapsed().saturating_sub(nap));
            }
            longest
        });
        Self { over, thread }
    }

    fn longest_stall(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
