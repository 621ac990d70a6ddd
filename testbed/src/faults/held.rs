//! Defragmentations that do not get on.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::PodFaults;
use super::data::data_directory;

/// The beginning of the names of the files that defragmentations copy the database to.
const COPY: &str = "db.tmp";

/// The longest time for which another file of the member waits to be opened.
const PAUSE: Duration = Duration::from_millis(5);

/// A member whose next defragmentation stops before it copies anything, whoever asks for it, and
/// goes on when the value is dropped.
///
/// etcd is in the middle of it then: its database is locked, so it answers nothing but
/// `MemberList` and `/metrics`, which say that a defragmentation is in flight. Unlike a frozen
/// process it takes part in raft.
#[derive(Debug)]
#[must_use = "the defragmentation goes on when this is dropped"]
pub struct Held {
    caught: watch::Receiver<bool>,
    _guard: AbortOnDropHandle<()>,
}

impl Held {
    /// Whether a defragmentation has begun and is held.
    pub fn has_begun(&self) -> bool {
        *self.caught.borrow()
    }

    /// Lets the defragmentation go on.
    pub fn release(self) {
        drop(self);
    }
}

impl PodFaults {
    /// Holds the next defragmentation of the member: the kernel asks this process before etcd opens
    /// the file to copy the database to.
    ///
    /// # Errors
    ///
    /// Fails without the right to be asked by the kernel, which root has.
    pub fn hold_defragmentation(&self) -> Result<Held> {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let kernel = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)
            .context("holding a defragmentation needs the right to watch files: run as root")?;
        let opened = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_EVENT_ON_CHILD;
        for process in self.running_etcd()? {
            let databases = data_directory(process.pid())?.join("member/snap");
            let directory = fs::File::open(&databases);
            let directory = directory.with_context(|| format!("no {}", databases.display()))?;
            kernel.mark(MarkFlags::FAN_MARK_ADD, opened, &directory, None::<&str>)?;
        }
        let (tell, caught) = watch::channel(false);
        let guard = tokio::spawn(guard(kernel, tell));
        Ok(Held {
            caught,
            _guard: AbortOnDropHandle::new(guard),
        })
    }
}

/// Answers the kernel, except about copies of the database. When this ends, the kernel lets
/// everything go on.
async fn guard(kernel: Fanotify, caught: watch::Sender<bool>) {
    let mut held = Vec::new();
    loop {
        let asked = match kernel.read_events() {
            Ok(asked) => asked,
            Err(Errno::EAGAIN) => {
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => {
                tracing::warn!("defragmentations are not held any more: {error}");
                return;
            }
        };
        for event in asked {
            if is_copy(&event) {
                held.push(event);
                caught.send_replace(true);
            } else if let Some(file) = event.fd() {
                let yes = FanotifyResponse::new(file, Response::FAN_ALLOW);
                // A process that was killed meanwhile waits for no answer.
                let _ = kernel.write_response(yes);
            }
        }
    }
}

/// Whether the file that is about to be opened is a copy of the database.
fn is_copy(event: &FanotifyEvent) -> bool {
    let file = event
        .fd()
        .and_then(|file| fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok());
    let name = file.as_ref().and_then(|file| file.file_name());
    name.is_some_and(|name| name.to_string_lossy().starts_with(COPY))
}
