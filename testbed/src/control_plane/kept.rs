//! Components that end by themselves when something goes wrong, and count on being started again.
//!
//! kube-scheduler and kube-controller-manager do so on purpose: the one when its cache no longer agrees with the API server (as
//! after a restart of that), the other when it cannot reach the API server while it starts. A kubelet would start them again.

use std::process::Command;

/// Runs its arguments until SIGTERM comes; gives up after a number of lives, so that a component that cannot start ends.
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

/// A command that runs `component`, and again when it ends.
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

    /// Notes its pid, and lives until it is killed.
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
            Identity::of(pid)
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn what_ends_by_itself_is_started_again_and_ends_with_its_keeper() {
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
    async fn what_is_kept_is_killed_with_its_keeper() {
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
