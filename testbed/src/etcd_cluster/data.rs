//! A database that is filled up, and the alarms for that.

use anyhow::{Result, ensure};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Error};

use super::EtcdCluster;

/// An alarm that a member has raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The member that raised it.
    pub member_id: u64,
    /// The kind of alarm.
    pub kind: AlarmType,
}

/// The size in bytes of a value of [`EtcdCluster::fill_quota`]. etcd refuses requests above 1.5
/// MiB.
const FILLING: usize = 1 << 20;

impl EtcdCluster {
    /// The active alarms.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        let answer = self
            .connect()
            .await?
            .alarm(AlarmAction::Get, AlarmType::None, None)
            .await?;
        let alarm = |a: &etcd_client::AlarmMember| Alarm {
            member_id: a.member_id(),
            kind: a.alarm(),
        };
        Ok(answer.alarms().iter().map(alarm).collect())
    }

    /// Disarms all active alarms.
    pub async fn disarm(&self) -> Result<()> {
        let mut etcd = self.connect().await?;
        for alarm in self.alarms().await? {
            let mut whose = AlarmOptions::new();
            whose.with_member(alarm.member_id);
            etcd.alarm(AlarmAction::Deactivate, alarm.kind, Some(whose))
                .await?;
        }
        Ok(())
    }

    /// Writes until etcd raises NOSPACE. The cluster should have a small quota
    /// ([`quota_bytes`](super::EtcdClusterBuilder::quota_bytes)), since the default needs two
    /// gibibytes.
    pub async fn fill_quota(&self) -> Result<()> {
        let quota = self.spec.quota_bytes.unwrap_or(u64::MAX);
        ensure!(
            quota <= 64 << 20,
            "give {self:?} a quota of at most 64 MiB before filling it"
        );
        let mut etcd = self.connect().await?;
        for piece in 0_u32.. {
            match etcd
                .put(format!("filling/{piece}"), vec![0_u8; FILLING], None)
                .await
            {
                Ok(_) => {}
                Err(Error::GRpcStatus(status)) if status.message().contains("space exceeded") => {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
