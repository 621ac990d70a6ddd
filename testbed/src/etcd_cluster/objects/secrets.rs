//! The cluster's certificates, as Secrets.
//!
//! | Secret | content | user |
//! |---|---|---|
//! | `<name>-ca` | `ca.crt` | all |
//! | `<name>-server`, `<name>-peer` | `tls.crt`, `tls.key`, `ca.crt` | the members |
//! | `<name>-client` | the same, for the gate's user | the gate |
//! | `<name>-root` | the same, for etcd's user `root` | the test bed itself |
//! | `<name>-issuer` | `tls.crt`, `tls.key` of the authority | the test bed, later |

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;

use super::server_side;
use crate::etcd_cluster::spec::{Spec, Tls};
use crate::pki::{Authority, Credential, Request, Usage};

/// The key of a certificate in a Secret.
pub(in crate::etcd_cluster) const CERTIFICATE: &str = "tls.crt";
/// The key of its private key in a Secret.
pub(in crate::etcd_cluster) const KEY: &str = "tls.key";
/// The key of the authority for the other side's certificates in a Secret.
pub(in crate::etcd_cluster) const CA_CERTIFICATE: &str = "ca.crt";

/// The Secret with the gate's certificate.
pub(in crate::etcd_cluster) fn client_secret(spec: &Spec) -> String {
    format!("{}-client", spec.name)
}

/// The Secret with the test bed's own certificate.
pub(in crate::etcd_cluster) fn root_secret(spec: &Spec) -> String {
    format!("{}-root", spec.name)
}

/// Issues and applies all certificates. An existing authority is kept.
pub(super) async fn apply(client: &kube::Client, namespace: &str, spec: &Spec) -> Result<()> {
    if spec.tls == Tls::None {
        return Ok(());
    }
    let authority = match issuer(client, namespace, spec).await? {
        Some(authority) => authority,
        None => Authority::new(&issuer_name(spec))?,
    };
    let ca = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": format!("{}-ca", spec.name)},
        "data": {CA_CERTIFICATE: STANDARD.encode(authority.certificate())},
    });
    server_side::<Secret>(client, namespace, ca).await?;
    write_tls(
        client,
        namespace,
        &issuer_name(spec),
        &authority.credential(),
        &authority,
    )
    .await?;

    write_member_certificates(client, namespace, spec, &authority).await?;
    let gate = authority.issue(&client_request(&spec.gate_user))?;
    write_tls(client, namespace, &client_secret(spec), &gate, &authority).await?;
    let root = authority.issue(&client_request("root"))?;
    write_tls(client, namespace, &root_secret(spec), &root, &authority).await
}

/// Issues and applies the members' server and peer certificates.
pub(in crate::etcd_cluster) async fn write_member_certificates(
    client: &kube::Client,
    namespace: &str,
    spec: &Spec,
    authority: &Authority,
) -> Result<()> {
    let members = member_names(namespace, spec);
    for purpose in ["server", "peer"] {
        let name = format!("{}-{purpose}", spec.name);
        let request = Request::new(&name, Usage::Peer).names(members.clone());
        write_tls(
            client,
            namespace,
            &name,
            &authority.issue(&request)?,
            authority,
        )
        .await?;
    }
    Ok(())
}

/// The request for a client certificate. It has no alternative names, because etcd would compare
/// them with the client's address.
pub(in crate::etcd_cluster) fn client_request(common_name: &str) -> Request {
    Request::new(common_name, Usage::Client)
}

/// The cluster's authority. `None` before it was applied.
pub(in crate::etcd_cluster) async fn issuer(
    client: &kube::Client,
    namespace: &str,
    spec: &Spec,
) -> Result<Option<Authority>> {
    let name = issuer_name(spec);
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let Some(secret) = secrets.get_opt(&name).await? else {
        return Ok(None);
    };
    let text = |key: &str| -> Result<String> {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        let bytes = data.with_context(|| format!("Secret {name} has no {key}"))?;
        Ok(String::from_utf8(bytes.0.clone())?)
    };
    let credential = Credential {
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    };
    Authority::restore(&name, &credential).map(Some)
}

/// Applies a Secret of type `kubernetes.io/tls`.
pub(in crate::etcd_cluster) async fn write_tls(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    credential: &Credential,
    authority: &Authority,
) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name},
        "data": {
            CERTIFICATE: STANDARD.encode(&credential.certificate),
            KEY: STANDARD.encode(&credential.key),
            CA_CERTIFICATE: STANDARD.encode(authority.certificate()),
        },
    });
    server_side::<Secret>(client, namespace, secret).await
}

fn issuer_name(spec: &Spec) -> String {
    format!("{}-issuer", spec.name)
}

/// The names in members' certificates. Addresses of pods are not among them, so that a client needs
/// the right server name. 127.0.0.1 is the source of members' own connections, since their pods
/// have no network namespace, and etcd compares it with the alternative names of the certificate of
/// a peer or of its own gateway.
fn member_names(namespace: &str, spec: &Spec) -> Vec<String> {
    let service = spec.service();
    vec![
        format!("*.{service}.{namespace}.svc"),
        format!("*.{service}.{namespace}.svc.cluster.local"),
        "127.0.0.1".to_owned(),
    ]
}
