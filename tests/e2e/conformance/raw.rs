//! Raw requests and answers, with their headers.

use anyhow::{Result, ensure};
use http::{HeaderMap, Method, Request};
use kube::client::Body;
use quorumgate_testbed::eventually;
use serde_json::Value;

use crate::world::{SOON, World};

/// An answer of the API server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn is(&self, code: u16) -> Result<()> {
        ensure!(self.code == code, "expected {code}: {self:?}");
        Ok(())
    }
}

/// Sends a request about one of the world's pods or its subresource.
pub(super) async fn send(
    world: &World,
    method: Method,
    pod_and_part: &str,
    body: &Value,
) -> Result<Answer> {
    let namespace = world.namespace();
    let content = match method {
        Method::PATCH => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(format!(
            "/api/v1/namespaces/{namespace}/pods/{pod_and_part}"
        ))
        .header("content-type", content)
        .body(Body::from(serde_json::to_vec(body)?))?;
    let (parts, body) = world.sandbox.client().send(request).await?.into_parts();
    let body = body.collect_bytes().await?;
    Ok(Answer {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// Posts an Eviction to the pod's subresource.
pub(super) async fn evict(world: &World, pod: &str, body: &Value) -> Result<Answer> {
    send(world, Method::POST, &format!("{pod}/eviction"), body).await
}

/// Waits until a request is answered with this code. On a busy machine a member may answer too
/// late, and then a request is refused for a moment that would be permitted.
pub(super) async fn answered(
    world: &World,
    method: Method,
    pod_and_part: &str,
    body: &Value,
    code: u16,
) -> Result<()> {
    let what = format!("{method} {pod_and_part} {body} is answered with {code}");
    eventually(SOON, what, || async {
        send(world, method.clone(), pod_and_part, body)
            .await?
            .is(code)
    })
    .await
}
