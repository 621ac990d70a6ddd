//! The builder of a gate.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::Gate;
use super::cleanup::Leftovers;
use super::clock::Clock;
use super::endpoints;
use super::manifests::{self, SERVICE_ACCOUNT};
use super::permissions::{self, apply_cluster_wide};
use super::replica::{Launch, Replica};
use super::serving_certificate::ServingCertificate;
use super::webhooks::Webhooks;
use crate::Sandbox;
use crate::balancer::Balancer;
use crate::free_ports::free_ports;
use crate::kubectl::Invocation;
use crate::process::Background;

/// The builder of a [`Gate`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is started"]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a choice of its own, off until a test wants it"
)]
pub struct GateBuilder {
    program: PathBuf,
    manifests: PathBuf,
    replicas: usize,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    registered: bool,
    clocks: bool,
    everywhere: bool,
    endpoints: bool,
    followed: bool,
    own_certificates: bool,
    components: Vec<&'static str>,
}

impl GateBuilder {
    pub(super) fn new(program: PathBuf, manifests: PathBuf) -> Self {
        Self {
            program,
            manifests,
            replicas: 2,
            arguments: Vec::new(),
            environment: Vec::new(),
            registered: true,
            clocks: false,
            everywhere: false,
            endpoints: false,
            followed: false,
            own_certificates: false,
            components: Vec::new(),
        }
    }

    /// Sets the number of replicas (default: 2).
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Adds an argument of `quorumgate run`, such as `--settle-time=10s`.
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Installs a component of the manifests, such as `etcd-members`, except for its patches.
    pub fn component(mut self, name: &'static str) -> Self {
        self.components.push(name);
        self
    }

    /// Adds an environment variable of every replica.
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Gives each replica a wall clock of its own, for [`Replica::set_clock`].
    pub fn clocks_of_their_own(mut self) -> Self {
        self.clocks = true;
        self
    }

    /// Makes the gate watch every namespace, as an installation without `--namespaces` does. Only
    /// for a control plane of one test: on a shared one the gate would act on other tests'
    /// clusters.
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Creates a Service without a selector, and a pod for each replica, so that the replicas keep
    /// the Service's endpoints. The API server still calls the balancer.
    pub fn keeping_endpoints(mut self) -> Self {
        self.endpoints = true;
        self
    }

    /// Creates the objects of [`GateBuilder::keeping_endpoints`], and directs the API server's
    /// calls by the endpoints: each call goes to a replica in the Service, as kube-proxy would send
    /// it, whether that answers or not.
    pub fn reached_by_endpoints(mut self) -> Self {
        self.endpoints = true;
        self.followed = true;
        self
    }

    /// Lets the replicas make their own certificates, and write the authority into the webhook
    /// configurations, which are registered without one.
    pub fn own_certificates(mut self) -> Self {
        self.own_certificates = true;
        self
    }

    /// Leaves the webhooks unregistered until [`Gate::register`].
    pub fn unregistered(mut self) -> Self {
        self.registered = false;
        self
    }

    /// Starts the gate for the sandbox's namespace. Returns when all replicas are ready and the
    /// webhooks are registered.
    pub async fn start(self, sandbox: &Sandbox) -> Result<Gate> {
        let (bed, namespace) = (sandbox.bed().clone(), sandbox.namespace());
        let name = format!("quorumgate-{namespace}");
        // As in a real installation, the gate's own namespace is not guarded.
        let home = format!("{namespace}-gate");
        let objects = manifests::read(&self.manifests, &home)?;
        let mut leftovers = Leftovers::default();
        leftovers.webhook_configuration(&name);
        leftovers.namespace(&home);
        self.apply_crds(&bed.client()).await?;
        let mut objects = objects;
        for component in &self.components {
            let (definitions, others) =
                manifests::read_component(&self.manifests, component, &home)?;
            apply_definitions(&bed.client(), definitions).await?;
            objects.extend(others);
        }
        objects.extend(self.objects_of_features(&home)?);
        let namespace_of_its_own: Namespace =
            serde_json::from_value(serde_json::json!({"metadata": {"name": home}}))?;
        apply_cluster_wide(&bed.client(), namespace_of_its_own).await?;
        permissions::apply(&bed.client(), &home, &name, &objects, &mut leftovers).await?;
        let kubeconfig = bed
            .service_account_kubeconfig(&home, SERVICE_ACCOUNT)
            .await?;

        let directory = sandbox.directory().join("gate");
        let names = NAMES.map(str::to_owned).to_vec();
        let certificate = ServingCertificate::create(directory.join("tls"), names)?;
        let mut arguments = arguments(&name, &home);
        arguments.extend(if self.own_certificates {
            own_certificates()
        } else {
            in_files(&certificate)
        });
        let only = (!self.everywhere).then_some(namespace);
        arguments.extend(only.map(|namespace| format!("--namespaces={namespace}")));
        arguments.extend(self.arguments);
        let environment = self.environment;
        if self.endpoints {
            let service = endpoints::create_service(&bed.client(), &home, &objects).await?;
            arguments.push(format!("--service={service}"));
        }
        let launch = Launch {
            program: self.program,
            kubeconfig,
            arguments,
            environment,
            everywhere: self.endpoints,
        };

        let mut replicas = Vec::with_capacity(self.replicas);
        for index in 0..self.replicas {
            let [webhooks, admin] = free_ports()?;
            let name = format!("quorumgate-{index}");
            let clock = self.clocks.then(|| Clock::create(&directory, &name));
            let mut launch = launch.clone();
            if self.endpoints {
                let ports = [webhooks.port(), admin.port()];
                let pod = endpoints::create_pod(&bed.client(), &home, &name, ports).await?;
                launch.environment.extend(pod);
                launch.kubeconfig = bed.pod_kubeconfig(&home, &name).await?;
            }
            let process = Background::new(name, &directory, &directory);
            replicas.push(Replica::start(
                process,
                launch,
                webhooks,
                admin,
                clock.transpose()?,
            )?);
        }
        let balancer = Balancer::start(replicas.iter().map(Replica::address))?;
        let standing = self.followed.then(|| {
            let names = replicas.iter().map(|replica| replica.name().to_owned());
            endpoints::follow(&bed.client(), &home, names.collect(), balancer.directions())
        });
        let authority = (!self.own_certificates).then(|| certificate.authority());
        let webhooks = Webhooks::new(
            &objects,
            &name,
            namespace,
            only,
            balancer.address(),
            authority,
        )?;
        // If a later step fails, dropping the gate cleans up.
        let gate = Gate {
            bed,
            replicas,
            balancer,
            home,
            _standing: standing,
            certificate,
            webhooks,
            leftovers,
            closed: false,
        };
        gate.ready().await?;
        if self.registered {
            gate.register().await?;
        }
        Ok(gate)
    }

    /// The webhooks that a feature adds to those of every installation.
    fn objects_of_features(&self, home: &str) -> Result<Vec<Value>> {
        let on = "QuorumAwareUpdatesWithOnDelete=true";
        if self.arguments.iter().any(|argument| argument.contains(on)) {
            manifests::read_component(&self.manifests, "on-delete", home).map(|(_, others)| others)
        } else {
            Ok(Vec::new())
        }
    }

    /// Applies the output of `quorumgate crds`.
    async fn apply_crds(&self, client: &Client) -> Result<()> {
        let printed = Invocation::new(&self.program)
            .args(["crds"])
            .await?
            .success()?;
        apply_definitions(client, manifests::parse(&printed)?).await
    }
}

/// The options of a gate whose certificate is in files.
fn in_files(certificate: &ServingCertificate) -> [String; 2] {
    let (certificate, key) = (certificate.certificate_file(), certificate.key_file());
    [
        format!("--tls-cert={}", certificate.display()),
        format!("--tls-key={}", key.display()),
    ]
}

/// Applies definitions, and returns when they are established.
async fn apply_definitions(client: &Client, definitions: Vec<Value>) -> Result<()> {
    for object in definitions {
        let crd: CustomResourceDefinition = serde_json::from_value(object)?;
        let name = crd.name_any();
        apply_cluster_wide(client, crd).await?;
        let api = Api::<CustomResourceDefinition>::all(client.clone());
        let established = await_condition(api, &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(10), established)
            .await
            .with_context(|| format!("{name} is not established"))??;
    }
    Ok(())
}

/// The names at which the gate is called.
const NAMES: [&str; 3] = ["0.0.0.0", "127.0.0.1", "localhost"];

/// The arguments of a replica that makes its own certificates.
pub(super) fn own_certificates() -> [String; 2] {
    [
        "--own-certificates".to_owned(),
        format!("--certificate-names={}", NAMES.join(",")),
    ]
}

fn arguments(name: &str, home: &str) -> Vec<String> {
    vec![
        format!("--webhook-configuration={name}"),
        format!("--lease-namespace={home}"),
        "--lease-name=quorumgate".to_owned(),
        "--log-format=text".to_owned(),
    ]
}
