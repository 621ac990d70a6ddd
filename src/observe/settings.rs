//! The settings of etcd's container on its command line and in its variables, such as its
//! certificates and authorities.
//!
//! A flag takes precedence over a variable, as in etcd. Words of a script are read like arguments.
//! Configuration files are not read. With a configuration file etcd ignores flags and variables,
//! and so does this module.

use k8s_openapi::api::core::v1::{Container, EnvVar};

/// The settings of one etcd container.
#[derive(Debug)]
pub(super) struct Settings<'a> {
    words: Vec<String>,
    variables: &'a [EnvVar],
}

/// A setting and its source, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The value.
    pub(super) value: String,
    /// The flag or the variable, with the value.
    pub(super) told_by: String,
}

impl<'a> Settings<'a> {
    pub(super) fn of(container: &'a Container) -> Self {
        let variables = container.env.as_deref().unwrap_or_default();
        let words = container.command.iter().chain(&container.args).flatten();
        let words = words
            .flat_map(|word| word.split_whitespace())
            .map(|word| unquoted(&expanded(word, variables)))
            .filter(|word| !word.is_empty());
        Self {
            words: words.collect(),
            variables,
        }
    }

    /// The value of a setting, given by its flag without dashes: `cert-file`.
    pub(super) fn get(&self, name: &str) -> Option<Setting> {
        self.flag(name).or_else(|| self.variable(name))
    }

    /// The value of an environment variable, which need not be etcd's.
    pub(super) fn env(&self, name: &str) -> Option<Setting> {
        let variable = self.variables.iter().find(|v| v.name == name)?;
        let value = unquoted(&expanded(variable.value.as_deref()?, self.variables));
        let told_by = format!("{name}={value}");
        (!value.is_empty()).then_some(Setting { value, told_by })
    }

    /// Whether a switch is on. A switch without a value is on, as in Go.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let given = self.words.iter().find_map(|word| {
            let rest = dashless(word)?.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                Some(value) => Some(value == "true"),
                None => rest.is_empty().then_some(true),
            }
        });
        let by_variable = || {
            self.env(&variable_of(name))
                .is_some_and(|s| s.value == "true")
        };
        given.unwrap_or_else(by_variable)
    }

    /// The configuration file, which replaces flags and variables.
    pub(super) fn file(&self) -> Option<Setting> {
        self.get("config-file")
    }

    fn flag(&self, name: &str) -> Option<Setting> {
        let mut words = self.words.iter().peekable();
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

    fn variable(&self, name: &str) -> Option<Setting> {
        self.env(&variable_of(name))
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

/// The text with variables expanded: `$(NAME)`, as Kubernetes writes references, and `${NAME}` and
/// `$NAME`, as shells do. Unknown names stay as they are.
fn expanded(text: &str, variables: &[EnvVar]) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
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
        let known = variables.iter().find(|v| v.name == name);
        if let Some(value) = known.and_then(|known| known.value.as_deref()) {
            done.push_str(value);
            rest = tail;
        } else {
            done.push('$');
            rest = after;
        }
    }
    done.push_str(rest);
    done
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(container: &Value, name: &str) -> Option<String> {
        let mut whole = json!({"name": "etcd"});
        json_patch::merge(&mut whole, container);
        let container: Container = serde_json::from_value(whole).unwrap();
        Settings::of(&container).get(name).map(|s| s.value)
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
            json!({"env": [{"name": "ETCD_CERT_FILE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
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
                Settings::of(&whole).is_on("client-cert-auth"),
                on,
                "{container}"
            );
        }
    }

    #[test]
    fn references_to_unknown_names_stay_as_they_are() {
        for text in ["$(NOBODY)/a", "a$", "${", "$(", "$$", "100%"] {
            assert_eq!(expanded(text, &[]), text);
        }
    }
}
