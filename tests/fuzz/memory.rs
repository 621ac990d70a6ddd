//! The memory that a target uses for its input: a counting allocator and the bound.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory in bytes that any run needs: a runtime, a connection, a formatted answer.
const ALWAYS: usize = 1024 * 1024;

/// The most bytes of memory per byte of input. A list of the smallest entries needs some thirty
/// times its text.
const PER_BYTE: usize = 64;

/// Does the work, and fails if its memory was ever larger than an input of this size justifies.
pub(crate) fn bounded<T>(sent: usize, work: impl FnOnce() -> T) -> T {
    within(ALWAYS + PER_BYTE * sent, work)
}

/// Does the work, and fails if its memory was ever larger than `bound` bytes.
pub(crate) fn within<T>(bound: usize, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    let most = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(most <= bound, "{most} bytes, and {bound} at most");
    done
}
