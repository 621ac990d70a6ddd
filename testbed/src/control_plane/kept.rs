//! Components that exit when something goes wrong, and rely on being restarted.
//!
//! kube-scheduler and kube-controller-manager exit on purpose: the first when its cache no longer
//! agrees with the API server (as after a restart of that), the second when it cannot reach the API
//! server at its start. A kubelet would restart them.

use std::process::Command;

/// A shell script that runs its arguments until it gets SIGTERM. It restarts them a limited number
/// of times, so that a component that cannot start ends.
const KEEPER: &str = r#"
trap 'trap "" TERM; kill 0; wait; exit' TERM
for life in 1 2 3 4 5 6 7 8 9 10; do
    "$@" &
    wait $!
    echo "ended with $? in life $life, is started again" >&2
    sleep 0.5 &
    wait $!
done
exit 1
"#;

/// The command that runs `component`, and restarts it when it exits.
pub(super) fn kept(component: &Command) -> Command {
    let mut keeper = Command::new("sh");
    keeper
        .args(["-c", KEEPER, "keeper"])
        .arg(component.get_program())
        .args(component.get_args());
    keeper
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::eventually::eventually;
    use crate::process::{Background, Identity};

    const SOON: Duration = Duration::from_secs(20);

    /// A component that records its pid and runs until it is killed.
    fn component(notes: &Path) -> Command {
        let mut component = Command::new("sh");
        component
            .args(["-c", "echo $$ >> \"$0\"; exec sleep 60"])
            .arg(notes);
        component
    }

    async fn life(notes: &Path, number: usize) -> Identity {
        eventually(SOON, format!("life {number} has begun"), async || {
            let text = fs::read_to_string(notes).ok()?;
            let pid = text.lines().nth(number)?.parse().ok()?;
            Identity::read(pid)
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn a_component_that_exits_is_restarted_and_ends_with_its_keeper() {
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("notes");
        let process = Background::new("kept", dir.path(), dir.path());
        process.spawn(kept(&component(&notes))).unwrap();
        let first = life(&notes, 0).await;
        first.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        let second = life(&notes, 1).await;
        process.stop(SOON).await.unwrap();
        assert!(!second.is_running());
    }

    #[tokio::test]
    async fn a_kept_component_is_killed_with_its_keeper() {
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("notes");
        let process = Background::new("kept", dir.path(), dir.path());
        process.spawn(kept(&component(&notes))).unwrap();
        let only = life(&notes, 0).await;
        process.kill().await.unwrap();
        eventually(SOON, "it is gone too", async || !only.is_running())
            .await
            .unwrap();
    }
}
