//! Service account tokens, bound to the pod, and renewed before they expire.

use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

/// The kubelet's default lifetime.
const DEFAULT_LIFETIME: i64 = 3600;

/// A token, with the time to request the next one.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) value: String,
    pub(super) renew_at: Instant,
}

/// Requests a token for the pod's service account.
pub(super) async fn request(
    client: &Client,
    pod: &Pod,
    projection: &ServiceAccountTokenProjection,
) -> kube::Result<Token> {
    let namespace = pod.namespace().unwrap_or_default();
    let account = pod
        .spec
        .as_ref()
        .and_then(|s| s.service_account_name.clone());
    let lifetime = projection.expiration_seconds.unwrap_or(DEFAULT_LIFETIME);
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            audiences: projection.audience.iter().cloned().collect(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            expiration_seconds: Some(lifetime),
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let account = account.unwrap_or_else(|| "default".to_owned());
    let answer = accounts
        .create_token_request(&account, &PostParams::default(), &wanted)
        .await?;
    // A token is renewed when 80 % of its life has passed, as the kubelet does.
    let granted = u64::try_from(answer.spec.expiration_seconds.unwrap_or(lifetime)).unwrap_or(0);
    Ok(Token {
        value: answer.status.map(|s| s.token).unwrap_or_default(),
        renew_at: Instant::now() + Duration::from_secs(granted * 4 / 5),
    })
}
