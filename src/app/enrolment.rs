//! Whether a StatefulSet is enrolled, for hints to autoscalers. No verdict rests on it.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Api, Client};

use crate::admission::mutate::pods::Enrolment;
use crate::api::QuorumDisruptionBudget;
use crate::observe::is_enrolled;

/// The API server's word on it.
pub(super) struct Enrolments(pub(super) Client);

impl Enrolment for Enrolments {
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>> {
        self.look(namespace, stateful_set)
            .map(|found| found.map_err(|error| error.to_string()))
            .boxed()
    }
}

impl Enrolments {
    async fn look(&self, namespace: &str, name: &str) -> Result<bool, kube::Error> {
        let sets: Api<StatefulSet> = Api::namespaced(self.0.clone(), namespace);
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.0.clone(), namespace);
        let (set, budget) = tokio::try_join!(sets.get_opt(name), budgets.get_opt(name))?;
        Ok(budget.is_some() || set.as_ref().is_some_and(is_enrolled))
    }
}
