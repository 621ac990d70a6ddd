//! The result of a check.

use serde::Serialize;

use super::runbook::runbook;
use crate::show::{Paint, Tone, one_line};

/// The result of a check of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) status: Status,
    /// The check, one word in CamelCase.
    pub(super) check: String,
    /// The reason, one word in CamelCase, where the check has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    pub(super) object: String,
    pub(super) message: String,
    /// The action that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
    /// Address of the runbook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runbook: Option<String>,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    /// As it should be.
    Ok,
    /// The check was left out, since the user may not read what it needs.
    Skip,
    /// The object works, and may not for long, or not as it is meant.
    Warn,
    /// The object does not work.
    Fail,
}

impl Status {
    /// The word of five columns.
    fn word(self, paint: Paint) -> String {
        let (word, tone) = match self {
            Self::Ok => ("OK", Tone::Good),
            Self::Skip => ("SKIP", Tone::Uneasy),
            Self::Warn => ("WARN", Tone::Uneasy),
            Self::Fail => ("FAIL", Tone::Bad),
        };
        paint.word(word, tone) + &" ".repeat(6 - word.len())
    }
}

impl Finding {
    pub(super) fn new(
        status: Status,
        check: &str,
        object: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            check: check.to_owned(),
            reason: None,
            object: object.into(),
            message: message.into(),
            fix: None,
            runbook: None,
        }
    }

    pub(super) fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Links the runbook of the alert.
    pub(super) fn runbook(mut self, alert: &str) -> Self {
        self.runbook = runbook(alert).map(str::to_owned);
        self
    }

    /// The finding about an object that could not be read.
    pub(super) fn unread(check: &str, object: impl Into<String>, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let message = format!("cannot ask the API server: {error}");
            return Self::new(Status::Fail, check, object, message).reason("NoAnswer");
        };
        if status.code == 403 {
            return Self::new(Status::Skip, check, object, "your user may not read it")
                .reason("Forbidden");
        }
        let message = format!("cannot be read: {}", status.message.trim_end());
        Self::new(Status::Fail, check, object, message).reason("Unreadable")
    }
}

/// The findings as text: one per line, its fix and its runbook below it, and a count at the end.
pub(super) fn picture(found: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    for finding in found {
        let word = finding.status.word(paint);
        let message = one_line(&finding.message);
        text += &format!("{word}{}: {message}\n", finding.object);
        // A passed check needs no action.
        if finding.status == Status::Ok {
            continue;
        }
        if let Some(fix) = &finding.fix {
            text += &format!("      fix: {}\n", one_line(fix));
        }
        if let Some(runbook) = &finding.runbook {
            text += &format!("      see: {runbook}\n");
        }
    }
    let count = |status| found.iter().filter(|f| f.status == status).count();
    text + &format!(
        "\n{} OK, {} WARN, {} FAIL, {} SKIP\n",
        count(Status::Ok),
        count(Status::Warn),
        count(Status::Fail),
        count(Status::Skip)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_with_its_fix_and_its_runbook_below() {
        let found = [
            Finding::new(Status::Ok, "Version", "Kubernetes", "v1.37.1").fix("nothing"),
            Finding::new(
                Status::Fail,
                "GateActive",
                "cluster db/etcd",
                "is False:\nno label",
            )
            .reason("NamespaceNotGated")
            .fix("label the namespace")
            .runbook("QuorumgateNotInForce"),
        ];
        let text = picture(&found, Paint::Never);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "OK    Kubernetes: v1.37.1");
        assert_eq!(lines[1], "FAIL  cluster db/etcd: is False: no label");
        assert_eq!(lines[2], "      fix: label the namespace");
        assert!(lines[3].starts_with("      see: https://"), "{text}");
        assert!(lines[3].ends_with("#quorumgatenotinforce"), "{text}");
        assert_eq!(lines[5], "1 OK, 0 WARN, 1 FAIL, 0 SKIP");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json[0]["status"], "OK");
        assert_eq!(json[1]["status"], "FAIL");
        assert_eq!(json[1]["check"], "GateActive");
        assert_eq!(json[1]["reason"], "NamespaceNotGated");
    }
}
