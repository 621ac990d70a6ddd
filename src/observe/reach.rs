//! Whom to ask in a round, and who cannot even be asked.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::endpoints::{self, Manner};
use super::pods;
use crate::etcd::{Endpoint, TlsIdentity};
use crate::ledger::Page;
use crate::quorum::EvidenceMode;
use crate::quorum::evidence::{Probe, Target, Unanswered};

/// So many external members are asked: more than a cluster can well have, and few enough that a list of made-up ones has the gate connect to little.
const MOST_EXTERNAL: usize = 16;

/// Whom to ask, and the empty answers of the others.
#[derive(Debug, Default)]
pub(super) struct Reach {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) unreachable: Vec<Probe>,
}

/// Whom to ask about the cluster whose pods these are. `tls`: what its Secrets hold, nothing, or why they cannot be used.
pub(super) fn reach(
    page: &Page,
    mode: EvidenceMode,
    set: Option<&StatefulSet>,
    pods: &[Pod],
    tls: Result<Option<Arc<TlsIdentity>>, String>,
) -> Reach {
    if mode == EvidenceMode::Readiness {
        return Reach::default();
    }
    let tls = match tls {
        Ok(tls) => tls,
        Err(why) => return nobody(pods, &Unanswered::Tls(why)),
    };
    let spec = set.and_then(|set| set.spec.as_ref());
    let manner = Manner {
        namespace: &page.cluster.namespace,
        service: spec.and_then(|spec| spec.service_name.as_deref()),
        members: &page.budget().spec.members,
        tls,
    };
    let mut reach = Reach::default();
    for pod in pods {
        match endpoints::of_pod(pod, &manner) {
            Some(endpoint) => reach.endpoints.push(endpoint),
            None => reach.unreachable.push(Probe::unanswered(
                Target::Pod(pods::uid(pod)),
                Unanswered::NoAddress,
            )),
        }
    }
    let externals = page
        .externals()
        .filter_map(|member| endpoints::of_external(member, &manner));
    reach.endpoints.extend(externals.take(MOST_EXTERNAL));
    reach
}

fn nobody(pods: &[Pod], why: &Unanswered) -> Reach {
    let targets = pods.iter().map(|pod| Target::Pod(pods::uid(pod)));
    Reach {
        endpoints: Vec::new(),
        unreachable: targets
            .map(|target| Probe::unanswered(target, why.clone()))
            .collect(),
    }
}
