//! The processor time of threads, as the kernel's scheduler counts it.

use std::fs;

use anyhow::{Context as _, Result};

/// The processor time in seconds of the threads of a process whose names are wanted. `process` is a
/// pid or `self`.
pub(crate) fn time(process: &str, wanted: impl Fn(&str) -> bool) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        if wanted(fs::read_to_string(thread.join("comm"))?.trim_end()) {
            let scheduled = fs::read_to_string(thread.join("schedstat"))?;
            let ran = scheduled.split(' ').next().context("an empty schedstat")?;
            nanoseconds += ran.parse::<f64>()?;
        }
    }
    Ok(nanoseconds / 1e9)
}
