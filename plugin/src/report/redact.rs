//! Takes out of texts and objects what nobody else may read.

use std::sync::LazyLock;

use quorumgate_api::call_path;
use regex::{Captures, Regex};
use serde_json::Value;

/// The words in the place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// Annotations that repeat an object as it was written, with all that is redacted in the object.
const COPIES: [&str; 1] = ["kubectl.kubernetes.io/last-applied-configuration"];

/// Fields whose text is a secret, in small letters. Fields that name a Secret are none.
const SECRET_FIELDS: [&str; 6] = [
    "apikey",
    "clientkey",
    "passwd",
    "password",
    "privatekey",
    "token",
];

/// Secrets in text: private keys, tokens by their form, credentials in addresses, and values beside
/// words such as `password`.
static SECRETS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (
            r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
            "[redacted]",
        ),
        // A JSON Web Token, as those of service accounts.
        (
            r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
            "[redacted]",
        ),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+", "$1 [redacted]"),
        (r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@]+@", "${1}[redacted]@"),
        (
            r#"(?i)\b((?:[a-z0-9]+[_-])*(?:password|passwd|token|secret|api[_-]?key|client[_-]?key(?:[_-]data)?)\\?["']?\s*[:=]\s*\\?["']?)[^\s"',\\;&}\]]+"#,
            "${1}[redacted]",
        ),
    ]
    .into_iter()
    .filter_map(|(pattern, instead)| Some((Regex::new(pattern).ok()?, instead)))
    .collect()
});

/// The paths of webhooks, which end in a secret word.
static PATHS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"/(?:validate|mutate)/[a-z-]+/[A-Za-z0-9._~-]+").ok());

/// Text without secrets.
pub(super) fn text(text: &str) -> String {
    let mut clean = text.to_owned();
    for (pattern, instead) in SECRETS.iter() {
        clean = pattern.replace_all(&clean, *instead).into_owned();
    }
    if let Some(paths) = PATHS.as_ref() {
        let without = |found: &Captures<'_>| {
            let path = found.get(0).map_or("", |found| found.as_str());
            format!("{}/{REDACTED}", call_path::split(path).0)
        };
        clean = paths.replace_all(&clean, without).into_owned();
    }
    clean
}

/// An object of Kubernetes without secrets, and without what only the API server needs.
pub(super) fn object(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.retain(|name, _| !COPIES.contains(&name.as_str()));
        }
    }
    clean(&mut object);
    object
}

fn clean(value: &mut Value) {
    match value {
        Value::String(words) => *words = text(words),
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "env" {
                    without_values(field);
                }
                if field.is_string() && SECRET_FIELDS.contains(&name.to_lowercase().as_str()) {
                    *field = REDACTED.into();
                }
                clean(field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes the values out of environment variables. Where they come from stays.
fn without_values(variables: &mut Value) {
    for variable in variables.as_array_mut().into_iter().flatten() {
        if let Some(value) = variable.get_mut("value") {
            *value = REDACTED.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_text_are_redacted_whatever_their_form() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----";
        let cut = "-----BEGIN PRIVATE KEY-----\nMHcC";
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl";
        let rows = [
            (format!("a {key} b"), "a [redacted] b"),
            (format!("a {cut}"), "a [redacted]"),
            (format!("token {token}."), "token [redacted]."),
            (
                "Authorization: Bearer abc.def".to_owned(),
                "Authorization: Bearer [redacted]",
            ),
            (
                "https://root:pass@etcd:2379/".to_owned(),
                "https://[redacted]@etcd:2379/",
            ),
            (
                "password=hunter2 user=root".to_owned(),
                "password=[redacted] user=root",
            ),
            (
                r#"{"ETCD_ROOT_PASSWORD": "x y"}"#.to_owned(),
                r#"{"ETCD_ROOT_PASSWORD": "[redacted] y"}"#,
            ),
            (
                r#""{\"token\":\"abc\"}""#.to_owned(),
                r#""{\"token\":\"[redacted]\"}""#,
            ),
            (
                "path=/validate/pods/s3cr3t code=200".to_owned(),
                "path=/validate/pods/[redacted] code=200",
            ),
            (
                "/mutate/stateful-sets/s3cr3t".to_owned(),
                "/mutate/stateful-sets/[redacted]",
            ),
        ];
        for (given, expected) in rows {
            assert_eq!(text(&given), expected, "{given}");
        }
        assert_eq!(SECRETS.len(), 5, "every pattern is a pattern");
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for words in [
            "pod db/etcd-0 cannot be deleted now: 2 of 3 voters serve, and 2 are needed",
            r#"{"level":"INFO","msg":"listening","address":"0.0.0.0:8443"}"#,
            "/validate/pods",
            "secretName: etcd-client-tls-x",
            "quorumgate_ledger_writes_total{result=\"ok\"} 3",
        ] {
            assert_eq!(text(words), words);
        }
    }

    #[test]
    fn objects_lose_values_of_variables_copies_and_secret_paths() {
        let given = json!({
            "metadata": {"name": "gate", "managedFields": [{}], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "stays": "here"}},
            "spec": {"containers": [{"args": ["--token=abc"], "env": [
                {"name": "A", "value": "hidden"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]},
            "webhooks": [{"clientConfig": {"service": {"path": "/validate/pods/word"}}}],
            "auth": {"Password": "hunter2", "secretName": "root", "passwordKey": "p"},
        });
        let expected = json!({
            "metadata": {"name": "gate", "annotations": {"stays": "here"}},
            "spec": {"containers": [{"args": ["--token=[redacted]"], "env": [
                {"name": "A", "value": "[redacted]"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]},
            "webhooks": [{"clientConfig": {"service": {"path": "/validate/pods/[redacted]"}}}],
            "auth": {"Password": "[redacted]", "secretName": "root", "passwordKey": "p"},
        });
        assert_eq!(object(given), expected);
    }
}
