//! An attempt of a probe or of a hook: exec, HTTP, HTTPS, TCP.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;

use super::http;
use crate::agent::container::exec;
use crate::agent::layout::ContainerDir;

/// The container that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The path of this program, for `container-exec`.
    pub program: PathBuf,
    /// The container's directory.
    pub dir: ContainerDir,
    /// The pod's address.
    pub ip: IpAddr,
    /// The container's spec, for named ports.
    pub container: Container,
}

impl Target {
    /// Makes one attempt of a probe.
    pub(crate) async fn probe(&self, probe: &Probe, limit: Duration) -> Result<(), String> {
        if let Some(action) = &probe.exec {
            self.exec(action, limit).await
        } else if let Some(action) = &probe.http_get {
            self.http(action).await
        } else if let Some(action) = &probe.tcp_socket {
            self.tcp(action).await
        } else {
            Err("the test bed has exec, httpGet and tcpSocket probes only".to_owned())
        }
    }

    /// Runs a lifecycle hook to its end.
    pub(crate) async fn hook(
        &self,
        hook: &LifecycleHandler,
        limit: Duration,
    ) -> Result<(), String> {
        let run = async {
            if let Some(action) = &hook.exec {
                self.exec(action, limit).await
            } else if let Some(action) = &hook.http_get {
                self.http(action).await
            } else if let Some(action) = &hook.tcp_socket {
                self.tcp(action).await
            } else if let Some(action) = &hook.sleep {
                let seconds = u64::try_from(action.seconds).unwrap_or(0);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(())
            } else {
                Ok(())
            }
        };
        let timed = tokio::time::timeout(limit, run).await;
        timed.unwrap_or_else(|_| Err(format!("not done after {} s", limit.as_secs())))
    }

    async fn exec(&self, action: &ExecAction, limit: Duration) -> Result<(), String> {
        let command = action.command.as_deref().unwrap_or_default();
        let ran = exec::exec(&self.program, &self.dir, command, limit).await;
        ran.map_err(|error| format!("{error:#}"))
    }

    async fn http(&self, action: &HTTPGetAction) -> Result<(), String> {
        let port = self.port(&action.port)?;
        let host = action.host.clone().unwrap_or_else(|| self.ip.to_string());
        http::get(&host, port, action)
            .await
            .map_err(|error| format!("{error:#}"))
    }

    async fn tcp(&self, action: &TCPSocketAction) -> Result<(), String> {
        let port = self.port(&action.port)?;
        let host = action.host.clone().unwrap_or_else(|| self.ip.to_string());
        let connected = TcpStream::connect((host.as_str(), port)).await;
        connected
            .map(drop)
            .map_err(|error| format!("dial tcp {host}:{port}: {error}"))
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => name.parse().ok().or_else(|| {
                let mut ports = self.container.ports.iter().flatten();
                ports
                    .find(|p| p.name.as_ref() == Some(name))
                    .map(|p| p.container_port)
            }),
        };
        let number = number.ok_or_else(|| format!("no port {port:?}"))?;
        u16::try_from(number).map_err(|_| format!("{number} is not a port"))
    }
}
