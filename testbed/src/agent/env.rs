//! A container's environment: the variables of the runtime, then `envFrom`, then `env` in order,
//! each value expanded with the ones before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVar, EnvVarSource, Pod, Secret,
};

use super::expand::expand;
use super::fields::{self, Placement};
use super::objects::{Lookup, Objects};

/// The environment needs something that does not exist: the kubelet's `CreateContainerConfigError`,
/// with its message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(super) struct Missing(String);

/// An environment under construction, in which later variables replace earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), value);
    }

    /// Expands `$(NAME)` with these variables.
    pub(super) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.0.get(name).map(String::as_str))
    }

    /// All variables.
    pub(super) fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }
}

/// Adds the variables of the container's spec to `base`.
pub(super) async fn build(
    base: Environment,
    pod: &Pod,
    container: &Container,
    place: Placement,
    objects: &Objects,
) -> Result<Environment, Missing> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let source = Source {
        pod,
        container,
        place,
        objects,
        namespace,
    };
    let mut env = base;
    for from in container.env_from.iter().flatten() {
        source.add_all(&mut env, from).await?;
    }
    for var in container.env.iter().flatten() {
        if let Some(value) = source.value(&env, var).await? {
            env.set(&var.name, value);
        }
    }
    Ok(env)
}

struct Source<'a> {
    pod: &'a Pod,
    container: &'a Container,
    place: Placement,
    objects: &'a Objects,
    namespace: &'a str,
}

impl Source<'_> {
    async fn add_all(&self, env: &mut Environment, from: &EnvFromSource) -> Result<(), Missing> {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let mut pairs = BTreeMap::new();
        if let Some(source) = &from.config_map_ref {
            pairs = self.config_map(&source.name, source.optional).await?;
        }
        if let Some(source) = &from.secret_ref {
            pairs = self.secret(&source.name, source.optional).await?;
        }
        for (key, value) in pairs {
            env.set(&format!("{prefix}{key}"), value);
        }
        Ok(())
    }

    async fn value(&self, env: &Environment, var: &EnvVar) -> Result<Option<String>, Missing> {
        match &var.value_from {
            Some(from) => self.value_from(from).await,
            None => Ok(Some(env.expand(var.value.as_deref().unwrap_or_default()))),
        }
    }

    async fn value_from(&self, from: &EnvVarSource) -> Result<Option<String>, Missing> {
        if let Some(selector) = &from.field_ref {
            let value = fields::field(self.pod, self.place, &selector.field_path);
            return value
                .map(Some)
                .ok_or_else(|| Missing(format!("no field {}", selector.field_path)));
        }
        if let Some(selector) = &from.resource_field_ref {
            let value = fields::resource(self.container, selector);
            return value
                .map(Some)
                .ok_or_else(|| Missing(format!("no resource {}", selector.resource)));
        }
        if let Some(selector) = &from.secret_key_ref {
            let pairs = self.secret(&selector.name, selector.optional).await?;
            return pick(
                pairs,
                &selector.key,
                selector.optional,
                "Secret",
                &selector.name,
            );
        }
        if let Some(selector) = &from.config_map_key_ref {
            let pairs = self.config_map(&selector.name, selector.optional).await?;
            return pick(
                pairs,
                &selector.key,
                selector.optional,
                "ConfigMap",
                &selector.name,
            );
        }
        Err(Missing(
            "an environment variable has an unknown source".to_owned(),
        ))
    }

    async fn secret(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<BTreeMap<String, String>, Missing> {
        match self.objects.secret(self.namespace, name).known().await {
            Lookup::Present(secret) => Ok(secret_pairs(&secret)),
            _ if optional == Some(true) => Ok(BTreeMap::new()),
            _ => Err(Missing(format!("secret {name:?} not found"))),
        }
    }

    async fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<BTreeMap<String, String>, Missing> {
        match self.objects.config_map(self.namespace, name).known().await {
            Lookup::Present(map) => Ok(config_map_pairs(&map)),
            _ if optional == Some(true) => Ok(BTreeMap::new()),
            _ => Err(Missing(format!("configmap {name:?} not found"))),
        }
    }
}

fn secret_pairs(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.map(|(k, v)| (k.clone(), String::from_utf8_lossy(&v.0).into_owned()))
        .collect()
}

fn config_map_pairs(map: &ConfigMap) -> BTreeMap<String, String> {
    map.data.clone().unwrap_or_default()
}

fn pick(
    mut pairs: BTreeMap<String, String>,
    key: &str,
    optional: Option<bool>,
    kind: &str,
    name: &str,
) -> Result<Option<String>, Missing> {
    match pairs.remove(key) {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None => Err(Missing(format!("couldn't find key {key} in {kind} {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_see_the_variables_before_them() {
        let mut env = Environment::default();
        env.set("A", "1".to_owned());
        let b = env.expand("$(A)2 $(C)");
        env.set("B", b);
        assert_eq!(env.expand("$(B)"), "12 $(C)");
    }

    #[test]
    fn a_missing_key_is_an_error_unless_it_is_optional() {
        let pairs = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        assert_eq!(
            pick(pairs.clone(), "k", None, "Secret", "s"),
            Ok(Some("v".to_owned()))
        );
        assert_eq!(
            pick(pairs.clone(), "x", Some(true), "Secret", "s"),
            Ok(None)
        );
        let missing = pick(pairs, "x", None, "Secret", "s").unwrap_err();
        assert_eq!(missing.to_string(), "couldn't find key x in Secret s");
    }
}
