//! The output of `testbed status`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use crate::control_plane::ControlPlane;
use crate::node::{self, ready_condition};

/// Prints processes, versions, nodes and pods. The exit code says whether the control plane is
/// well.
pub(crate) async fn print(plane: &ControlPlane) -> Result<ExitCode> {
    let mut out = String::new();
    let code = describe(&mut out, plane).await?;
    match std::io::stdout().write_all(out.as_bytes()) {
        // The reader has closed the pipe, because it has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(code),
    }
}

async fn describe(out: &mut String, plane: &ControlPlane) -> Result<ExitCode> {
    writeln!(
        out,
        "Kubernetes {}, etcd {}",
        plane.kubernetes.version, plane.etcd.version
    )?;
    writeln!(out, "state {}\n", plane.state.root().display())?;
    let mut well = true;
    let mut rows = vec![row(["PROCESS", "PID", "HEALTH"])];
    for (component, health) in plane.check().await {
        let pid = component
            .process(&plane.state)
            .running()
            .map(|identity| identity.pid().to_string());
        well &= health.is_ok();
        let health = health.map_or_else(|error| format!("{error:#}"), |()| "well".into());
        rows.push(row([
            component.name(),
            pid.as_deref().unwrap_or("-"),
            &health,
        ]));
    }
    write!(out, "{}", table(&rows))?;
    if !well {
        writeln!(out, "\n`testbed up` starts what is missing")?;
        return Ok(ExitCode::FAILURE);
    }
    let client = plane.client().await?;
    writeln!(out, "\n{}", table(&nodes(plane, &client).await?))?;
    write!(out, "{}", table(&pods(&client).await?))?;
    Ok(ExitCode::SUCCESS)
}

async fn nodes(plane: &ControlPlane, client: &Client) -> Result<Vec<Vec<String>>> {
    let mut rows = vec![row(["NODE", "READY", "AGENT"])];
    for object in Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?
    {
        let name = object.name_any();
        let agent = node::agent(&plane.state, &name).running();
        let agent = agent.map_or_else(
            || "stopped".into(),
            |identity| format!("pid {}", identity.pid()),
        );
        rows.push(row([
            &name,
            ready_condition(&object).as_deref().unwrap_or("-"),
            &agent,
        ]));
    }
    Ok(rows)
}

async fn pods(client: &Client) -> Result<Vec<Vec<String>>> {
    let mut rows = vec![row(["NAMESPACE", "POD", "PHASE", "ADDRESS", "NODE"])];
    for pod in Api::<Pod>::all(client.clone())
        .list(&ListParams::default())
        .await?
    {
        let status = pod.status.clone().unwrap_or_default();
        let phase = if pod.metadata.deletion_timestamp.is_some() {
            Some("Terminating".into())
        } else {
            status.phase
        };
        rows.push(vec![
            pod.namespace().unwrap_or_default(),
            pod.name_any(),
            phase.unwrap_or_else(|| "-".into()),
            status.pod_ip.unwrap_or_else(|| "-".into()),
            pod.spec
                .and_then(|spec| spec.node_name)
                .unwrap_or_else(|| "-".into()),
        ]);
    }
    Ok(rows)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

/// A table whose columns are as wide as their widest cell, with two spaces in between.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["NODE", "READY"]), row(["a-long-name", "True"])];
        assert_eq!(table(&rows), "NODE         READY\na-long-name  True\n");
    }
}
