//! Pods that change etcd's member list by themselves before etcd starts in them, known by the
//! contents of their template.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use kube::Api;

use super::observer::Observer;
use super::read_limits::soon;
use super::view::ClusterView;

use crate::named;

/// The words of a script, or of a program, that adds a member.
const ADDS: [&str; 2] = ["member add", "MemberAdd"];

/// Whether a line of a script, which is no comment, adds a member.
fn adds_members(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| !line.starts_with('#') && ADDS.iter().any(|words| line.contains(words)))
}

/// The part of the template that adds its member to etcd, in words. `None` if the template shows
/// none.
pub(super) fn joins_by(spec: &PodSpec) -> Option<String> {
    let init = spec.init_containers.iter().flatten();
    let mut containers = init.chain(&spec.containers);
    containers.find_map(|container| {
        let name = &container.name;
        if words(container).any(|word| adds_members(word)) {
            return Some(format!("container {name}"));
        }
        if let Some(program) = words(container).find(|word| is_such_a_program(word)) {
            return Some(format!("{program} of container {name}"));
        }
        let mut variables = container.env.iter().flatten();
        if variables.any(|variable| variable.name == OF_SUCH_SCRIPTS) {
            return Some(format!("variable {OF_SUCH_SCRIPTS} of container {name}"));
        }
        let image = container.image.as_deref()?;
        has_such_a_script(image).then(|| format!("image {image} of container {name}"))
    })
}

/// The variable by which Bitnami's chart makes the scripts of its image add the member, whatever
/// name a mirror or a fork gives the image.
const OF_SUCH_SCRIPTS: &str = "ETCD_ON_K8S";

/// Whether a word runs Kubermatic's launcher of etcd, which adds its member.
fn is_such_a_program(word: &str) -> bool {
    word.rsplit('/').next() == Some("etcd-launcher")
}

/// The words of a script, or of a program, that removes a member.
const REMOVES: [&str; 2] = ["member remove", "MemberRemove"];

/// The container of the pod that removes its member from etcd before it ends, by a `preStop` hook
/// that says so itself.
pub fn leaves_by(pod: &Pod) -> Option<&str> {
    let removes = |container: &&Container| {
        let hook = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
        let words = hook.exec.as_ref()?.command.as_deref()?;
        let removes = |word: &String| REMOVES.iter().any(|removes| word.contains(removes));
        Some(words.iter().any(removes))
    };
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let found = containers.find(|container| removes(container) == Some(true))?;
    Some(&found.name)
}

/// The words that the container runs, at its start and after it.
fn words(container: &Container) -> impl Iterator<Item = &String> {
    let command = container.command.iter().chain(&container.args).flatten();
    let lifecycle = container.lifecycle.as_ref();
    let after = lifecycle.and_then(|l| l.post_start.as_ref()?.exec.as_ref()?.command.as_ref());
    command.chain(after.into_iter().flatten())
}

/// Whether the image is one of Bitnami's for etcd, whichever registry has it. Its scripts add the
/// member.
fn has_such_a_script(image: &str) -> bool {
    let path = image.split('@').next().unwrap_or_default();
    let mut parts = path.rsplit('/');
    let last = parts.next().unwrap_or_default();
    let name = last.split(':').next().unwrap_or_default();
    name == "etcd" && parts.next().is_some_and(|of| of.starts_with("bitnami"))
}

/// The names of the ConfigMaps that pods with this spec mount.
fn mounted_config_maps(spec: &PodSpec) -> BTreeSet<&str> {
    let volumes = spec.volumes.iter().flatten();
    let names = volumes.flat_map(|volume| {
        let direct = volume.config_map.iter().map(|map| map.name.as_str());
        let projected = volume
            .projected
            .iter()
            .flat_map(|p| p.sources.iter().flatten());
        let projected =
            projected.filter_map(|source| Some(source.config_map.as_ref()?.name.as_str()));
        direct.chain(projected)
    });
    names.filter(|name| !name.is_empty()).collect()
}

impl Observer {
    /// The part of the cluster's pods that adds their members to etcd: of the template, or a script
    /// in a ConfigMap that it mounts, read now. One that the gate may not read says nothing. The
    /// error names one that could not be read.
    pub async fn joins_by(&self, view: &ClusterView) -> Result<Option<String>, String> {
        let Some(spec) = view.pod_template() else {
            return Ok(None);
        };
        if let Some(found) = joins_by(spec) {
            return Ok(Some(found));
        }
        let mut unread = None;
        let client = self.client().clone();
        let maps: Api<ConfigMap> = Api::namespaced(client, &view.cluster().namespace);
        for name in mounted_config_maps(spec) {
            let read = named::get_opt(&maps, "configMap.name of the pod's volume", name);
            let map = match soon(read).await {
                Ok(Ok(Some(map))) => map,
                Ok(Ok(None)) => continue,
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => continue,
                Ok(Err(_)) | Err(_) => {
                    unread = Some(format!("ConfigMap {name}"));
                    continue;
                }
            };
            let mut texts = map.data.iter().flat_map(|data| data.values());
            if texts.any(|text| adds_members(text)) {
                return Ok(Some(format!("ConfigMap {name}")));
            }
        }
        unread.map_or(Ok(None), Err)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(spec: serde_json::Value) -> Option<String> {
        joins_by(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn whatever_adds_its_member_before_or_after_its_start_is_found() {
        let script = |words: &str| json!(["sh", "-c", format!("etcdctl {words}; exec etcd")]);
        let adds = script("--endpoints=$ALL member add $NAME --peer-urls=$URL");
        let etcd = json!({"name": "etcd", "image": "gcr.io/etcd-development/etcd:v3.6.1"});
        let init =
            json!({"initContainers": [{"name": "join", "command": adds}], "containers": [etcd]});
        assert_eq!(found(init).as_deref(), Some("container join"));
        let own = json!({"containers": [{"name": "etcd", "args": adds}]});
        assert_eq!(found(own).as_deref(), Some("container etcd"));
        let after = json!({"containers": [
            {"name": "etcd", "lifecycle": {"postStart": {"exec": {"command": adds}}}},
        ]});
        assert_eq!(found(after).as_deref(), Some("container etcd"));
        let lists = json!({"containers": [{"name": "etcd", "args": script("member list")}]});
        assert_eq!(found(lists), None);
        assert_eq!(found(json!({"containers": [etcd]})), None);
    }

    #[test]
    fn what_a_script_only_speaks_of_adds_no_member() {
        for text in [
            "# To repair: etcdctl member add $NAME",
            "  # etcdctl member add $NAME\nexec etcd",
            "etcdctl member list",
        ] {
            assert!(!adds_members(text), "{text}");
        }
        assert!(adds_members("# joins\n  etcdctl member add $NAME # now"));
    }

    #[test]
    fn an_image_whose_scripts_add_the_member_is_known_in_every_registry() {
        for image in [
            "bitnami/etcd",
            "docker.io/bitnamilegacy/etcd:3.6.4-debian-12-r0",
            "registry.example.com:5000/mirror/bitnami/etcd@sha256:00",
        ] {
            assert!(has_such_a_script(image), "{image}");
        }
        for image in [
            "quay.io/coreos/etcd:v3.6.1",
            "bitnami/etcd-exporter",
            "etcd",
        ] {
            assert!(!has_such_a_script(image), "{image}");
        }
    }

    #[test]
    fn a_program_or_a_chart_that_adds_the_member_is_known_whatever_its_image() {
        let launched = json!({"containers": [
            {"name": "etcd", "image": "a/b", "command": ["/opt/bin/etcd-launcher", "run"]},
        ]});
        let by = "/opt/bin/etcd-launcher of container etcd";
        assert_eq!(found(launched).as_deref(), Some(by));
        let forked = json!({"containers": [
            {"name": "etcd", "image": "milvusdb/etcd", "env": [{"name": "ETCD_ON_K8S", "value": "yes"}]},
        ]});
        let by = "variable ETCD_ON_K8S of container etcd";
        assert_eq!(found(forked).as_deref(), Some(by));
    }

    #[test]
    fn scripts_are_looked_for_in_every_config_map_that_is_mounted() {
        let spec = json!({"containers": [], "volumes": [
            {"name": "a", "configMap": {"name": "scripts"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "more"}}, {"secret": {"name": "s"}}]}},
            {"name": "c", "emptyDir": {}},
        ]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let names: Vec<&str> = mounted_config_maps(&spec).into_iter().collect();
        assert_eq!(names, ["more", "scripts"]);
    }
}
