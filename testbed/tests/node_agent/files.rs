//! Volumes and the hosts file.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::pods::{PATIENCE, Pods, SERVE, ip, sandbox, shell};

#[tokio::test]
async fn a_mounted_secret_changes_by_a_swap_of_its_data_link() -> Result<()> {
    let sandbox = sandbox("secret", 1).await?;
    let pods = Pods::new(&sandbox);
    let secrets: Api<Secret> = sandbox.api();
    let secret = serde_json::from_value(json!({
        "metadata": {"name": "tls"}, "stringData": {"crt": "one", "key": "k1"}
    }))?;
    secrets.create(&PostParams::default(), &secret).await?;
    // The container logs the files as it sees them, whenever they change.
    let script = "while :; do new=$(cat /tls/crt /tls/key); [ \"$new\" = \"$old\" ] || echo \"$new\"; \
        old=$new; sleep 0.05; done";
    let mut container = shell(script);
    container["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls", "readOnly": true}]);
    let volume = json!({"name": "tls", "secret": {"secretName": "tls"}});
    let spec = json!({"containers": [container], "volumes": [volume]});
    let pod = pods.ready("a", spec).await?;
    let link = pods.file(&pod, "volumes/tls/..data")?;
    for (value, key) in [("two", "k2"), ("three", "k3")] {
        let before = std::fs::read_link(&link)?;
        let patch = json!({"stringData": {"crt": value, "key": key}});
        secrets
            .patch("tls", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        eventually(PATIENCE, "the container sees it", async || {
            let log = pods.log(&pod)?;
            ensure!(log.ends_with(&format!("{value}{key}\n")), "{log}");
            anyhow::Ok(())
        })
        .await?;
        ensure!(std::fs::read_link(&link)? != before);
    }
    let log = pods.log(&pod)?;
    let mixed = log
        .lines()
        .filter(|line| !["onek1", "twok2", "threek3"].contains(line))
        .count();
    // A read that straddles a swap may mix two versions. More than one such read for each swap
    // would show that the swap is not atomic.
    ensure!(mixed <= 2, "{log}");
    sandbox.close().await
}

#[tokio::test]
async fn projected_volumes_hold_tokens_config_maps_and_fields() -> Result<()> {
    let sandbox = sandbox("projected", 1).await?;
    let pods = Pods::new(&sandbox);
    let maps: Api<ConfigMap> = sandbox.api();
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "v"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let mut container = shell(
        "cat /p/sub/k; echo; cat /p/app; echo; ls /var/run/secrets/kubernetes.io/serviceaccount; exec sleep 1000",
    );
    container["volumeMounts"] = json!([{"name": "p", "mountPath": "/p"}]);
    let volume = json!({"name": "p", "projected": {"sources": [
        {"configMap": {"name": "m", "items": [{"key": "k", "path": "sub/k"}]}},
        {"downwardAPI": {"items": [{"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]}},
    ]}});
    let pod = pods
        .ready("a", json!({"containers": [container], "volumes": [volume]}))
        .await?;
    let expected = "v\na\nca.crt\nnamespace\ntoken\n";
    eventually(PATIENCE, "it has said all", async || {
        let log = pods.log(&pod)?;
        ensure!(log == expected, "{log}");
        anyhow::Ok(())
    })
    .await?;
    // The token is one of the pod's ServiceAccount, and the API server accepts it.
    let volumes = pod
        .spec
        .clone()
        .and_then(|s| s.volumes)
        .context("volumes")?;
    let token = volumes
        .iter()
        .find(|v| v.name.starts_with("kube-api-access"))
        .context("token")?;
    let token =
        std::fs::read_to_string(pods.file(&pod, &format!("volumes/{}/token", token.name))?)?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token}});
    let reviews: Api<k8s_openapi::api::authentication::v1::TokenReview> =
        Api::all(sandbox.client());
    let answer = reviews
        .create(&PostParams::default(), &serde_json::from_value(review)?)
        .await?;
    let user = answer.status.and_then(|s| s.user).and_then(|u| u.username);
    ensure!(
        user == Some(format!(
            "system:serviceaccount:{}:default",
            sandbox.namespace()
        ))
    );
    sandbox.close().await
}

#[tokio::test]
async fn a_claim_outlives_its_pod() -> Result<()> {
    let sandbox = sandbox("claim", 1).await?;
    let pods = Pods::new(&sandbox);
    let claims: Api<PersistentVolumeClaim> = sandbox.api();
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    }))?;
    claims.create(&PostParams::default(), &claim).await?;
    for expected in ["x\n", "x\nx\n"] {
        // The machine does not have this mount point.
        let script = "echo x >>/no/such/place/log; cat /no/such/place/log; exec sleep 1000";
        let mut container = shell(script);
        container["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/no/such/place", "subPath": "sub"}]);
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let pod = pods
            .ready("a", json!({"containers": [container], "volumes": [volume]}))
            .await?;
        eventually(PATIENCE, "it has written", async || {
            pods.log(&pod).is_ok_and(|l| l.ends_with(expected))
        })
        .await?;
        pods.delete("a", &DeleteParams::default()).await?;
        pods.gone(&pod).await?;
    }
    ensure!(!std::path::Path::new("/no").exists());
    sandbox.close().await
}

#[tokio::test]
async fn the_hosts_file_follows_the_peers_in_place() -> Result<()> {
    let sandbox = sandbox("hosts", 2).await?;
    let pods = Pods::new(&sandbox);
    let services: Api<Service> = sandbox.api();
    let service = serde_json::from_value(json!({
        "metadata": {"name": "peers"},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"group": "peers"}}
    }))?;
    services.create(&PostParams::default(), &service).await?;
    let spec = |name: &str, script: &str| json!({"containers": [shell(script)], "hostname": name, "subdomain": "peers"});
    let label = json!({"metadata": {"labels": {"group": "peers"}}});
    let params = PatchParams::default();
    pods.create("a", spec("a", SERVE)).await?;
    pods.api.patch("a", &params, &Patch::Merge(&label)).await?;
    let a = pods
        .wait("a", "is ready", |p| {
            crate::pods::condition(p, "Ready") == "True"
        })
        .await?;
    let hosts = pods.file(&a, "hosts")?;
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&hosts)?);
    let own = ip(&a).context("an address")?;
    ensure!(std::fs::read_to_string(&hosts)?.contains(&format!("{own}\ta.peers.")));

    // A peer resolves the name of the first pod, with any program.
    let full = format!("a.peers.{}.svc.cluster.local", sandbox.namespace());
    let look = format!("until getent hosts {full}; do sleep 0.1; done; exec sleep 1000");
    pods.create("b", spec("b", &look)).await?;
    pods.api.patch("b", &params, &Patch::Merge(&label)).await?;
    let b = pods
        .wait("b", "is ready", |p| {
            crate::pods::condition(p, "Ready") == "True"
        })
        .await?;
    eventually(PATIENCE, "b has found a", async || {
        pods.log(&b).is_ok_and(|l| l.contains(&own))
    })
    .await?;
    let peer = ip(&b).context("an address")?;
    eventually(PATIENCE, "a knows b", async || {
        let text = std::fs::read_to_string(&hosts)?;
        ensure!(text.contains(&format!("{peer}\tb.peers.")), "{text}");
        anyhow::Ok(())
    })
    .await?;
    pods.delete("b", &DeleteParams::default()).await?;
    pods.gone(&b).await?;
    eventually(PATIENCE, "a has forgotten b", async || {
        std::fs::read_to_string(&hosts).is_ok_and(|text| !text.contains(&peer))
    })
    .await?;
    ensure!(inode == std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&hosts)?));
    sandbox.close().await
}
