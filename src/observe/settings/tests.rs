use serde_json::{Value, json};

use super::*;

fn told(container: &Value, name: &str) -> Option<String> {
    let mut whole = json!({"name": "etcd"});
    json_patch::merge(&mut whole, container);
    let container: Container = serde_json::from_value(whole).unwrap();
    Settings::from_container(&container)
        .get(name)
        .map(|s| s.value)
}

#[test]
fn a_setting_is_found_however_it_is_written() {
    for container in [
        json!({"args": ["--cert-file=/tls/a.crt"]}),
        json!({"args": ["-cert-file=/tls/a.crt"]}),
        json!({"command": ["etcd", "--cert-file", "/tls/a.crt"]}),
        json!({"command": ["sh", "-c", "exec etcd --name x \\\n  --cert-file=\"/tls/a.crt\" \\\n --data-dir=/d"]}),
        json!({"command": ["sh", "-c", "etcd --cert-file '/tls/a.crt'; echo ended"]}),
        json!({"env": [{"name": "ETCD_CERT_FILE", "value": "/tls/a.crt"}]}),
        json!({"args": ["--cert-file=$(DIR)/a.crt"], "env": [{"name": "DIR", "value": "/tls"}]}),
        json!({"command": ["sh", "-c", "etcd --cert-file=${DIR}/a.crt"], "env": [{"name": "DIR", "value": "/tls"}]}),
        json!({"command": ["sh", "-c", "etcd --cert-file=$DIR/a.crt"], "env": [{"name": "DIR", "value": "/tls"}]}),
        // A flag takes precedence over a variable.
        json!({"args": ["--cert-file=/tls/a.crt"], "env": [{"name": "ETCD_CERT_FILE", "value": "/other"}]}),
    ] {
        let value = told(&container, "cert-file");
        assert_eq!(value.as_deref(), Some("/tls/a.crt"), "{container}");
    }
}

#[test]
fn another_setting_is_not_taken_for_it() {
    for container in [
        json!({}),
        json!({"args": ["--peer-cert-file=/tls/a.crt"]}),
        json!({"args": ["--cert-file-name=/tls/a.crt"]}),
        json!({"args": ["--cert-file"]}),
        json!({"args": ["--cert-file="]}),
        json!({"env": [{"name": "ETCD_PEER_CERT_FILE", "value": "/tls/a.crt"}]}),
        json!({"env": [{"name": "ETCD_CERT_FILE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}),
        json!({"env": [{"name": "ETCD_CERT_FILE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}),
    ] {
        assert_eq!(told(&container, "cert-file"), None, "{container}");
    }
}

#[test]
fn a_switch_is_on_alone_or_when_it_says_so() {
    for (container, on) in [
        (json!({"args": ["--client-cert-auth", "--name=x"]}), true),
        (json!({"args": ["--client-cert-auth=true"]}), true),
        (json!({"args": ["--client-cert-auth=false"]}), false),
        (json!({"args": ["--peer-client-cert-auth"]}), false),
        (
            json!({"env": [{"name": "ETCD_CLIENT_CERT_AUTH", "value": "true"}]}),
            true,
        ),
        (
            json!({"args": ["--client-cert-auth=false"], "env": [{"name": "ETCD_CLIENT_CERT_AUTH", "value": "true"}]}),
            false,
        ),
        (json!({}), false),
    ] {
        let mut whole = json!({"name": "etcd"});
        json_patch::merge(&mut whole, &container);
        let whole: Container = serde_json::from_value(whole).unwrap();
        assert_eq!(
            Settings::from_container(&whole).is_on("client-cert-auth"),
            on,
            "{container}"
        );
    }
}

#[test]
fn references_to_unknown_names_stay_as_they_are() {
    for text in ["$(NOBODY)/a", "a$", "${", "$(", "$$", "100%"] {
        assert_eq!(expanded(text, &BTreeMap::new()), text);
    }
}

/// The settings of the only container of a pod, with these objects read.
fn read(container: &Value, volumes: &Value, objects: &[(&str, Value)]) -> Settings {
    let mut whole = json!({"name": "etcd"});
    json_patch::merge(&mut whole, container);
    let pod = json!({"containers": [whole], "volumes": volumes});
    let pod: PodSpec = serde_json::from_value(pod).unwrap();
    let mut contents = Contents::default();
    for (name, data) in objects {
        let object = json!({"data": data});
        contents.add_config_map(name, serde_json::from_value(object).unwrap());
    }
    Settings::read(&pod.containers[0], &pod, &contents)
}

#[test]
fn variables_come_from_objects_and_fields_and_refer_to_those_before_them() {
    let container = json!({
        "command": ["etcd", "--advertise-client-urls=$(URLS)"],
        "envFrom": [{"configMapRef": {"name": "env"}}, {"prefix": "ETCD_", "configMapRef": {"name": "bare"}}],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "PORT", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "PORT"}}},
            {"name": "URLS", "value": "https://$(POD).$(SERVICE).$(NS).svc:$(PORT)"},
        ],
    });
    let objects = [
        ("env", json!({"SERVICE": "etcd", "PORT": "4001"})),
        ("bare", json!({"CERT_FILE": "/tls/a.crt"})),
    ];
    let settings = read(&container, &json!([]), &objects);
    let get = |name| settings.get(name).map(|s| s.value);
    let urls = "https://{pod}.etcd.{namespace}.svc:4001";
    assert_eq!(get("advertise-client-urls").as_deref(), Some(urls));
    assert_eq!(get("cert-file").as_deref(), Some("/tls/a.crt"));
    let unread = read(&container, &json!([]), &[]);
    assert_eq!(unread.get("cert-file"), None);
}

#[test]
fn a_script_sets_variables_and_may_be_in_a_config_map() {
    let script = "#!/bin/sh\nset -eu\nSCHEME=https PORT=${PORT:-4001}\nexport DIR=/tls\nexec etcd --name \"$HOSTNAME\" \\\n  --listen-client-urls \"${SCHEME}://0.0.0.0:${PORT}\" --cert-file=${DIR}/a.crt\n";
    let inline = json!({"command": ["sh", "-c", script]});
    let mounted = json!({
        "command": ["/scripts/run.sh"],
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    });
    let volumes = json!([{"name": "scripts", "configMap": {"name": "scripts"}}]);
    let objects = [("scripts", json!({"run.sh": script}))];
    for container in [inline, mounted] {
        let settings = read(&container, &volumes, &objects);
        let get = |name| settings.get(name).map(|s| s.value);
        let urls = get("listen-client-urls");
        assert_eq!(urls.as_deref(), Some("https://0.0.0.0:4001"), "{container}");
        assert_eq!(get("cert-file").as_deref(), Some("/tls/a.crt"));
        assert_eq!(get("name").as_deref(), Some("{pod}"));
    }
}

#[test]
fn a_configuration_file_of_a_config_map_replaces_flags_and_variables() {
    let file = "name: x\nlisten-client-urls: https://0.0.0.0:4001\nadvertise-client-urls:\n  etcd-0: [https://a:1, https://b:1]\nclient-transport-security:\n  cert-file: /tls/a.crt\n  client-cert-auth: true\npeer-transport-security:\n  cert-file: /tls/peer.crt\n";
    let container = json!({
        "args": ["--config-file=/etc/etcd/etcd.yaml", "--cert-file=/other"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/etcd"}],
    });
    let volumes = json!([{"name": "config", "configMap": {"name": "config"}}]);
    let known = read(
        &container,
        &volumes,
        &[("config", json!({"etcd.yaml": file}))],
    );
    let get = |name| known.get(name).map(|s| s.value);
    assert_eq!(get("cert-file").as_deref(), Some("/tls/a.crt"));
    assert_eq!(
        get("advertise-client-urls").as_deref(),
        Some("https://a:1,https://b:1")
    );
    assert!(known.is_on("client-cert-auth") && known.unread_file().is_none());

    let unread = read(&container, &volumes, &[]);
    let said = unread.unread_file().map(|file| file.told_by.clone());
    assert_eq!(said.as_deref(), Some("--config-file=/etc/etcd/etcd.yaml"));
    assert_eq!(unread.get("cert-file").unwrap().value, "/other");
}

#[test]
fn references_that_grow_end() {
    let mut env = vec![json!({"name": "V0", "value": "aaaaaaaaaaaaaaaa"})];
    for n in 1..20 {
        let twice = format!("$(V{0})$(V{0})$(V{0})$(V{0})", n - 1);
        env.push(json!({"name": format!("V{n}"), "value": twice}));
    }
    let settings = read(&json!({"env": env}), &json!([]), &[]);
    assert!(settings.env("V19").unwrap().value.len() <= LONGEST);
}
