//! A replica beside other admission webhooks: Open Policy Agent, Gatekeeper, Kyverno and
//! OpenKruise. `make race` builds them from their Go modules and runs this. It has three parts,
//! each with a control plane of its own: how fast they answer ([`speed`]), what callers of an API
//! server see that asks them ([`api_server`]), and what they answer about members of etcd
//! ([`answers`]). `PARTS=answers,speed` chooses some.

mod answers;
mod api_server;
mod broken;
mod caller;
mod deletion;
mod foreign;
mod guarded;
mod on_paper;
mod paper_etcd;
mod paper_member;
mod plane;
mod population;
mod processor;
mod racers;
mod resident;
mod reviews;
mod round;
mod settled;
mod speed;
mod spread;
mod table;
mod turn;

use anyhow::{Result, bail};

const ALL: &str = "speed,api-server,answers";

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    let chosen = std::env::var("PARTS").unwrap_or_default();
    let parts = if chosen.is_empty() { ALL } else { &chosen };
    for part in parts.split(',') {
        match part {
            "speed" => plane::with(speed::race)?,
            "api-server" => plane::with(api_server::measure)?,
            "answers" => plane::with(answers::ask)?,
            _ => bail!("PARTS names {part}; there are {ALL}"),
        }
    }
    Ok(())
}
