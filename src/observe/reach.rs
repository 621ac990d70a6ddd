//! The members to ask in a round, and those that cannot be asked.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::endpoints::{self, SharedSettings};
use super::pods;
use crate::api::Way;
use crate::etcd::{Endpoint, TlsIdentity};
use crate::ledger::Page;
use crate::quorum::EvidenceMode;
use crate::quorum::evidence::{Probe, Target, Unanswered};

/// The most external members that are asked. A real cluster has fewer, and a list with invented
/// members makes the gate connect to few addresses.
const MOST_EXTERNAL: usize = 16;

/// The endpoints to ask, and empty answers for members that cannot be asked.
#[derive(Debug, Default)]
pub(super) struct Reach {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) unreachable: Vec<Probe>,
}

/// The members of the cluster with these pods, asked in this way. `tls` is the content of its
/// certificates, if it has any, or the reason why they cannot be used.
pub(super) fn reach(
    page: &Page,
    mode: EvidenceMode,
    set: Option<&StatefulSet>,
    (way, pods): (&Way, &[Pod]),
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
    let shared = SharedSettings {
        namespace: &page.cluster.namespace,
        service: spec.and_then(|spec| spec.service_name.as_deref()),
        members: &page.budget().spec.members,
        way,
        tls,
    };
    let mut reach = Reach::default();
    for pod in pods {
        match endpoints::of_pod(pod, &shared) {
            Some(endpoint) => reach.endpoints.push(endpoint),
            None => reach.unreachable.push(Probe::unanswered(
                Target::Pod(pods::uid(pod)),
                Unanswered::NoAddress,
            )),
        }
    }
    let externals = page
        .externals()
        .filter_map(|member| endpoints::of_external(member, &shared));
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
