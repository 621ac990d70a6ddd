//! Fuzz target for budgets as an API server could return them: reading neither loses nor invents
//! entries of the ledger, and nonsense is an error.

use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::ledger::Page;
use quorumgate::quorum::{PodName, PodUid};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(budget) = serde_json::from_slice::<QuorumDisruptionBudget>(bytes) else {
        return;
    };
    let status = budget.status.clone().unwrap_or_default();
    let Ok(page) = Page::read(budget) else {
        return;
    };
    assert_eq!(page.grants.iter().count(), status.grants.len());
    for (grant, (member, read)) in sorted(&status.grants).into_iter().zip(page.grants.iter()) {
        assert_eq!(grant.member, member.as_str());
        assert_eq!(grant.causes.len(), read.causes.len());
        assert!(!read.causes.is_empty(), "a grant for nothing");
    }
    let nobody = (PodName::new("nobody"), PodUid::new("none"));
    let _ = page.recorded_id(&nobody.0, &nobody.1);
    let _ = page.cluster_id();
    let _ = page.policy();
}

fn sorted(grants: &[quorumgate::api::GrantStatus]) -> Vec<&quorumgate::api::GrantStatus> {
    let mut grants: Vec<_> = grants.iter().collect();
    grants.sort_by(|one, other| one.member.cmp(&other.member));
    grants
}
