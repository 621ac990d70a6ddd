//! The memory of a process, as the kernel counts it.

use std::fs;

use anyhow::{Context as _, Result};

/// Resident memory in KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resident {
    pub(crate) now: f64,
    /// The most at any time until now.
    pub(crate) most: f64,
}

impl Resident {
    /// The memory of `process`, which is a pid or `self`.
    pub(crate) fn read(process: &str) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            let value = value.and_then(|value| value.split_whitespace().next());
            let value = value.with_context(|| format!("no {name} in {status}"))?;
            anyhow::Ok(value.parse()?)
        };
        Ok(Self {
            now: field("VmRSS:")?,
            most: field("VmHWM:")?,
        })
    }
}
