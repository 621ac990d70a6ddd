//! Certificates of the gate's own making.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use quorumgate_testbed::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::asking::By;
use crate::chaos::strangers::trusting;
use crate::load::Load;
use crate::world::{SOON, World};

/// The names of the two Secrets.
const AUTHORITY: &str = "quorumgate-authority";
const SERVING: &str = "quorumgate-serving";

/// A world whose gate makes its own certificates.
struct Own(World);

impl Own {
    async fn start(name: &str, replicas: usize, lifetimes: &[&str]) -> Result<Self> {
        let mut world = World::builder(name).replicas(replicas).own_certificates();
        for lifetime in lifetimes {
            world = world.argument(lifetime);
        }
        Ok(Self(world.start().await?))
    }

    fn secrets(&self) -> Api<Secret> {
        let home = format!("{}-gate", self.0.namespace());
        Api::namespaced(self.0.bed().client(), &home)
    }

    async fn certificate(&self, secret: &str) -> Result<ByteString> {
        let data = self.secrets().get(secret).await?.data.unwrap_or_default();
        data.get("tls.crt").cloned().context("no tls.crt")
    }

    /// The `caBundle` of every webhook.
    async fn bundles(&self) -> Result<Vec<Option<ByteString>>> {
        let client = self.0.bed().client();
        let name = self.0.gate.webhook_configuration();
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client);
        let validating = validating.get(name).await?.webhooks.unwrap_or_default();
        let mutating = mutating.get(name).await?.webhooks.unwrap_or_default();
        let validating = validating.into_iter().map(|hook| hook.client_config);
        let mutating = mutating.into_iter().map(|hook| hook.client_config);
        Ok(validating.chain(mutating).map(|it| it.ca_bundle).collect())
    }

    /// The words in the paths that webhooks call.
    async fn words(&self) -> Result<BTreeSet<String>> {
        let name = self.0.gate.webhook_configuration();
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.0.bed().client());
        let webhooks = configurations.get(name).await?.webhooks.unwrap_or_default();
        let urls = webhooks.into_iter().map(|hook| hook.client_config.url);
        let words = urls.map(|url| {
            let url = url.context("no URL")?;
            let word = url.split('/').nth(5).context("no word")?;
            anyhow::Ok(word.to_owned())
        });
        words.collect()
    }

    /// The answer of a replica to an empty review, as a pod may send it that reaches the port.
    async fn forged(&self, replica: usize, path: &str) -> Result<String> {
        let authority = self.certificate(AUTHORITY).await?;
        let tls = trusting(str::from_utf8(&authority.0)?)?;
        let address = self.0.gate.replica(replica).address();
        let stream = TcpStream::connect(address).await?;
        let mut stream = tls.connect(address.ip().into(), stream).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.split_whitespace().nth(1).context("no status")?;
        Ok(status.to_owned())
    }

    /// Waits until every webhook has the same bundle, which begins with the present authority.
    async fn trusted(&self) -> Result<()> {
        eventually(SOON, "every webhook trusts the authority", || async {
            let authority = self.certificate(AUTHORITY).await?;
            let bundles: BTreeSet<_> = self.bundles().await?.into_iter().map(bytes).collect();
            let [bundle] = Vec::from_iter(bundles).try_into().ok().context("several")?;
            ensure!(bundle.starts_with(&authority.0), "another authority");
            Ok(())
        })
        .await
    }

    /// Waits until every replica serves what the Secret holds, by when that ends.
    async fn served(&self) -> Result<()> {
        for replica in 0..self.0.gate.replicas().len() {
            let what = format!("replica {replica} serves what the Secret holds");
            eventually(SOON, what, || async {
                let stored = ends(&self.certificate(SERVING).await?)?;
                let page = self.0.gate.metrics(replica).await?;
                let metric = "quorumgate_certificate_expiry_timestamp_seconds ";
                let served = page.lines().find_map(|line| line.strip_prefix(metric));
                let served: f64 = served.context("no such metric")?.parse()?;
                ensure!((served - stored).abs() < 0.5, "{served}, not {stored}");
                anyhow::Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until a Secret holds another certificate than this.
    async fn replaced(&self, secret: &str, before: &ByteString) -> Result<ByteString> {
        let what = format!("{secret} holds another certificate");
        eventually(Duration::from_secs(150), what, || async {
            let now = self.certificate(secret).await?;
            ensure!(now != *before, "the same");
            Ok(now)
        })
        .await
    }
}

/// When a certificate (PEM) ends, in Unix time.
fn ends(certificate: &ByteString) -> Result<f64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(&certificate.0)?;
    let end = pem.parse_x509()?.validity().not_after.timestamp();
    Ok(f64::from(u32::try_from(end)?))
}

fn bytes(bundle: Option<ByteString>) -> Vec<u8> {
    bundle.map(|bundle| bundle.0).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_at_once_agree_on_own_certificates_and_what_others_spoil_is_put_right()
-> Result<()> {
    let own = Own::start("own-certificates", 3, &[]).await?;
    own.trusted().await?;
    own.served().await?;
    own.0.lets_go(By::Eviction, "etcd-0").await?;
    own.0.whole().await?;
    let word = eventually(SOON, "webhooks call by a word", || async {
        let [word] = Vec::from_iter(own.words().await?)
            .try_into()
            .ok()
            .context("several")?;
        anyhow::Ok::<String>(word)
    })
    .await?;
    for replica in 0..3 {
        let known = own
            .forged(replica, &format!("/validate/pods/{word}"))
            .await?;
        ensure!(known == "400", "an empty review is answered by {known}");
        for path in ["/validate/pods", "/validate/pods/0123456789abcdef", "/"] {
            let answered = own.forged(replica, path).await?;
            ensure!(answered == "404", "{path}: {answered}");
        }
    }
    let made: usize =
        futures::future::try_join_all((0..3).map(|replica| own.0.gate.metrics(replica)))
            .await?
            .iter()
            .flat_map(|page| page.lines())
            .filter_map(|line| line.strip_prefix("quorumgate_certificates_made_total{"))
            .filter_map(|line| line.split_whitespace().last()?.parse::<usize>().ok())
            .sum();
    ensure!(made == 2, "three replicas made {made} certificates");

    // A bundle that is taken away comes back.
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(own.0.bed().client());
    let nothing = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let nothing: json_patch::Patch = serde_json::from_value(nothing)?;
    configurations
        .patch(
            own.0.gate.webhook_configuration(),
            &PatchParams::default(),
            &Patch::Json::<()>(nothing),
        )
        .await?;
    own.trusted().await?;

    // Rubbish in a Secret is made good, and nothing of it is told.
    for secret in [SERVING, AUTHORITY] {
        let before = own.certificate(secret).await?;
        let rubbish = json!({"stringData": {"tls.crt": "not a certificate", "tls.key": "hunter2"}});
        own.secrets()
            .patch(secret, &PatchParams::default(), &Patch::Merge(rubbish))
            .await?;
        eventually(SOON, format!("{secret} is made good"), || async {
            let now = own.certificate(secret).await?;
            ensure!(now.0.starts_with(b"-----BEGIN"), "rubbish");
            ensure!(now != before, "the same as before");
            Ok(())
        })
        .await?;
    }
    let logs = (0..3).map(|replica| own.0.gate.log(replica));
    let logs = logs.collect::<Result<Vec<_>>>()?.concat();
    ensure!(
        logs.contains("its tls.crt contains no certificate"),
        "{logs}"
    );
    ensure!(!logs.contains("hunter2"), "a key was told");
    own.trusted().await?;
    own.0.trusted().await?;
    own.0.lets_go(By::Delete, "etcd-1").await?;
    own.0.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn own_certificates_are_rotated_lost_and_made_anew_without_one_failed_call() -> Result<()> {
    let lifetimes = ["--certificate-lifetime=90s", "--authority-lifetime=180s"];
    let own = Own::start("own-rotation", 3, &lifetimes).await?;
    own.trusted().await?;
    own.0.whole().await?;
    let first = own.certificate(SERVING).await?;
    let authority = own.certificate(AUTHORITY).await?;
    let words = eventually(SOON, "webhooks call by a word", || own.words()).await?;
    let load = Load::start(&own.0, 2);

    let second = own.replaced(SERVING, &first).await?;
    let other_authority = own.replaced(AUTHORITY, &authority).await?;
    // The authority before is trusted as well, until it ends.
    eventually(SOON, "every webhook trusts both", || async {
        let both = [other_authority.0.as_slice(), authority.0.as_slice()].concat();
        let mut bundles = own.bundles().await?.into_iter().map(bytes);
        ensure!(bundles.all(|bundle| bundle == both), "another bundle");
        anyhow::Ok(())
    })
    .await?;
    let third = own.replaced(SERVING, &second).await?;
    own.served().await?;

    for secret in [AUTHORITY, SERVING] {
        own.secrets()
            .delete(secret, &DeleteParams::default())
            .await?;
    }
    let fourth = own.replaced(SERVING, &third).await?;
    own.replaced(AUTHORITY, &other_authority).await?;
    own.trusted().await?;
    own.served().await?;
    ensure!(fourth != first, "an old certificate came back");
    eventually(SOON, "webhooks call by another word", || async {
        ensure!(own.words().await?.is_disjoint(&words), "the same");
        anyhow::Ok(())
    })
    .await?;
    let before = load.calls()?;
    eventually(SOON, "calls go on", || async {
        ensure!(load.calls()? > before + 10, "none");
        anyhow::Ok(())
    })
    .await?;
    let calls = load.stop().await?;
    ensure!(calls > 100, "{calls} calls are no load");
    eprintln!("{calls} calls, none failed");

    // A replica that starts serves what there is, and makes nothing.
    let before = own.certificate(AUTHORITY).await?;
    own.0.gate.replica(0).restart().await?;
    ensure!(own.certificate(AUTHORITY).await? == before, "made anew");
    own.0.gate.balancer().pin(0);
    let load = Load::start(&own.0, 1);
    eventually(
        SOON,
        "the replica that was started anew answers",
        || async {
            ensure!(load.calls()? > 10, "not yet");
            anyhow::Ok(())
        },
    )
    .await?;
    load.stop().await?;
    own.0.close().await
}

/// The clock of each machine is wrong, and API servers go by their own.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_overrides_count_by_the_time_of_api_servers() -> Result<()> {
    let world = World::builder("own-clocks").own_certificates();
    let own = Own(world.replicas(2).clocks_of_their_own().start().await?);
    own.trusted().await?;
    own.served().await?;
    for replica in own.0.gate.replicas() {
        replica.set_clock(3600)?;
    }
    for replica in 0..2 {
        let what = format!("replica {replica} knows that its clock is wrong");
        eventually(SOON, what, || async {
            let log = own.0.gate.log(replica)?;
            ensure!(log.contains("whose time counts"), "{log}");
            let page = own.0.gate.metrics(replica).await?;
            let metric = "quorumgate_clock_skew_seconds ";
            let skew = page.lines().find_map(|line| line.strip_prefix(metric));
            let skew: f64 = skew.context("no such metric")?.parse()?;
            ensure!((skew - 3600.0).abs() < 5.0, "{skew}");
            anyhow::Ok(())
        })
        .await?;
    }
    let load = Load::start(&own.0, 1);
    let before = own.certificate(SERVING).await?;
    let only = DeleteParams::default();
    own.secrets().delete(SERVING, &only).await?;
    own.replaced(SERVING, &before).await?;
    own.served().await?;
    let calls = load.calls()?;
    eventually(SOON, "calls go on", || async {
        ensure!(load.calls()? > calls + 10, "none");
        anyhow::Ok(())
    })
    .await?;
    load.stop().await?;

    let world = &own.0;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let node = world.agent_of("etcd-0").await?;
    node.freeze()?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.has_to_wait("etcd-1", &["is needed"]).await?;
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
    let until = format!("quorumgate.io/override-until={until}");
    let annotate = ["annotate", "pod", "etcd-1", until.as_str()];
    world.kubectl(&annotate).await?.success()?;
    world.lets_go(By::Delete, "etcd-1").await?;
    node.thaw()?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    own.0.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn from_certificates_in_files_to_own_ones_no_call_fails() -> Result<()> {
    // With short lives, a new authority signs after five seconds.
    let world = World::builder("own-migration")
        .reached_by_endpoints()
        .argument("--certificate-lifetime=100s")
        .argument("--authority-lifetime=1h");
    let mut own = Own(world.start().await?);
    let files = own.0.gate.ca_certificate().as_bytes().to_vec();
    let load = Load::start(&own.0, 1);
    // The first replica that is new finds a leader that makes no certificates.
    own.0.gate.roll_out_own_certificates().await?;
    own.trusted().await?;
    let bundle = own.bundles().await?.pop().flatten().context("no bundle")?;
    ensure!(
        bundle.0.ends_with(&files),
        "the one before is trusted no more"
    );
    let before = load.calls()?;
    eventually(SOON, "calls go on", || async {
        ensure!(load.calls()? > before + 10, "none");
        anyhow::Ok(())
    })
    .await?;
    load.stop().await?;
    own.0.close().await
}
