//! Whether a template switches TLS between members on or off. Members with TLS do not talk to
//! members without it. So unless somebody changes the peer URLs one by one, as etcd-druid's sidecar
//! does when it switches TLS on, such a change cannot be rolled out member by member.
//!
//! The answer comes from the peer URLs with which etcd's container is started. If they are in a
//! configuration file, as etcd-druid's are, the change is not noticed.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::quorum::Switch;

/// The flag and the variable with the peer URLs.
const FLAG: &str = "--listen-peer-urls";
const VARIABLE: &str = "ETCD_LISTEN_PEER_URLS";

/// The switch from the running pods to the template, if there is one.
pub(super) fn switched(set: &StatefulSet, pods: &[Pod]) -> Option<Switch> {
    let template = set.spec.as_ref()?.template.spec.as_ref()?;
    let wanted = uses_tls(template)?;
    let mut running = pods.iter().filter_map(|pod| uses_tls(pod.spec.as_ref()?));
    running
        .any(|now| now != wanted)
        .then_some(if wanted { Switch::On } else { Switch::Off })
}

fn uses_tls(pod: &PodSpec) -> Option<bool> {
    pod.containers.iter().find_map(|container| {
        let urls = by_flag(container).or_else(|| by_variable(container))?;
        Some(
            urls.trim_start_matches(['"', '\'', '=', ' '])
                .starts_with("https://"),
        )
    })
}

/// The peer URLs in the arguments, or in a script that is one of them.
fn by_flag(container: &Container) -> Option<&str> {
    let words = container.command.iter().chain(&container.args).flatten();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(at) = word.find(FLAG) else {
            continue;
        };
        let rest = word.get(at + FLAG.len()..).unwrap_or_default();
        return if rest.is_empty() {
            words.peek().map(|next| next.as_str())
        } else {
            Some(rest)
        };
    }
    None
}

fn by_variable(container: &Container) -> Option<&str> {
    let variables = container.env.as_deref().unwrap_or_default();
    let variable = variables.iter().find(|variable| variable.name == VARIABLE);
    variable?.value.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(container: &Value) -> Value {
        let mut full = json!({"name": "etcd", "image": "etcd"});
        json_patch::merge(&mut full, container);
        json!({"containers": [full]})
    }

    fn between(template: &Value, pod: &Value) -> Option<Switch> {
        let set = serde_json::from_value(json!({"spec": {
            "selector": {}, "serviceName": "etcd", "template": {"spec": with(template)},
        }}));
        let pod = serde_json::from_value(json!({"spec": with(pod)}));
        switched(&set.unwrap(), &[pod.unwrap()])
    }

    #[test]
    fn a_switch_is_seen_in_flags_in_scripts_and_in_variables() {
        let plain = [
            json!({"args": ["--listen-peer-urls=http://0.0.0.0:2380"]}),
            json!({"command": ["etcd", "--listen-peer-urls", "http://0.0.0.0:2380"]}),
            json!({"command": ["sh", "-c", "exec etcd --listen-peer-urls=http://$(POD_IP):2380 --name x"]}),
            json!({"env": [{"name": "ETCD_LISTEN_PEER_URLS", "value": "http://0.0.0.0:2380"}]}),
        ];
        for before in plain {
            let text = before.to_string().replace("http://", "https://");
            let after: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(between(&after, &before), Some(Switch::On), "{before}");
            assert_eq!(between(&before, &after), Some(Switch::Off), "{before}");
            assert_eq!(between(&before, &before), None, "{before}");
        }
    }

    #[test]
    fn an_unknown_setting_is_no_switch() {
        let hidden = json!({"args": ["--config-file=/etc/etcd.yaml"]});
        let plain = json!({"args": ["--listen-peer-urls=http://0.0.0.0:2380"]});
        assert_eq!(between(&hidden, &plain), None);
        assert_eq!(between(&plain, &hidden), None);
    }
}
