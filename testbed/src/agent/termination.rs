//! The end of a container and of a pod: hook, `SIGTERM`, grace period, `SIGKILL`, cleanup, and the
//! final DELETE.

use std::fs;
use std::time::Instant;

use k8s_openapi::api::core::v1::{LifecycleHandler, Pod};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::layout::{NodeDir, PodDir};
use super::probe::check::Target;
use super::process::{kill_all_of_group_id, signal_group};
use super::retry::Retry;
use super::sandbox;
use crate::process::Identity;

/// Asks a container to end, and kills it at its deadline, which may come nearer meanwhile. The time
/// of the hook counts.
pub(super) async fn stop(
    process: Identity,
    hook: Option<LifecycleHandler>,
    target: Target,
    mut deadline: watch::Receiver<Instant>,
) {
    if let Some(hook) = hook {
        let left = deadline.borrow().saturating_duration_since(Instant::now());
        tokio::select! {
            result = target.hook(&hook, left) => if let Err(error) = result {
                tracing::info!(%error, "preStop hook");
            },
            () = reached(&mut deadline) => {}
        }
    }
    send(process, Signal::SIGTERM);
    reached(&mut deadline).await;
    send(process, Signal::SIGKILL);
}

async fn reached(deadline: &mut watch::Receiver<Instant>) {
    loop {
        let at = *deadline.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(at.into()) => return,
            changed = deadline.changed() => if changed.is_err() {
                return tokio::time::sleep_until(at.into()).await;
            },
        }
    }
}

fn send(process: Identity, signal: Signal) {
    if let Err(error) = signal_group(process, signal) {
        tracing::warn!(%error, pid = process.pid(), %signal, "signal");
    }
}

/// Removes the files and processes of a pod on this node, except its logs. No container may run.
pub(super) fn clean_up(node: &NodeDir, pod: &PodDir) {
    sandbox::release(pod);
    let gid = fs::read_to_string(pod.gid())
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if let Some(gid) = gid
        && let Err(error) = kill_all_of_group_id(gid)
    {
        tracing::warn!(%error, "leftover processes");
    }
    if let Err(error) = keep_logs(node, pod) {
        tracing::warn!(%error, "logs not kept");
    }
    if let Err(error) = fs::remove_dir_all(pod.path())
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "pod directory not removed");
    }
}

fn keep_logs(node: &NodeDir, pod: &PodDir) -> std::io::Result<()> {
    fs::create_dir_all(node.old_logs())?;
    let name = pod
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for container in pod.containers()? {
        if container.log().exists() {
            let kept = node
                .old_logs()
                .join(format!("{name}_{}.log", container.name()));
            fs::rename(container.log(), kept)?;
        }
    }
    Ok(())
}

/// Sends the final DELETE with a grace period of 0 for exactly this incarnation. Tries until it is
/// accepted or the object is gone.
pub(super) async fn delete(api: &Api<Pod>, pod: &Pod, gone: &CancellationToken) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let mut retry = Retry::default();
    while !gone.is_cancelled() {
        match api.delete(&name, &params).await {
            Ok(_) => return,
            // An API server that has just started answers "not found" for objects that it has not
            // read yet.
            Err(error) => tracing::info!(%name, %error, "final delete"),
        }
        tokio::select! {
            () = retry.wait() => {}
            () = gone.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::{Client, Config};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request, on a new connection, with the next of these codes.
    async fn answer(listener: TcpListener, codes: &[u16]) {
        for code in codes {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await.unwrap();
            let body = format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"","reason":"","code":{code}}}"#
            );
            let answer = format!(
                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_api_server_that_has_not_read_its_pods_yet_is_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let api = Api::<Pod>::namespaced(client, "shoot");
        let pod = Pod {
            metadata: kube::api::ObjectMeta {
                name: Some("etcd-0".into()),
                ..Default::default()
            },
            ..Pod::default()
        };
        let gone = CancellationToken::new();
        let both = async {
            tokio::join!(
                answer(listener, &[404, 409, 200]),
                delete(&api, &pod, &gone)
            )
        };
        tokio::time::timeout(Duration::from_secs(30), both)
            .await
            .expect("it gave up or never stopped asking");
    }
}
