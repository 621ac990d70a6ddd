//! Packet filter rules with the lifetime of a guard.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::process::Identity;

/// The prefix of table names, `testbed_<pid>_<start time>_<number>`. Tables of a dead process can
/// be told from those in use by it.
const PREFIX: &str = "testbed_";

/// Rules in force, which are removed when the value is dropped.
#[derive(Debug)]
#[must_use = "the rules are removed when this is dropped"]
pub struct Cut {
    table: String,
}

impl Cut {
    /// Applies rules to the packets that leave any process of this machine. On loopback these are
    /// all packets.
    pub(super) fn with_rules(rules: &[String]) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        remove_leftovers()?;
        let process = Identity::myself()?.to_string().replace(' ', "_");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let table = format!("{PREFIX}{process}_{number}");
        let chain = "type filter hook output priority 0; policy accept;";
        let rules = rules.join("\n");
        let script = format!("table inet {table} {{\nchain output {{\n{chain}\n{rules}\n}}\n}}\n");
        nft(&["-f", "-"], &script)?;
        Ok(Self { table })
    }

    /// Removes the rules.
    pub fn heal(self) {
        drop(self);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.table) {
            tracing::warn!("{error:#}");
        }
    }
}

/// A rule that refuses connections to a port and resets those that are open.
pub(super) fn refuse(selector: &str) -> String {
    format!("{selector} reject with tcp reset")
}

/// A rule that drops every packet, so that a client waits for its timeout.
pub(super) fn lose(selector: &str) -> String {
    format!("{selector} drop")
}

/// Rules that reset open connections and drop new ones. To a peer this looks like a broken network,
/// without the minutes that TCP would take to give up.
pub(super) fn part(selector: &str) -> [String; 2] {
    [
        lose(&format!("{selector} tcp flags & (syn | ack) == syn")),
        refuse(selector),
    ]
}

/// Removes tables of processes that died before they could.
fn remove_leftovers() -> Result<()> {
    for table in nft(&["list", "tables", "inet"], "")?.lines() {
        let Some(name) = table.strip_prefix("table inet ") else {
            continue;
        };
        let Some(owner) = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.rsplit_once('_'))
        else {
            continue;
        };
        let owner = owner.0.replace('_', " ").parse::<Identity>();
        if owner.is_ok_and(|owner| !owner.is_running()) {
            // Another process may have removed the table first.
            let _ = remove(name);
        }
    }
    Ok(())
}

fn remove(table: &str) -> Result<()> {
    nft(&["delete", "table", "inet", table], "").map(drop)
}

/// Runs nft. Returns its output.
fn nft(arguments: &[&str], input: &str) -> Result<String> {
    // Debian has nft there, and PATH may lack sbin.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut child = Command::new("nft")
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("network faults need nft; install it with `apt-get install nftables`")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .context("nft does not read its rules")?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    if why.contains("not permitted") {
        bail!(
            "network faults need the right to change packet filters: run as root ({})",
            why.trim()
        );
    }
    bail!("nft {} failed: {}", arguments.join(" "), why.trim())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Network faults need root. Without it this test fails with that reason, like all tests that
    /// use them.
    #[test]
    fn a_cut_lasts_as_long_as_its_guard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        TcpStream::connect(address).unwrap();
        let rule = refuse(&format!(
            "ip daddr {} tcp dport {}",
            address.ip(),
            address.port()
        ));
        let cut = Cut::with_rules(&[rule]).unwrap();
        assert!(TcpStream::connect(address).is_err());
        cut.heal();
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn open_connections_are_parted_at_once() {
        use std::io::Read as _;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let _server = listener.accept().unwrap();
        let cut = Cut::with_rules(&part(&format!("tcp dport {}", address.port()))).unwrap();
        // The packet is refused, and the connection reset.
        let _ = client.write_all(b"x");
        assert!(client.read(&mut [0]).is_err());
        drop(cut);
    }

    #[test]
    fn rules_of_a_process_that_died_are_removed() {
        // No process has a pid above the kernel's limit.
        let dead = format!("{PREFIX}99999999_1_0");
        nft(&["add", "table", "inet", &dead], "").unwrap();
        let cut = Cut::with_rules(&[]).unwrap();
        let tables = nft(&["list", "tables", "inet"], "").unwrap();
        assert!(
            !tables.contains(&dead) && tables.contains(&cut.table),
            "{tables}"
        );
    }
}
