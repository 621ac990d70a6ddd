//! The changes of a container by which etcd joins a cluster and starts none:
//! `initial-cluster-state` is `existing`, and `initial-cluster` names the members that etcd lists.
//!
//! A flag takes precedence over a variable, so the flag is changed where there is one. It may be a
//! word of its own, with the value in it or after it, or stand in a script. Where the value is a
//! variable of the container, the variable is changed.

use k8s_openapi::api::core::v1::{Container, EnvVar};
use strum::IntoStaticStr;

use super::settings::Settings;

const FLAG: &str = "initial-cluster-state";
const VARIABLE: &str = "ETCD_INITIAL_CLUSTER_STATE";
const CLUSTER_FLAG: &str = "initial-cluster";
const CLUSTER_VARIABLE: &str = "ETCD_INITIAL_CLUSTER";

const ALONE_VARIABLE: &str = "ETCD_FORCE_NEW_CLUSTER";

/// The value by which a member joins.
const JOINING: &str = "existing";

/// A change of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A word of the command line becomes another one.
    Word {
        /// The list that has the word.
        list: List,
        /// The index of the word.
        at: usize,
        /// The new word.
        word: String,
    },
    /// An environment variable has another value.
    Variable {
        /// The index of the variable. `None` if it is new.
        at: Option<usize>,
        /// The name of the variable.
        name: String,
        /// The new value.
        value: String,
    },
}

impl Change {
    /// Makes the change.
    pub fn apply(&self, container: &mut Container) {
        match self {
            Self::Word { list, at, word } => {
                let words = match list {
                    List::Command => &mut container.command,
                    List::Args => &mut container.args,
                };
                if let Some(place) = words.as_mut().and_then(|words| words.get_mut(*at)) {
                    place.clone_from(word);
                }
            }
            Self::Variable { at, name, value } => {
                let variable = EnvVar {
                    name: name.clone(),
                    value: Some(value.clone()),
                    value_from: None,
                };
                let env = container.env.get_or_insert_default();
                match at.and_then(|at| env.get_mut(at)) {
                    Some(place) => *place = variable,
                    None => env.push(variable),
                }
            }
        }
    }
}

/// A list of words in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum List {
    /// `command`
    Command,
    /// `args`
    Args,
}

/// The change by which a member joins, if one is needed. The error says for people why the setting
/// cannot be changed.
pub fn joining(container: &Container) -> Result<Option<Change>, String> {
    setting(container, (FLAG, VARIABLE), JOINING)
}

/// The change by which `initial-cluster` says this, if one is needed.
pub fn joining_those(container: &Container, members: &str) -> Result<Option<Change>, String> {
    setting(container, (CLUSTER_FLAG, CLUSTER_VARIABLE), members)
}

/// The change by which etcd starts as the only member, with what it has, if one is needed.
pub fn starting_alone(container: &Container) -> Result<Option<Change>, String> {
    let settings = Settings::from_container(container);
    if let Some(file) = settings.file() {
        return Err(format!("its settings are in a file ({})", file.told_by));
    }
    let known = position(container, ALONE_VARIABLE);
    let change = of_variable(container, known, ALONE_VARIABLE, "true");
    let mut after = container.clone();
    if let Some(change) = &change {
        change.apply(&mut after);
    }
    if !Settings::from_container(&after).forces_new_cluster() {
        return Err("its command line has --force-new-cluster=false".to_owned());
    }
    Ok(change)
}

/// Whether the member finds the others by one of etcd's ways of discovery, which excludes
/// `initial-cluster`.
pub fn finds_others_elsewhere(container: &Container) -> bool {
    let settings = Settings::from_container(container);
    let ways = [
        "discovery",
        "discovery-srv",
        "discovery-token",
        "discovery-endpoints",
    ];
    ways.iter().any(|name| settings.get(name).is_some())
}

/// The change by which a setting of etcd has the value `wanted`.
fn setting(
    container: &Container,
    (flag, default): (&str, &str),
    wanted: &str,
) -> Result<Option<Change>, String> {
    let words = |list, words: &Option<Vec<String>>| {
        let words = words.clone().unwrap_or_default().into_iter();
        words.enumerate().map(move |(at, word)| (list, at, word))
    };
    let command = words(List::Command, &container.command);
    let all: Vec<_> = command.chain(words(List::Args, &container.args)).collect();
    for (n, (list, at, word)) in all.iter().enumerate() {
        let changed = |word: String| Change::Word {
            list: *list,
            at: *at,
            word,
        };
        let Some((before, after)) = split_at_flag(word, flag) else {
            continue;
        };
        let (gap, rest) = match after.chars().next() {
            Some('=') => after.split_at(1),
            Some(c) if c.is_whitespace() || c == '\\' => {
                let value = after.find(|c: char| !c.is_whitespace() && c != '\\');
                after.split_at(value.unwrap_or(after.len()))
            }
            None if before.chars().all(|c| c == '-') => {
                let Some((list, at, value)) = all.get(n + 1) else {
                    return Err(format!("--{flag} has no value"));
                };
                let word = wanted.to_owned();
                let (list, at) = (*list, *at);
                return Ok((value != wanted).then_some(Change::Word { list, at, word }));
            }
            Some(_) | None => continue,
        };
        let quote: &[char] = &['"', '\''];
        let opened = rest.len() - rest.trim_start_matches(quote).len();
        let (open, rest) = rest.split_at(opened);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '&' | '|');
        let (value, tail) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        let given = |value: &str| format!("{before}{flag}{gap}{open}{value}{tail}");
        let is_script = before.contains(char::is_whitespace);
        return if value == wanted {
            Ok(None)
        } else if !is_script || !value.contains(['$', '`']) {
            Ok(Some(changed(given(wanted))))
        } else {
            let at = variable(container, value)
                .ok_or_else(|| format!("its script says --{flag}={value}"))?;
            Ok(of_variable(container, Some(at), default, wanted))
        };
    }
    let settings = Settings::from_container(container);
    if let Some(file) = settings.file() {
        return Err(format!("its settings are in a file ({})", file.told_by));
    }
    let known = position(container, default);
    Ok(of_variable(container, known, default, wanted))
}

/// The change of a variable, or of a new one of the name `default`.
fn of_variable(
    container: &Container,
    at: Option<usize>,
    default: &str,
    wanted: &str,
) -> Option<Change> {
    let known = at.and_then(|at| container.env.as_ref()?.get(at));
    let is_so = known.is_some_and(|known| known.value.as_deref() == Some(wanted));
    (!is_so).then(|| Change::Variable {
        at,
        name: known.map_or_else(|| default.to_owned(), |known| known.name.clone()),
        value: wanted.to_owned(),
    })
}

/// The effect of a start without data, by the settings of etcd's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialState {
    /// The member joins a cluster.
    Existing,
    /// The member starts a cluster, as on its first day: `new` is etcd's default.
    New,
    /// A file, a script or another object decides.
    Unread,
}

/// The effect by the settings of this container.
pub(super) fn initial_state(container: &Container) -> InitialState {
    let change = match joining(container) {
        Ok(None) => return InitialState::Existing,
        Ok(Some(change)) => change,
        Err(_) => return InitialState::Unread,
    };
    // A script may set the variable under a condition.
    if let Change::Variable { name, .. } = &change
        && is_set_by_script(container, name)
    {
        return InitialState::Unread;
    }
    let told = Settings::from_container(container).get(FLAG);
    match told.as_ref().map(|setting| setting.value.as_str()) {
        Some(JOINING) => InitialState::Existing,
        Some("new") => InitialState::New,
        None if container.env_from.is_none() && position(container, VARIABLE).is_none() => {
            InitialState::New
        }
        Some(_) | None => InitialState::Unread,
    }
}

fn is_set_by_script(container: &Container, variable: &str) -> bool {
    let sets = format!("{variable}=");
    let mut words = container.command.iter().chain(&container.args).flatten();
    words.any(|word| word.contains(char::is_whitespace) && word.contains(&sets))
}

/// The parts of a word before and after the name of the flag.
fn split_at_flag<'w>(word: &'w str, flag: &str) -> Option<(&'w str, &'w str)> {
    let dashed = format!("-{flag}");
    let places = word.match_indices(&dashed);
    let mut parts = places.map(|(at, _)| {
        let (before, rest) = word.split_at(at + 1);
        (before, rest.get(flag.len()..).unwrap_or_default())
    });
    // Longer names begin with it.
    let ends = |after: &str| !after.starts_with(|c: char| c == '-' || c.is_ascii_alphanumeric());
    parts.find(|(_, after)| ends(after))
}

/// The container's variable that a script names for the value.
fn variable(container: &Container, value: &str) -> Option<usize> {
    let name = value
        .trim_start_matches('$')
        .trim_matches(['{', '}', '(', ')']);
    value.starts_with('$').then(|| position(container, name))?
}

fn position(container: &Container, name: &str) -> Option<usize> {
    let mut variables = container.env.iter().flatten();
    variables.position(|variable| variable.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(fields: &Value) -> Container {
        let mut whole = json!({"name": "etcd"});
        json_patch::merge(&mut whole, fields);
        serde_json::from_value(whole).unwrap()
    }

    /// The command line and the variables after the change. `None` if nothing changes.
    fn changed(fields: &Value) -> Option<Value> {
        let mut after = container(fields);
        joining(&after).unwrap()?.apply(&mut after);
        assert_eq!(joining(&after), Ok(None), "{after:?}");
        let mut after = json!(after);
        after.as_object_mut().unwrap().remove("name");
        Some(after)
    }

    #[test]
    fn the_members_are_named_however_they_are_written_and_the_state_is_left_alone() {
        let those = "a=http://a:2380,b=http://b:2380";
        for (before, after) in [
            (
                json!({"args": ["--initial-cluster-state=new", "--initial-cluster=a=http://a:2380"]}),
                json!({"args": ["--initial-cluster-state=new", format!("--initial-cluster={those}")]}),
            ),
            (
                json!({"args": ["--initial-cluster", "$(POD)=http://$(POD).$(SVC):2380"]}),
                json!({"args": ["--initial-cluster", those]}),
            ),
            (
                json!({"command": ["sh", "-c", "etcd --initial-cluster-state new --initial-cluster a=http://a:2380 --name=$P"]}),
                json!({"command": ["sh", "-c", format!("etcd --initial-cluster-state new --initial-cluster {those} --name=$P")]}),
            ),
            (
                json!({"command": ["sh", "-c", "etcd --initial-cluster=$C"], "env": [{"name": "C", "value": "a"}]}),
                json!({"command": ["sh", "-c", "etcd --initial-cluster=$C"], "env": [{"name": "C", "value": those}]}),
            ),
            (
                json!({"args": ["--initial-cluster-token=a"]}),
                json!({"args": ["--initial-cluster-token=a"], "env": [{"name": CLUSTER_VARIABLE, "value": those}]}),
            ),
        ] {
            let mut changed = container(&before);
            let change = joining_those(&changed, those).unwrap().unwrap();
            change.apply(&mut changed);
            assert_eq!(changed, container(&after));
            assert_eq!(joining_those(&changed, those), Ok(None));
        }
        let script = json!({"command": ["sh", "-c", "c=$(all); etcd --initial-cluster=\"$c\""]});
        let said = joining_those(&container(&script), those).unwrap_err();
        assert!(
            said.contains("its script says --initial-cluster="),
            "{said}"
        );
    }

    #[test]
    fn the_state_is_set_however_it_is_written() {
        let script = |text: &str| json!({"command": ["sh", "-c", text]});
        for (before, after) in [
            (
                json!({"args": ["--initial-cluster-state=new", "--name=a"]}),
                json!({"args": ["--initial-cluster-state=existing", "--name=a"]}),
            ),
            (
                json!({"command": ["etcd", "-initial-cluster-state", "new"]}),
                json!({"command": ["etcd", "-initial-cluster-state", "existing"]}),
            ),
            (
                json!({"command": ["etcd", "--initial-cluster-state"], "args": ["$(STATE)"]}),
                json!({"command": ["etcd", "--initial-cluster-state"], "args": ["existing"]}),
            ),
            (
                json!({"args": ["--initial-cluster-state=$(STATE)"]}),
                json!({"args": ["--initial-cluster-state=existing"]}),
            ),
            (
                script("exec etcd --initial-cluster-state new \\\n --name=a"),
                script("exec etcd --initial-cluster-state existing \\\n --name=a"),
            ),
            (
                script("etcd --initial-cluster-state=\"new\"; echo new"),
                script("etcd --initial-cluster-state=\"existing\"; echo new"),
            ),
            (
                json!({"command": ["sh", "-c", "etcd --initial-cluster-state=${S}"], "env": [{"name": "S", "value": "new"}]}),
                json!({"command": ["sh", "-c", "etcd --initial-cluster-state=${S}"], "env": [{"name": "S", "value": "existing"}]}),
            ),
            (
                json!({"env": [{"name": "A", "value": "b"}, {"name": "ETCD_INITIAL_CLUSTER_STATE", "value": "new"}]}),
                json!({"env": [{"name": "A", "value": "b"}, {"name": "ETCD_INITIAL_CLUSTER_STATE", "value": "existing"}]}),
            ),
            (
                json!({"args": ["--initial-cluster=a=b"]}),
                json!({"args": ["--initial-cluster=a=b"], "env": [{"name": "ETCD_INITIAL_CLUSTER_STATE", "value": "existing"}]}),
            ),
        ] {
            if before["command"][2]
                .as_str()
                .is_some_and(|s| s.contains("${S}"))
            {
                let change = joining(&container(&before)).unwrap().unwrap();
                let expected = Change::Variable {
                    at: Some(0),
                    name: "S".into(),
                    value: JOINING.into(),
                };
                assert_eq!(change, expected, "{after}");
                continue;
            }
            assert_eq!(changed(&before), Some(after), "{before}");
        }
    }

    #[test]
    fn what_is_set_already_stays() {
        for fields in [
            json!({"args": ["--initial-cluster-state=existing"]}),
            json!({"args": ["--initial-cluster-state", "existing"]}),
            json!({"command": ["sh", "-c", "etcd --initial-cluster-state='existing' --name=a"]}),
            json!({"env": [{"name": "ETCD_INITIAL_CLUSTER_STATE", "value": "existing"}]}),
        ] {
            assert_eq!(changed(&fields), None, "{fields}");
        }
    }

    #[test]
    fn where_it_cannot_be_set_the_reason_is_said() {
        for (fields, words) in [
            (
                json!({"args": ["--config-file=/etc/etcd.yaml"]}),
                "in a file",
            ),
            (
                json!({"command": ["sh", "-c", "s=new; etcd --initial-cluster-state=$s"]}),
                "its script says",
            ),
            (json!({"args": ["--initial-cluster-state"]}), "has no value"),
        ] {
            let said = joining(&container(&fields)).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_start_without_data_is_told_by_flags_variables_and_the_default() {
        use InitialState::{Existing, New, Unread};
        let script = |text: &str| json!(["sh", "-c", text]);
        let state = |from: &Value| json!([from]);
        let set = |value: &str| state(&json!({"name": "S", "value": value}));
        let of_object = json!({"configMapKeyRef": {"name": "a", "key": "b"}});
        let unread = state(&json!({"name": "S", "valueFrom": of_object}));
        let own = json!([{"name": VARIABLE, "valueFrom": of_object}]);
        for (fields, expected) in [
            (json!({}), New),
            (json!({"args": ["--initial-cluster-state=new"]}), New),
            (
                json!({"args": ["--initial-cluster-state", "existing"]}),
                Existing,
            ),
            (json!({"env": [{"name": VARIABLE, "value": "new"}]}), New),
            (
                json!({"env": [{"name": VARIABLE, "value": "existing"}]}),
                Existing,
            ),
            (json!({"env": own}), Unread),
            (
                json!({"envFrom": [{"configMapRef": {"name": "a"}}]}),
                Unread,
            ),
            (json!({"args": ["--config-file=/etc/etcd.yaml"]}), Unread),
            (
                json!({"args": ["--initial-cluster-state=$(S)"], "env": set("new")}),
                New,
            ),
            (
                json!({"args": ["--initial-cluster-state=$(S)"], "env": set("existing")}),
                Existing,
            ),
            (
                json!({"args": ["--initial-cluster-state=$(S)"], "env": unread}),
                Unread,
            ),
            (json!({"command": script("exec etcd --name=a")}), New),
            (
                json!({"command": script("etcd --initial-cluster-state=$S"), "env": set("existing")}),
                Existing,
            ),
            (
                json!({"command": script("S=x; etcd --initial-cluster-state=$S"), "env": set("new")}),
                Unread,
            ),
            (
                json!({"command": script("S=$(a); etcd --initial-cluster-state=$S")}),
                Unread,
            ),
            (
                json!({"command": script(&format!("test -e a && export {VARIABLE}=existing; etcd"))}),
                Unread,
            ),
        ] {
            assert_eq!(initial_state(&container(&fields)), expected, "{fields}");
        }
    }

    /// After the change by the webhook each container joins.
    #[test]
    fn a_container_whose_variable_was_set_joins() {
        let set = json!([{"name": "S", "value": JOINING}]);
        let script = json!(["sh", "-c", "etcd --initial-cluster-state=${S}"]);
        let changed = container(&json!({"command": script, "env": set}));
        assert_eq!(initial_state(&changed), InitialState::Existing);
    }
}
