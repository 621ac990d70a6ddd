//! What a target takes of memory for what it is sent: a counting allocator, and the bound.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What anything takes, bytes: a runtime, a connection, a formatted answer.
const ALWAYS: usize = 1024 * 1024;

/// What a byte that was sent may become at most. A list of the smallest things weighs some thirty times its text.
const PER_BYTE: usize = 64;

/// Does the work, and fails where it needed more at any one time than what it was sent justifies.
pub(crate) fn bounded<T>(sent: usize, work: impl FnOnce() -> T) -> T {
    within(ALWAYS + PER_BYTE * sent, work)
}

/// Does the work, and fails where it needed more than this at any one time.
pub(crate) fn within<T>(bound: usize, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    let most = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(most <= bound, "{most} bytes, and {bound} at most");
    done
}
