//! Replacement of certificates of members and of the gate while they run.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

use super::{EtcdCluster, objects};
use crate::pki::{Authority, Request};

impl EtcdCluster {
    /// Replaces the gate's client certificate by one that expired an hour ago.
    pub async fn expire_client_certificate(&self) -> Result<()> {
        let expired = self
            .client_request()
            .until(SystemTime::now() - Duration::from_secs(3600));
        self.write_client_certificate(&self.authority().await?, &expired)
            .await
    }

    /// Replaces the gate's client certificate by a new, valid one.
    pub async fn rotate_client_certificate(&self) -> Result<()> {
        self.write_client_certificate(&self.authority().await?, &self.client_request())
            .await
    }

    /// Replaces the members' server and peer certificates by new, valid ones of the same authority.
    /// etcd reads them again at the next handshake.
    pub async fn rotate_member_certificates(&self) -> Result<()> {
        let authority = self.authority().await?;
        objects::write_member_certificates(&self.client, &self.namespace, &self.spec, &authority)
            .await
    }

    /// Replaces the gate's client certificate by one of an authority that no member knows.
    pub async fn forge_client_certificate(&self) -> Result<()> {
        let stranger = Authority::new("a stranger")?;
        self.write_client_certificate(&stranger, &self.client_request())
            .await
    }

    fn client_request(&self) -> Request {
        objects::client_request(&self.spec.gate_user)
    }

    async fn authority(&self) -> Result<Authority> {
        let found = objects::issuer(&self.client, &self.namespace, &self.spec).await?;
        found.with_context(|| format!("{self:?} has no certificates"))
    }

    async fn write_client_certificate(&self, by: &Authority, request: &Request) -> Result<()> {
        let credential = by.issue(request)?;
        let secret = objects::client_secret(&self.spec);
        let known = self.authority().await?;
        objects::write_tls(&self.client, &self.namespace, &secret, &credential, &known).await
    }
}
