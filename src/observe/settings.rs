//! The settings of a container: on its command line, in its variables, in its scripts, and in a
//! configuration file.
//!
//! A flag takes precedence over a variable, as in etcd. Words of a script are read like arguments.
//! With a configuration file etcd ignores flags and variables. Where the file can be read, so does
//! this module. What other objects hold is known only as far as they were read ([`Contents`]).
//!
//! What differs from pod to pod stands for itself in braces: `{pod}`, `{namespace}` and
//! `{address}`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde_json::Value;

use super::contents::{Contents, Object, Place};
use super::mounts::behind;
use crate::api::EtcdDirectories;

/// Most characters of an expanded value. References within references could make it longer
/// without end.
const LONGEST: usize = 4096;

/// The settings of one container.
#[derive(Debug)]
pub(super) struct Settings {
    words: Vec<String>,
    variables: BTreeMap<String, String>,
    /// The settings in the configuration file, and the name of the file. `None` inside means that
    /// the file was not read.
    file: Option<(Setting, Option<BTreeMap<String, String>>)>,
}

/// A setting and its source, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The value.
    pub(super) value: String,
    /// The flag or the variable, with the value.
    pub(super) told_by: String,
}

impl Settings {
    /// The settings that the container itself states.
    pub(super) fn from_container(container: &Container) -> Self {
        let mut settings = Self::without_file(container, None, &Contents::default());
        settings.file = settings.stated("config-file").map(|file| (file, None));
        settings
    }

    /// The settings of a container of this pod, with what other objects hold.
    pub(super) fn read(container: &Container, pod: &PodSpec, contents: &Contents) -> Self {
        let mut settings = Self::without_file(container, Some(pod), contents);
        settings.file = settings.stated("config-file").map(|file| {
            let place = behind(&file.value, container, pod).ok();
            let text = place.and_then(|place| contents.text(&place));
            (file, text.and_then(in_file))
        });
        settings
    }

    fn without_file(container: &Container, pod: Option<&PodSpec>, contents: &Contents) -> Self {
        let mut variables = variables(container, contents);
        let mut words = Vec::new();
        for item in container.command.iter().chain(&container.args).flatten() {
            take_in(item, &mut variables, &mut words);
            let place = pod.and_then(|pod| behind(item, container, pod).ok());
            let script = place.and_then(|place| contents.text(&place));
            if let Some(script) = script {
                take_in(&format!("{script}\n"), &mut variables, &mut words);
            }
        }
        Self {
            words,
            variables,
            file: None,
        }
    }

    /// Settings from the text of a configuration file, if it has any for clients of etcd.
    pub(super) fn of_file(text: &str, told_by: &str) -> Option<Self> {
        let known = in_file(text)?;
        known.contains_key("listen-client-urls").then(|| Self {
            words: Vec::new(),
            variables: BTreeMap::new(),
            file: Some((
                Setting {
                    value: told_by.to_owned(),
                    told_by: told_by.to_owned(),
                },
                Some(known),
            )),
        })
    }

    /// The value of a setting, given by its flag without dashes: `cert-file`.
    pub(super) fn get(&self, name: &str) -> Option<Setting> {
        match &self.file {
            Some((file, Some(known))) => known.get(name).map(|value| Setting {
                told_by: format!("{name}: {value} in {}", file.value),
                value: value.clone(),
            }),
            Some((_, None)) | None => self.stated(name),
        }
    }

    /// etcd's directories. `None` where nothing says where the data is: the settings do not, or a
    /// configuration file counts that was not read.
    pub(super) fn directories(&self) -> Option<EtcdDirectories> {
        let value = |name| self.get(name).map(|setting| setting.value);
        let is_told = self.unread_file().is_none();
        is_told
            .then(|| value("data-dir"))
            .flatten()
            .map(|data| EtcdDirectories {
                data,
                wal: value("wal-dir"),
                variables: BTreeMap::new(),
            })
    }

    /// A text with the values of the container's variables in it, and of these others.
    pub(super) fn expand(&self, text: &str, others: &BTreeMap<String, String>) -> String {
        let mut known = others.clone();
        known.extend(self.variables.clone());
        expanded(text, &known)
    }

    /// The variables of this container that a text names, and their values.
    pub(super) fn named_in(&self, text: &str) -> BTreeMap<String, String> {
        let named = |name: &str| text.contains(&format!("$({name})"));
        let known = self.variables.iter().filter(|(name, _)| named(name));
        known
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The value of an environment variable, which need not be etcd's.
    pub(super) fn env(&self, name: &str) -> Option<Setting> {
        let value = unquoted(self.variables.get(name)?);
        let told_by = format!("{name}={value}");
        (!value.is_empty()).then_some(Setting { value, told_by })
    }

    /// Whether a switch is on. A switch without a value is on, as in Go.
    pub(super) fn is_on(&self, name: &str) -> bool {
        if let Some((_, Some(known))) = &self.file {
            return known.get(name).is_some_and(|value| is_true(value));
        }
        // The last one counts.
        let given = self.words.iter().rev().find_map(|word| {
            let rest = dashless(word)?.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                Some(value) => Some(is_true(&unquoted(value))),
                None => rest.is_empty().then_some(true),
            }
        });
        let by_variable = || {
            self.env(&variable_of(name))
                .is_some_and(|s| is_true(&s.value))
        };
        given.unwrap_or_else(by_variable)
    }

    /// Whether etcd makes a new cluster of its data.
    pub(super) fn forces_new_cluster(&self) -> bool {
        self.is_on("force-new-cluster")
    }

    /// The configuration file, which replaces flags and variables.
    pub(super) fn file(&self) -> Option<&Setting> {
        self.file.as_ref().map(|(file, _)| file)
    }

    /// The configuration file, where it was not read.
    pub(super) fn unread_file(&self) -> Option<&Setting> {
        self.file().filter(|_| matches!(self.file, Some((_, None))))
    }

    /// The setting by flag or variable, whatever a file says.
    fn stated(&self, name: &str) -> Option<Setting> {
        self.flag(name).or_else(|| self.env(&variable_of(name)))
    }

    /// The value of a flag, which need not be etcd's.
    pub(super) fn flag(&self, name: &str) -> Option<Setting> {
        flag(&self.words, name)
    }
}

/// Whether Go takes the word for true.
fn is_true(word: &str) -> bool {
    matches!(word, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// The value of a flag among these words.
pub(super) fn flag(words: &[String], name: &str) -> Option<Setting> {
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(rest) = dashless(word).and_then(|word| word.strip_prefix(name)) else {
            continue;
        };
        let value = match rest.strip_prefix('=') {
            Some(value) => unquoted(value),
            None if rest.is_empty() => (*words.peek()?).clone(),
            None => continue,
        };
        let told_by = format!("--{name}={value}");
        return (!value.is_empty()).then_some(Setting { value, told_by });
    }
    None
}

/// The variables that a container starts with. Each may refer to those before it.
fn variables(container: &Container, contents: &Contents) -> BTreeMap<String, String> {
    // Kubernetes sets the host name to that of the pod.
    let mut known = BTreeMap::from([("HOSTNAME".to_owned(), "{pod}".to_owned())]);
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let map = from
            .config_map_ref
            .as_ref()
            .map(|map| Object::config_map(&map.name));
        let secret = from
            .secret_ref
            .as_ref()
            .map(|secret| Object::secret(&secret.name));
        for (key, value) in map
            .or(secret)
            .iter()
            .flat_map(|object| contents.texts(object))
        {
            known.insert(format!("{prefix}{key}"), value.to_owned());
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, &known, contents) {
            known.insert(variable.name.clone(), value);
        }
    }
    known
}

fn value_of(
    variable: &EnvVar,
    known: &BTreeMap<String, String>,
    contents: &Contents,
) -> Option<String> {
    if let Some(value) = &variable.value {
        return Some(expanded(value, known));
    }
    let from = variable.value_from.as_ref()?;
    if let Some(field) = &from.field_ref {
        return Some(match field.field_path.as_str() {
            "metadata.name" => "{pod}".to_owned(),
            "metadata.namespace" => "{namespace}".to_owned(),
            "status.podIP" | "status.podIPs" => "{address}".to_owned(),
            _ => return None,
        });
    }
    let map = from.config_map_key_ref.as_ref();
    let map = map.map(|map| Place::new(Object::config_map(&map.name), &map.key));
    let secret = from.secret_key_ref.as_ref();
    let secret = secret.map(|secret| Place::new(Object::secret(&secret.name), &secret.key));
    let place = map.or(secret)?;
    contents.text(&place).map(str::to_owned)
}

/// Takes in one item of a command line. An item with blanks is a script, whose assignments count
/// as variables from there on.
fn take_in(item: &str, variables: &mut BTreeMap<String, String>, words: &mut Vec<String>) {
    let is_script = item.contains(char::is_whitespace);
    let item = item.replace("\\\n", " ");
    for word in item.split_whitespace() {
        let word = unquoted(&expanded(word, variables));
        if is_script && let Some((name, value)) = assignment(&word) {
            variables.insert(name.to_owned(), unquoted(value));
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
}

/// A variable that a script sets. What a command prints is not known.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_known = !value.contains("$(") && !value.contains('`');
    (named && name.chars().all(is_name) && is_known).then_some((name, value))
}

/// The settings in a configuration file of etcd, by their flags. Those for clients' TLS are in a
/// section of their own there.
fn in_file(text: &str) -> Option<BTreeMap<String, String>> {
    let Value::Object(file) = serde_saphyr::from_str(text).ok()? else {
        return None;
    };
    let mut known = BTreeMap::new();
    for (name, value) in &file {
        match value {
            Value::Object(section) if name == "client-transport-security" => {
                let section = section.iter();
                let section = section.filter_map(|(name, value)| Some((name, text_of(value)?)));
                known.extend(section.map(|(name, value)| (name.clone(), value)));
            }
            value => {
                if let Some(value) = text_of(value) {
                    known.insert(name.clone(), value);
                }
            }
        }
    }
    Some(known)
}

/// The value as a flag would have it. Lists, and lists by member, are joined.
fn text_of(value: &Value) -> Option<String> {
    let joined = |values: &mut dyn Iterator<Item = &Value>| {
        let texts: Vec<String> = values.filter_map(text_of).collect();
        texts.join(",")
    };
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is) => Some(is.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(values) => Some(joined(&mut values.iter())),
        Value::Object(values) => Some(joined(&mut values.values())),
        Value::Null => None,
    }
}

/// The environment variable for a flag of etcd.
fn variable_of(flag: &str) -> String {
    format!("ETCD_{}", flag.to_uppercase().replace('-', "_"))
}

/// The flag without its dashes. Go accepts one or two.
fn dashless(word: &str) -> Option<&str> {
    let one = word.strip_prefix('-')?;
    Some(one.strip_prefix('-').unwrap_or(one))
}

fn unquoted(text: &str) -> String {
    text.trim_matches(|c| matches!(c, '"' | '\'' | ';' | '\\'))
        .to_owned()
}

/// The text with variables expanded: `$(NAME)`, as Kubernetes writes references, and `${NAME}`,
/// `${NAME:-default}` and `$NAME`, as shells do. Unknown names stay as they are.
fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        if done.len() > LONGEST {
            break;
        }
        done.push_str(before);
        let (name, tail) = match after.chars().next() {
            Some('(') => after.get(1..).and_then(|t| t.split_once(')')),
            Some('{') => after.get(1..).and_then(|t| t.split_once('}')),
            _ => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
                after.split_at_checked(end)
            }
        }
        .unwrap_or(("", after));
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (name, None),
        };
        if let Some(value) = variables.get(name).map(String::as_str).or(default) {
            done.push_str(value);
            rest = tail;
        } else {
            done.push('$');
            rest = after;
        }
    }
    done.push_str(rest);
    done.truncate(done.floor_char_boundary(LONGEST));
    done
}

#[cfg(test)]
mod tests;
