//! The two sides that the preflight of a rollout compares: etcd in the template, and the members
//! that run.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::etcd_container::{self, EtcdContainer};
use super::look::METRICS;
use super::member_facts::bytes;
use super::observer::Observer;
use super::settings::Settings;
use super::view::ClusterView;
use super::{belonging, pods};
use crate::plan::{EtcdSettings, RunningMember, TaggedImage, TemplateEtcd, Version};
use crate::quorum::evidence::{Round, Target};
use crate::quorum::{Member, Snapshot};

impl ClusterView {
    /// etcd in the StatefulSet's template. `None` where it cannot be told which container is
    /// etcd's.
    pub fn template_etcd(&self) -> Option<TemplateEtcd> {
        let spec: &PodSpec = self.pod_template()?;
        let container = EtcdContainer::find(spec, self.etcd_container()).certain()?;
        Some(TemplateEtcd {
            image: tagged_image(container),
            memory_limit: memory_limit(container),
            settings: settings(container),
        })
    }

    /// Whether the template has a memory limit that a running pod has not, or a lower one.
    fn lowers_memory(&self, template: &TemplateEtcd) -> bool {
        let Some(limit) = template.memory_limit else {
            return false;
        };
        self.pods().iter().any(|pod| {
            let etcd = etcd_container::of_pod(pod, self.etcd_container());
            let has = etcd.and_then(memory_limit);
            has.is_none_or(|has| has > limit)
        })
    }
}

impl Observer {
    /// The members in the cluster's pods, as the preflight of a rollout to `template` reads them.
    /// Their metrics are read only where the template lowers the memory limit.
    pub async fn running_members(
        &self,
        view: &ClusterView,
        (snapshot, round): (&Snapshot, &Round),
        template: &TemplateEtcd,
    ) -> Vec<RunningMember> {
        let needs_memory = view.lowers_memory(template);
        // Anybody can make a pod of a name that looks like theirs.
        let pods = view.pods().iter();
        let made = pods.filter(|pod| pods::revision(pod).is_some());
        let running = made.filter_map(|pod| {
            let etcd = etcd_container::of_pod(pod, view.etcd_container())?;
            let target = Target::Pod(pods::uid(pod));
            let mut probes = round.probes.iter();
            let probe = probes.find(|probe| probe.target == target);
            let status = probe.and_then(|probe| probe.status.as_ref().ok());
            let name = belonging::name(pod);
            let own = snapshot.member(&name);
            let member = RunningMember {
                serves: own.is_some_and(Member::serves_quorum),
                pod: name,
                version: status.and_then(|status| status.version.parse::<Version>().ok()),
                image: tagged_image(etcd),
                memory: None,
                settings: settings(etcd),
            };
            Some((member, target))
        });
        let with_memory = running.map(|(member, target)| async move {
            let endpoint = view.metrics_endpoint(&target).filter(|_| needs_memory);
            let Some(endpoint) = endpoint else {
                return member;
            };
            let metrics = self.prober().metrics(&endpoint, METRICS).await;
            let memory = metrics.ok().and_then(|metrics| metrics.memory);
            RunningMember { memory, ..member }
        });
        join_all(with_memory).await
    }
}

fn settings(container: &Container) -> EtcdSettings {
    let settings = Settings::from_container(container);
    let text = |name| settings.get(name).map(|setting| setting.value);
    let is_whole = settings.unread_file().is_none();
    let urls = text("listen-client-urls").filter(|_| is_whole);
    EtcdSettings {
        data_dir: settings.directories().map(|directories| directories.data),
        name: text("name").filter(|_| is_whole),
        cluster_token: text("initial-cluster-token").filter(|_| is_whole),
        client_tls: urls.map(|urls| urls.contains("https://")),
    }
}

fn memory_limit(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    bytes(&limits.get("memory")?.0)
}

/// The image of a container, if its tag says a version.
fn tagged_image(container: &Container) -> Option<TaggedImage> {
    let (name, version) = version_of_tag(container.image.as_deref()?)?;
    let name = name.to_owned();
    Some(TaggedImage { name, version })
}

/// The last part of the image's name, and the version that its tag says: `3.6.16`, `v3.5`,
/// `3.5.21-debian-12-r0`. A tag without a patch version has 0 as that.
fn version_of_tag(image: &str) -> Option<(&str, Version)> {
    let (name, _digest) = image.split_once('@').unwrap_or((image, ""));
    let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
    let (name, tag) = last.split_once(':')?;
    let release = tag.trim_start_matches('v').split(['-', '+', '_']).next()?;
    let whole = match release.matches('.').count() {
        1 => format!("{release}.0"),
        _ => release.to_owned(),
    };
    Some((name, whole.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_an_image_says_the_version() {
        let version = |image: &str| version_of_tag(image).map(|(_, version)| version.to_string());
        for (image, says) in [
            ("etcd:3.6.16", Some("3.6.16")),
            ("gcr.io:443/etcd-development/etcd:v3.5.21", Some("3.5.21")),
            (
                "docker.io/bitnami/etcd:3.6.4-debian-12-r0@sha256:abc",
                Some("3.6.4"),
            ),
            ("registry.k8s.io/etcd:3.5.21-0", Some("3.5.21")),
            ("quay.io/coreos/etcd:v3.4", Some("3.4.0")),
            ("etcd:latest", None),
            ("etcd:20261128", None),
            ("etcd", None),
            ("localhost:5000/etcd", None),
            ("etcd@sha256:abc", None),
        ] {
            assert_eq!(version(image).as_deref(), says, "{image}");
        }
    }
}
