//! The place of a member's data: its claim and volume, its pod, or its node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;

use super::belonging;
use super::contents::Lack;
use super::data_on::{
    DataOn, data_directory, data_on, is_told_by_others, may_be_told_directories, on_volumes,
};
use super::etcd_container::EtcdContainer;
use super::observer::Observer;
use super::settings::Settings;
use super::view::{ClusterView, ReferencedSettings};
use super::ways::read::referred;
use crate::api::DataPlace;
use crate::quorum::PodName;

impl ClusterView {
    /// The name of the claim that has the data of the member in the pod of this name, whether or
    /// not the pod exists: the one that is mounted over etcd's data directory, or else the only one
    /// there is. `None` if the data is on no claim, or nobody can tell on which.
    pub fn data_claim(&self, pod: &PodName) -> Option<String> {
        match self.data_on(pod) {
            DataOn::Claims(claims) => claims.into_iter().next(),
            _ => None,
        }
    }

    /// The place of the data of the member in the pod of this name, whether or not the pod exists.
    pub(super) fn data_on(&self, pod: &PodName) -> DataOn {
        let set = self.stateful_set();
        let spec = match self.pod(pod) {
            Some(pod) => pod.spec.as_ref(),
            None => set
                .and_then(|set| set.spec.as_ref())
                .and_then(|spec| spec.template.spec.as_ref()),
        };
        spec.map_or(DataOn::Unknown, |spec| {
            data_on(spec, self.etcd_of(pod), set, pod)
        })
    }

    /// The directory of the data of the member in the pod of this name, on its volume.
    pub fn data_directory(&self, pod: &PodName) -> Option<String> {
        let spec = self.pod(pod)?.spec.as_ref()?;
        data_directory(spec, self.etcd_of(pod), pod)
    }

    /// The places of the data of the members in these pods, as a status says them.
    pub fn data_places<'a>(
        &self,
        pods: impl Iterator<Item = &'a PodName>,
    ) -> BTreeMap<PodName, DataPlace> {
        let present = self.pods().iter().map(belonging::name);
        let present: BTreeMap<PodName, DataOn> = present
            .map(|pod| (pod.clone(), self.data_on(&pod)))
            .collect();
        let place = |pod: &PodName| {
            let own = present.get(pod).cloned();
            let own = own.unwrap_or_else(|| self.data_on(pod));
            let is_shared = |claim: &String| {
                let mut others = present.iter().filter(|(name, _)| *name != pod);
                others.any(|(_, on)| matches!(on, DataOn::Claims(all) if all.contains(claim)))
            };
            match &own {
                DataOn::Claims(claims) if claims.iter().any(is_shared) => DataPlace::SharedClaim,
                DataOn::Claims(_) => DataPlace::Claim,
                DataOn::Pod => DataPlace::Pod,
                DataOn::Node { .. } => DataPlace::Node,
                DataOn::Unknown | DataOn::AnyOf(_) => DataPlace::Unknown,
            }
        };
        pods.map(|pod| (pod.clone(), place(pod))).collect()
    }
}

impl ClusterView {
    /// Whether other objects may name a directory of etcd that its container does not.
    pub fn may_be_told_directories(&self) -> bool {
        let Some(spec) = self.pod_template() else {
            return false;
        };
        may_be_told_directories(spec, self.etcd_container())
    }

    /// Whether etcd's container in the next pod states the data directory.
    pub fn states_data_directory(&self) -> bool {
        let etcd = self.pod_template().and_then(|spec| {
            let etcd = EtcdContainer::find(spec, self.etcd_container());
            etcd.certain()
        });
        etcd.is_some_and(|etcd| Settings::from_container(etcd).directories().is_some())
    }
}

impl Observer {
    /// The word of other objects on etcd in the next pod, read now.
    pub async fn told(&self, view: &ClusterView) -> ReferencedSettings {
        let Some(spec) = view.pod_template() else {
            return ReferencedSettings::default();
        };
        let namespace = &view.cluster().namespace;
        self.told_in(namespace, spec, view.etcd_container()).await
    }

    /// The word of other objects on etcd in a pod with this spec, read now. One that the
    /// gate may not read says nothing.
    pub(super) async fn told_in(
        &self,
        namespace: &str,
        spec: &PodSpec,
        named: Option<&str>,
    ) -> ReferencedSettings {
        let etcd = EtcdContainer::find(spec, named);
        let Some(container) = etcd.certain() else {
            return ReferencedSettings::default();
        };
        let names_directories = may_be_told_directories(spec, named);
        let is_forced = Settings::from_container(container).forces_new_cluster();
        let may_force = !is_forced && is_told_by_others(container, spec);
        if !names_directories && !may_force {
            return ReferencedSettings {
                is_forced,
                ..ReferencedSettings::default()
            };
        }
        let contents = referred(self.client(), namespace, spec, named).await;
        let settings = Settings::read(container, spec, &contents);
        // What could not be read may name the directory of the log. Nobody expects that of an
        // object that is never read, beside another that names the data directory.
        let states_data = Settings::from_container(container).directories().is_some();
        let is_whole = match contents.lack() {
            Lack::Nothing => true,
            Lack::Forbidden => !states_data,
            Lack::Late => false,
        };
        let directories = settings.directories();
        let directories = directories.filter(|_| names_directories && is_whole);
        ReferencedSettings {
            directories: directories.map(|mut found| {
                found.variables = settings.named_in(&on_volumes(&found, container));
                found
            }),
            is_forced: is_forced || settings.forces_new_cluster(),
            is_late: contents.lack() == Lack::Late,
        }
    }
}
