//! A person's yes to something that may cost a quorum.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Result, bail};

use crate::cli::Yes;
use crate::show::complain;

/// Shows what is about to happen, and asks, unless the answer was given before.
pub(crate) fn confirm(what: &str, given: &Yes) -> Result<()> {
    complain(what);
    if given.yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("nothing was done: nobody can be asked here; say --yes");
    }
    let mut out = std::io::stderr();
    write!(out, "Type yes to go on: ")?;
    out.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    if answer.trim() == "yes" {
        Ok(())
    } else {
        bail!("nothing was done")
    }
}
