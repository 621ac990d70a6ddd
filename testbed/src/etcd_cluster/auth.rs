//! etcd's own authentication.

use anyhow::Result;
use etcd_client::{Client, UserAddOptions};

use super::EtcdCluster;
use super::spec::{Auth, PASSWORD};

impl EtcdCluster {
    /// Switches authentication on with the builder's settings: user `root` for the test bed, and
    /// the gate's user. The cluster has to be quorate. Does nothing with [`Auth::Off`].
    pub async fn enable_auth(&self) -> Result<()> {
        let mut etcd = self.connect().await?;
        let gate = self.spec.gate_user.as_str();
        match self.spec.auth {
            Auth::Off => return Ok(()),
            Auth::GateIsUnknown => {}
            Auth::GateIsUser => add_user(&mut etcd, gate).await?,
            Auth::GateIsRoot => add_root(&mut etcd, gate).await?,
            Auth::Password => {
                for name in [gate, "root"] {
                    etcd.user_add(name, PASSWORD, None).await?;
                    make_root(&mut etcd, name).await?;
                }
                etcd.auth_enable().await?;
                return Ok(());
            }
        }
        add_root(&mut etcd, "root").await?;
        etcd.auth_enable().await?;
        Ok(())
    }
}

/// Adds a user without a password, who is known by a certificate only.
async fn add_user(etcd: &mut Client, name: &str) -> Result<()> {
    etcd.user_add(name, "", Some(UserAddOptions::new().with_no_pwd()))
        .await?;
    Ok(())
}

async fn add_root(etcd: &mut Client, name: &str) -> Result<()> {
    add_user(etcd, name).await?;
    make_root(etcd, name).await
}

async fn make_root(etcd: &mut Client, name: &str) -> Result<()> {
    if !etcd.role_list().await?.roles().contains(&"root".to_owned()) {
        etcd.role_add("root").await?;
    }
    etcd.user_grant_role(name, "root").await?;
    Ok(())
}
