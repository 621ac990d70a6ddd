//! `quorumgate check`: asks the gate for its health the way API servers reach it, at the address
//! and by the authority that the webhook configurations name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::{Api, Client, Config};

use super::kubernetes;
use super::print::print;
use crate::clock::{Clock, monotonic_now};
use crate::named;
use crate::{cli, crypto};

/// The time limit of one question.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a question is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the gate is asked, and by which authority its certificate is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Door {
    address: String,
    authority: Vec<u8>,
}

pub(super) async fn run(options: cli::Check) -> Result<()> {
    crate::install_crypto_provider();
    let client = kubernetes::connect(&Clock::system(), &Arc::default()).await?;
    let until = monotonic_now() + options.timeout;
    loop {
        match all_answer(&client, &options.webhook_configuration).await {
            Err(_) if monotonic_now() < until => tokio::time::sleep(PAUSE).await,
            answers => return answers,
        }
    }
}

async fn all_answer(client: &Client, configuration: &str) -> Result<()> {
    for door in doors(client, configuration).await? {
        ask(&door)
            .await
            .with_context(|| format!("the gate is not well at {}", door.address))?;
        print(&format!(
            "{} answers by TLS that it is ready\n",
            door.address
        ))?;
    }
    Ok(())
}

/// The doors that the API server knows.
async fn doors(client: &Client, name: &str) -> Result<BTreeSet<Door>> {
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let missing = |kind: &str| format!("the {kind} {name}, by which the API server asks the gate");
    let validating = named::get(&validating, named::OF_OBJECT, name)
        .await
        .with_context(|| missing("ValidatingWebhookConfiguration"))?;
    let mutating = named::get(&mutating, named::OF_OBJECT, name)
        .await
        .with_context(|| missing("MutatingWebhookConfiguration"))?;
    let validating = validating.webhooks.into_iter().flatten();
    let mutating = mutating.webhooks.into_iter().flatten();
    let all = validating.map(|hook| (hook.name, hook.client_config));
    let all = all.chain(mutating.map(|hook| (hook.name, hook.client_config)));
    let doors: BTreeSet<Door> = all
        .map(|(hook, client)| door(client).with_context(|| format!("the webhook {hook}")))
        .collect::<Result<_>>()?;
    ensure!(!doors.is_empty(), "{name} has no webhooks");
    Ok(doors)
}

fn door(client: WebhookClientConfig) -> Result<Door> {
    let authority = client.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
    ensure!(
        !authority.is_empty(),
        "has no caBundle, so API servers cannot know the gate: it is written by the replica that leads, or by cert-manager's cainjector"
    );
    let address = match (client.service, client.url) {
        (Some(service), _) => format!(
            "https://{}.{}.svc:{}",
            service.name,
            service.namespace,
            service.port.unwrap_or(443)
        ),
        (None, Some(url)) => {
            let url: http::Uri = url.parse()?;
            format!(
                "https://{}",
                url.authority().context("has a URL without a host")?
            )
        }
        (None, None) => bail!("has neither a Service nor a URL"),
    };
    Ok(Door { address, authority })
}

async fn ask(door: &Door) -> Result<()> {
    let authority = crypto::certificates(&door.authority).context("its caBundle")?;
    let mut config = Config::new(door.address.parse()?);
    config.root_cert = Some(authority.into_iter().map(|one| one.to_vec()).collect());
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = Some(PATIENCE);
    config.default_retry = false;
    let ready = Request::get("/readyz").body(Vec::new())?;
    Client::try_from(config)?.request_text(ready).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::admissionregistration::v1::ServiceReference;

    use super::*;

    fn service(port: Option<i32>) -> WebhookClientConfig {
        WebhookClientConfig {
            ca_bundle: Some(ByteString(b"PEM".to_vec())),
            service: Some(ServiceReference {
                name: "gate".into(),
                namespace: "ns".into(),
                path: Some("/validate/pods".into()),
                port,
            }),
            url: None,
        }
    }

    #[test]
    fn the_gate_is_asked_where_api_servers_ask_it() {
        let at = |client| door(client).unwrap().address;
        assert_eq!(at(service(None)), "https://gate.ns.svc:443");
        assert_eq!(at(service(Some(8443))), "https://gate.ns.svc:8443");
        let by_url = WebhookClientConfig {
            service: None,
            url: Some("https://10.0.0.1:8443/validate/pods".into()),
            ..service(None)
        };
        assert_eq!(at(by_url), "https://10.0.0.1:8443");
    }

    #[test]
    fn a_webhook_without_an_authority_or_an_address_is_not_well() {
        let unknown = WebhookClientConfig {
            ca_bundle: None,
            ..service(None)
        };
        let said = door(unknown).unwrap_err().to_string();
        assert!(said.contains("caBundle"), "{said}");
        let nowhere = WebhookClientConfig {
            service: None,
            ..service(None)
        };
        let said = door(nowhere).unwrap_err().to_string();
        assert!(said.contains("neither"), "{said}");
    }
}
