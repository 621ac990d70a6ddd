//! Scenarios about time (deadlines, election timeouts). Their claims hold only on a machine that
//! gives every process some time.
//!
//! A failed scenario is run again if a thread that only sleeps was woken far too late meanwhile:
//! then members and test stood still too. A failure without such a stall counts at once, and so
//! does the last try.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::FutureExt as _;

const TRIES: u32 = 4;

/// The least delay that is a stall: several heartbeats of 100 ms, and a third of the election
/// timeout.
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

/// A thread that sleeps, and records the largest delay of its wake-ups.
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
