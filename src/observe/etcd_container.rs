//! Which container of a pod runs etcd.
//!
//! The budget may name it. Otherwise signs decide, and a name is the weakest of them: charts call
//! the container after themselves, and sidecars may be called anything.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// The conventional name of etcd's container.
const ETCD: &str = "etcd";

/// The programs that run a member of etcd: etcd itself, and etcd-druid's wrapper.
const PROGRAMS: [&str; 3] = ["etcd", "start-etcd", "etcd-wrapper"];

/// Words after `etcd` with which it is no member.
const NO_MEMBER: [&str; 5] = ["grpc-proxy", "gateway", "--version", "-version", "--help"];

/// Words before a command: other programs and words of the shell that run what follows.
const BEFORE_A_COMMAND: [&str; 18] = [
    ";",
    "exec",
    "then",
    "do",
    "else",
    "if",
    "while",
    "until",
    "!",
    "{",
    "time",
    "nohup",
    "setsid",
    "command",
    "tini",
    "dumb-init",
    "--",
    "-c",
];

/// Settings that only a server of etcd has, by their flags. Tools have others in common with it,
/// such as `data-dir`.
const OF_A_SERVER: [&str; 9] = [
    "listen-client-urls",
    "listen-peer-urls",
    "advertise-client-urls",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "peer-trusted-ca-file",
    "client-cert-auth",
];

/// etcd's default port for clients.
const CLIENT_PORT: i32 = 2379;

/// The containers of a pod that may run etcd.
#[derive(Debug, Clone, PartialEq)]
pub enum EtcdContainer<'a> {
    /// The container that does.
    Certain(&'a Container),
    /// Any of these: nothing tells them apart. They are all containers of the pod that are
    /// meant to run as long as it does.
    Uncertain(Vec<&'a Container>),
}

impl<'a> EtcdContainer<'a> {
    /// The container of etcd in a pod with this spec. `named` is the container that the budget
    /// names.
    ///
    /// The signs, the strongest first: a command that runs etcd; settings of a server of etcd; the
    /// port; the name `etcd`; no other container. Where two containers run etcd, a name does not
    /// tell them apart. Native sidecars (init containers that restart) count like main containers.
    pub fn find(pod: &'a PodSpec, named: Option<&str>) -> Self {
        let all: Vec<&Container> = lasting(pod).collect();
        let by_name = |name: &str| all.iter().find(|container| container.name == name);
        if let Some(container) = named.and_then(by_name) {
            return Self::Certain(container);
        }
        let mut likely = all.clone();
        for sign in [
            |c: &Container| !is_proxy(c),
            runs_etcd,
            has_settings,
            has_port,
        ] {
            let with: Vec<_> = likely.iter().copied().filter(|c| sign(c)).collect();
            if !with.is_empty() {
                likely = with;
            }
        }
        if let [only] = likely.as_slice() {
            // A port alone may be that of a proxy beside an etcd whose settings are elsewhere.
            let is_shown = only.name == ETCD || runs_etcd(only) || has_settings(only);
            let may_be_etcd = |c: &&&Container| c.name == ETCD || c.env_from.is_some();
            let mut others = all.iter().filter(|c| c.name != only.name);
            if !is_shown && others.any(|c| may_be_etcd(&c)) {
                return Self::Uncertain(all);
            }
            return Self::Certain(only);
        }
        let several_run = likely.iter().filter(|c| runs_etcd(c)).count() > 1;
        let called_etcd = likely.iter().find(|c| c.name == ETCD);
        match called_etcd.filter(|_| !several_run) {
            Some(container) => Self::Certain(container),
            None => Self::Uncertain(all),
        }
    }

    /// The container, where it is certain.
    pub fn certain(&self) -> Option<&'a Container> {
        match self {
            Self::Certain(container) => Some(container),
            Self::Uncertain(_) => None,
        }
    }

    /// Every container that may be etcd's.
    pub fn candidates(&self) -> &[&'a Container] {
        match self {
            Self::Certain(container) => std::slice::from_ref(container),
            Self::Uncertain(all) => all,
        }
    }

    /// Whether the container of this name may be etcd's.
    pub fn may_be(&self, name: &str) -> bool {
        self.candidates().iter().any(|c| c.name == name)
    }
}

/// The container of etcd in a pod, where it is certain.
pub(super) fn of_pod<'a>(pod: &'a Pod, named: Option<&str>) -> Option<&'a Container> {
    EtcdContainer::find(pod.spec.as_ref()?, named).certain()
}

/// The containers that are meant to run as long as the pod: main containers and sidecars, which are
/// init containers that restart.
pub(super) fn lasting(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    let sidecars = pod.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    pod.containers.iter().chain(sidecars)
}

/// The words of the command line. A `;` is a word of its own where a script ends a command.
fn words(container: &Container) -> Vec<String> {
    let mut words = Vec::new();
    for item in container.command.iter().chain(&container.args).flatten() {
        if !item.contains(char::is_whitespace) {
            words.push(item.clone());
            continue;
        }
        words.push(";".to_owned());
        let script = item.replace("\\\n", " ");
        let script = script.replace(['\n', ';', '|', '&', '(', ')', '`'], " ; ");
        words.extend(script.split_whitespace().map(str::to_owned));
        words.push(";".to_owned());
    }
    words
}

/// The words after each run of etcd in the container's command.
fn runs(words: &[String]) -> impl Iterator<Item = Option<&str>> {
    let is_assignment = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let begins = move |at: usize| match at.checked_sub(1).and_then(|before| words.get(before)) {
        None => true,
        Some(before) => {
            let program = before.rsplit('/').next().unwrap_or_default();
            let is_switch = before.starts_with('-') && before.ends_with('c');
            is_switch || BEFORE_A_COMMAND.contains(&program) || is_assignment(before)
        }
    };
    words.iter().enumerate().filter_map(move |(at, word)| {
        let program = word.trim_matches(['"', '\'']).rsplit('/').next()?;
        (PROGRAMS.contains(&program) && begins(at)).then(|| words.get(at + 1).map(String::as_str))
    })
}

fn runs_etcd(container: &Container) -> bool {
    let is_member = |next: Option<&str>| !next.is_some_and(|next| NO_MEMBER.contains(&next));
    runs(&words(container)).any(is_member)
}

/// Whether etcd runs here as something else than a member, such as its proxy.
fn is_proxy(container: &Container) -> bool {
    let words = words(container);
    let is_proxy = |next: Option<&str>| matches!(next, Some("grpc-proxy" | "gateway"));
    runs(&words).any(is_proxy)
}

fn has_settings(container: &Container) -> bool {
    let words = words(container);
    let is_flag = |word: &String| {
        let flag = word.strip_prefix('-');
        let flag = flag.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        let flag = flag.map(|rest| rest.split_once('=').map_or(rest, |(name, _)| name));
        flag.is_some_and(|flag| OF_A_SERVER.contains(&flag))
    };
    let mut variables = container.env.iter().flatten();
    words.iter().any(is_flag) || variables.any(|variable| is_setting(&variable.name))
}

/// Whether the environment variable is a setting of a server of etcd.
fn is_setting(variable: &str) -> bool {
    let flag = variable.strip_prefix("ETCD_");
    let flag = flag.map(|rest| rest.to_lowercase().replace('_', "-"));
    flag.is_some_and(|flag| flag == "config-file" || OF_A_SERVER.contains(&flag.as_str()))
}

fn has_port(container: &Container) -> bool {
    let mut ports = container.ports.iter().flatten();
    ports.any(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        port.container_port == CLIENT_PORT || name == ETCD || name.contains("client")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The container of etcd in a pod with these containers, or `?`.
    fn of(containers: &Value, sidecars: &Value, named: Option<&str>) -> String {
        let pod = json!({"containers": containers, "initContainers": sidecars});
        let pod: PodSpec = serde_json::from_value(pod).unwrap();
        let found = EtcdContainer::find(&pod, named);
        match found {
            EtcdContainer::Certain(container) => container.name.clone(),
            EtcdContainer::Uncertain(all) => {
                assert_eq!(all.len(), lasting(&pod).count(), "any of them may be");
                "?".to_owned()
            }
        }
    }

    fn among(containers: &Value) -> String {
        of(containers, &json!([]), None)
    }

    #[test]
    fn the_container_is_known_by_what_it_does_before_its_name() {
        for (etcd, sidecar) in [
            (json!({"command": ["etcd"]}), json!({})),
            (json!({"command": ["/usr/local/bin/etcd"]}), json!({})),
            (json!({"command": ["sh", "-c", "A=b exec etcd"]}), json!({})),
            (
                json!({"command": ["sh", "-ec"], "args": ["set -u\nexec etcd --name x"]}),
                json!({}),
            ),
            (
                json!({"args": ["--listen-client-urls", "http://0.0.0.0:2379"]}),
                json!({}),
            ),
            (
                json!({"env": [{"name": "ETCD_INITIAL_CLUSTER", "value": "x"}]}),
                json!({}),
            ),
            (
                json!({"command": ["etcd"]}),
                json!({"command": ["etcd", "grpc-proxy", "start"]}),
            ),
            (
                json!({"command": ["etcd"]}),
                json!({"command": ["etcdctl", "watch", "etcd"]}),
            ),
            (
                json!({"command": ["etcd"]}),
                json!({"args": ["--data-dir=/d", "--initial-cluster=x"]}),
            ),
            (
                json!({"env": [{"name": "ETCD_LISTEN_PEER_URLS", "value": "x"}], "command": ["/run.sh"]}),
                json!({"command": ["sh", "-c", "echo etcd --version; etcd --version; sleep 9"]}),
            ),
        ] {
            let (mut one, mut other) = (json!({"name": "metastore"}), json!({"name": "etcd"}));
            json_patch::merge(&mut one, &etcd);
            json_patch::merge(&mut other, &sidecar);
            let both = json!([other, one]);
            assert_eq!(among(&both), "metastore", "{both}");
        }
    }

    #[test]
    fn without_other_signs_it_is_the_one_called_etcd_or_the_only_one() {
        assert_eq!(
            among(&json!([{"name": "backup-restore"}, {"name": "etcd"}])),
            "etcd"
        );
        assert_eq!(among(&json!([{"name": "main"}])), "main");
        assert_eq!(among(&json!([{"name": "main"}, {"name": "other"}])), "?");
    }

    #[test]
    fn a_port_alone_does_not_tell_a_proxy_from_an_etcd_set_up_elsewhere() {
        let port = json!([{"containerPort": 2379}]);
        let among_with =
            |other: Value| among(&json!([{"name": "tls-proxy", "ports": port}, other]));
        assert_eq!(among_with(json!({"name": "etcd"})), "?");
        let from = json!([{"configMapRef": {"name": "settings"}}]);
        assert_eq!(among_with(json!({"name": "main", "envFrom": from})), "?");
        assert_eq!(among_with(json!({"name": "backup"})), "tls-proxy");
        let called_so = json!([{"name": "etcd", "ports": port}, {"name": "main", "envFrom": from}]);
        assert_eq!(among(&called_so), "etcd");
    }

    #[test]
    fn of_two_that_run_etcd_neither_is_certain_and_the_budget_decides() {
        let both = json!([
            {"name": "etcd", "command": ["etcd", "--initial-cluster=a"]},
            {"name": "etcd-events", "command": ["etcd", "--initial-cluster=b"]},
        ]);
        assert_eq!(among(&both), "?");
        assert_eq!(of(&both, &json!([]), Some("etcd-events")), "etcd-events");
        assert_eq!(of(&both, &json!([]), Some("nobody")), "?");
    }

    #[test]
    fn a_native_sidecar_may_be_etcds_and_another_init_container_not() {
        let backup = json!([{"name": "backup", "command": ["sleep", "9"]}]);
        let init =
            |policy: Value| json!([{"name": "etcd", "command": ["etcd"], "restartPolicy": policy}]);
        assert_eq!(of(&backup, &init(json!("Always")), None), "etcd");
        assert_eq!(of(&backup, &init(Value::Null), None), "backup");
        let unknown = json!([{"name": "mesh", "restartPolicy": "Always"}]);
        assert_eq!(of(&json!([{"name": "main"}]), &unknown, None), "?");
    }
}
