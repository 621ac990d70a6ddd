//! `kubectl quorum doctor`: what is wrong with the installation, or with what the gate needs to
//! see.

mod checks;

use anyhow::Result;
use serde::Serialize;

use crate::End;
use crate::cli;
use crate::connect::Kubernetes;
use crate::show::{Paint, Tone, cell, print, print_as, table};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    what: String,
    state: State,
    says: String,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum State {
    /// As it should be.
    Well,
    /// It works, and somebody should know.
    Uneasy,
    /// It has to be mended.
    Bad,
    /// The user may not see it.
    Unseen,
}

impl Finding {
    fn new(what: impl Into<String>, state: State, says: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state,
            says: says.into(),
        }
    }

    /// What could not be read.
    fn unread(what: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::new(
                what,
                State::Bad,
                format!("the API server could not be asked: {error}"),
            );
        };
        if status.code == 403 {
            return Self::new(what, State::Unseen, "your user may not see it");
        }
        Self::new(
            what,
            State::Bad,
            format!("could not be read: {}", status.message.trim_end()),
        )
    }
}

pub(crate) async fn run(of: &Kubernetes, options: &cli::Doctor, paint: Paint) -> Result<End> {
    let mut found = checks::installation(of, options).await;
    found.extend(checks::clusters(of).await);
    match options.output {
        Some(form) => print_as(form, &found)?,
        None => print(&picture(&found, paint))?,
    }
    let bad = found.iter().any(|finding| finding.state == State::Bad);
    Ok(if bad { End::No } else { End::Well })
}

fn picture(found: &[Finding], paint: Paint) -> String {
    let rows = found.iter().map(|finding| {
        let (word, tone) = match finding.state {
            State::Well => ("well", Tone::Good),
            State::Uneasy => ("look", Tone::Uneasy),
            State::Bad => ("mend", Tone::Bad),
            State::Unseen => ("unseen", Tone::Uneasy),
        };
        vec![
            cell(word, tone),
            cell(&finding.what, Tone::Plain),
            cell(&finding.says, Tone::Plain),
        ]
    });
    table(&[], rows.collect(), paint)
}
