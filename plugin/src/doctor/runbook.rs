//! The addresses of runbooks, from the alerts that link them.

/// The alerts of the chart.
const ALERTS: &str = include_str!("../../../charts/quorumgate/alerts.yaml");

/// The address of an alert's runbook.
pub(super) fn runbook(alert: &str) -> Option<&'static str> {
    let mut lines = ALERTS.lines().map(str::trim);
    lines.find(|line| line.strip_prefix("- alert: ") == Some(alert))?;
    let mut lines = lines.take_while(|line| !line.starts_with("- alert: "));
    lines.find_map(|line| line.strip_prefix("runbook_url: "))
}

/// The alert about a condition that is not as it should be.
pub(super) fn alert_about(condition: &str) -> Option<&'static str> {
    Some(match condition {
        "QuorumHealthy" => "QuorumgateQuorumLost",
        "DataIntact" => "QuorumgateDataLost",
        "AlarmsClear" => "QuorumgateAlarm",
        "ClusterIDConsistent" => "QuorumgateSplitCluster",
        "EvidenceLive" => "QuorumgateEvidenceWeak",
        "LedgerTrusted" => "QuorumgateLedgerUntrusted",
        "GateActive" => "QuorumgateNotInForce",
        "BackupsRecent" => "QuorumgateBackupsOld",
        "DataRestorable" => "QuorumgateRestorationFailed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use quorumgate_api::condition;

    use super::*;

    #[test]
    fn each_condition_has_the_runbook_of_its_alert() {
        for condition in [
            condition::QUORUM_HEALTHY,
            condition::DATA_INTACT,
            condition::ALARMS_CLEAR,
            condition::CLUSTER_ID_CONSISTENT,
            condition::EVIDENCE_LIVE,
            condition::LEDGER_TRUSTED,
            condition::GATE_ACTIVE,
            condition::BACKUPS_RECENT,
            condition::DATA_RESTORABLE,
        ] {
            let alert = alert_about(condition).expect(condition);
            let address = runbook(alert).expect(alert);
            let anchor = format!("#{}", alert.to_lowercase());
            assert!(address.starts_with("https://"), "{address}");
            assert!(address.ends_with(&anchor), "{address}");
        }
        assert_eq!(runbook("QuorumgateNever"), None);
    }

    #[test]
    fn every_alert_that_a_check_names_exists() {
        let sources = [
            include_str!("installation.rs"),
            include_str!("clusters.rs"),
            include_str!("before.rs"),
        ];
        let named = sources
            .iter()
            .flat_map(|source| source.split(".runbook(\"").skip(1));
        let named: Vec<_> = named.filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() >= 6, "{named:?}");
        for alert in named {
            assert!(runbook(alert).is_some(), "{alert}");
        }
    }
}
