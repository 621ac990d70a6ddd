//! `kubectl quorum man`: the manual pages.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::End;
use crate::cli::Cli;
use crate::show::print;

/// Prints the page of the program, or writes a page for each command into the directory.
pub(crate) fn run(directory: Option<&Path>) -> Result<End> {
    let command = Cli::command().name("kubectl-quorum");
    if let Some(directory) = directory {
        clap_mangen::generate_to(command, directory)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
        return Ok(End::Well);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    print(&String::from_utf8(page)?)?;
    Ok(End::Well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("kubectl-quorum-man{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        run(Some(&folder)).unwrap();
        for page in ["", "-status", "-doctor", "-rollout-proceed", "-report"] {
            let file = folder.join(format!("kubectl-quorum{page}.1"));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
