//! The start of an attempt, from a container's spec: image, environment, mounts, command.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::Agent;
use super::container::{Exit, Mount, Run, Spec, launch};
use super::env::{self, Environment};
use super::fields::Placement;
use super::hosts;
use super::image::Image;
use super::layout::ContainerDir;
use super::sandbox::PodSandbox;
use super::volumes::Volumes;

/// The command of a container with the crash fault.
const CRASH: [&str; 3] = [
    "/bin/sh",
    "-c",
    "echo 'crashed by a fault of the test bed' >&2; exit 1",
];

/// The reason why a container was not started.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The image does not exist.
    Image(String),
    /// An object that the spec refers to is missing: `CreateContainerConfigError`.
    Config(String),
}

/// An attempt to start a container.
pub(super) struct Attempt {
    /// The agent.
    pub agent: Arc<Agent>,
    /// The pod.
    pub pod: Arc<Pod>,
    /// The container.
    pub container: Container,
    /// The container's directory.
    pub dir: ContainerDir,
    /// The pod's sandbox.
    pub sandbox: PodSandbox,
    /// The pod's volumes.
    pub volumes: Arc<Volumes>,
    /// The number of restarts before this attempt.
    pub number: i32,
    /// The crash fault: the container exits at once.
    pub crash: bool,
}

impl Attempt {
    /// Starts the container. The inner error says why the command could not be started.
    pub(super) async fn start(self) -> Result<Result<Run, Exit>, Refusal> {
        let name = self.container.image.as_deref().unwrap_or_default();
        let image = self.agent.images.find(name).map_err(Refusal::Image)?;
        let spec = self.spec(&image).await.map_err(Refusal::Config)?;
        let launched = launch::launch(&self.agent.program, &self.dir, &spec).await;
        launched.map_err(|error| Refusal::Config(format!("{error:#}")))
    }

    async fn spec(&self, image: &Image) -> Result<Spec, String> {
        let place = Placement {
            ip: self.sandbox.ip,
            host_ip: self.agent.host_ip,
        };
        let base = self.base_environment(image);
        let built = env::build(base, &self.pod, &self.container, place, &self.agent.objects).await;
        let environment = built.map_err(|missing| missing.to_string())?;
        let mounts = self
            .mounts(&environment)
            .map_err(|error| format!("{error:#}"))?;
        let working_dir = self
            .container
            .working_dir
            .as_deref()
            .filter(|d| !d.is_empty());
        Ok(Spec {
            id: format!(
                "{}/{}/{}",
                self.pod.uid().unwrap_or_default(),
                self.dir.name(),
                self.number
            ),
            attempt: self.number,
            image: self.container.image.clone().unwrap_or_default(),
            resources: fingerprint(&self.container),
            argv: self.argv(image, &environment),
            working_dir: PathBuf::from(working_dir.unwrap_or("/")),
            hostname: hosts::hostname(&self.pod),
            gid: self.sandbox.gid,
            mounts,
            env: environment.into_map(),
        })
    }

    fn base_environment(&self, image: &Image) -> Environment {
        let (host, port) = &self.agent.api_server;
        let mut base = Environment::default();
        base.set("PATH", image.path.clone());
        base.set("HOME", "/root".to_owned());
        base.set("HOSTNAME", hosts::hostname(&self.pod));
        base.set("KUBERNETES_SERVICE_HOST", host.clone());
        base.set("KUBERNETES_SERVICE_PORT", port.to_string());
        base.set("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string());
        base
    }

    fn argv(&self, image: &Image, environment: &Environment) -> Vec<String> {
        if self.crash {
            return CRASH.map(str::to_owned).into();
        }
        let command = self.container.command.as_deref().unwrap_or_default();
        let arguments = self.container.args.as_deref().unwrap_or_default();
        let mut words: Vec<_> = if command.is_empty() {
            image.entrypoint.clone()
        } else {
            command
                .iter()
                .map(|word| environment.expand(word))
                .collect()
        };
        words.extend(arguments.iter().map(|word| environment.expand(word)));
        words
    }

    /// The mounts of volumes, hosts file and resolver, the deeper ones later. Mounts of the
    /// container's spec take precedence.
    fn mounts(&self, environment: &Environment) -> anyhow::Result<Vec<Mount>> {
        let mut mounts = self.volumes.mounts(&self.container, environment)?;
        let own = [
            ("/etc/hosts", self.sandbox.dir.hosts()),
            ("/etc/resolv.conf", self.sandbox.dir.resolv_conf()),
        ];
        for (target, source) in own {
            let target = PathBuf::from(target);
            if !mounts.iter().any(|mount| mount.target == target) {
                mounts.push(Mount {
                    source,
                    target,
                    read_only: false,
                });
            }
        }
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }
}

/// A value that differs when the resources of a container have changed.
pub(super) fn fingerprint(container: &Container) -> String {
    container
        .resources
        .as_ref()
        .and_then(|resources| serde_json::to_string(resources).ok())
        .unwrap_or_default()
}
