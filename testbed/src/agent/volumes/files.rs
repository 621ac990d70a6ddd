//! Volumes whose files come from the API: Secret, ConfigMap, downward API, and projections of these
//! and of tokens.
//!
//! All of them are a list of sources that render to files. The writer follows every source and
//! rewrites the files when one changes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, DownwardAPIProjection, KeyToPath, Pod, Secret,
    SecretProjection, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use tokio::sync::watch;

use super::atomic::{self, Payload};
use super::token::{self, Token};
use crate::agent::Agent;
use crate::agent::fields::{self, Placement};
use crate::agent::objects::{Lookup, Subscription};
use crate::agent::retry::Retry;

/// The mode of files without one in the spec.
const DEFAULT_MODE: i32 = 0o644;

/// The sources of a volume's files.
#[derive(Clone, Debug)]
pub(super) struct Files {
    sources: Vec<VolumeProjection>,
    mode: i32,
}

impl Files {
    /// The sources of a volume. `None` if its content does not come from the API.
    pub(super) fn from_volume(volume: &Volume) -> Option<Self> {
        let mut source = VolumeProjection::default();
        let mode = if let Some(projected) = &volume.projected {
            let sources = projected.sources.clone().unwrap_or_default();
            return Some(Self {
                sources,
                mode: projected.default_mode.unwrap_or(DEFAULT_MODE),
            });
        } else if let Some(secret) = &volume.secret {
            source.secret = Some(SecretProjection {
                name: secret.secret_name.clone().unwrap_or_default(),
                items: secret.items.clone(),
                optional: secret.optional,
            });
            secret.default_mode
        } else if let Some(map) = &volume.config_map {
            source.config_map = Some(ConfigMapProjection {
                name: map.name.clone(),
                items: map.items.clone(),
                optional: map.optional,
            });
            map.default_mode
        } else {
            let downward = volume.downward_api.as_ref()?;
            source.downward_api = Some(DownwardAPIProjection {
                items: downward.items.clone(),
            });
            downward.default_mode
        };
        Some(Self {
            sources: vec![source],
            mode: mode.unwrap_or(DEFAULT_MODE),
        })
    }

    /// A writer of these files into `dir`.
    pub(super) fn writer(
        self,
        agent: Arc<Agent>,
        pod: watch::Receiver<Arc<Pod>>,
        dir: PathBuf,
        place: Placement,
    ) -> Writer {
        let namespace = pod.borrow().metadata.namespace.clone().unwrap_or_default();
        let mut secrets = BTreeMap::new();
        let mut maps = BTreeMap::new();
        for source in &self.sources {
            if let Some(secret) = &source.secret {
                secrets.insert(
                    secret.name.clone(),
                    agent.objects.secret(&namespace, &secret.name),
                );
            }
            if let Some(map) = &source.config_map {
                maps.insert(
                    map.name.clone(),
                    agent.objects.config_map(&namespace, &map.name),
                );
            }
        }
        let follow_secrets = secrets.values().map(|s| s.follow()).collect();
        let follow_maps = maps.values().map(|s| s.follow()).collect();
        Writer {
            files: self,
            agent,
            pod,
            dir,
            place,
            secrets,
            maps,
            follow_secrets,
            follow_maps,
            tokens: HashMap::new(),
        }
    }
}

/// Writes a volume's files, first once and then on every change.
pub(super) struct Writer {
    files: Files,
    agent: Arc<Agent>,
    pod: watch::Receiver<Arc<Pod>>,
    dir: PathBuf,
    place: Placement,
    secrets: BTreeMap<String, Arc<Subscription<Secret>>>,
    maps: BTreeMap<String, Arc<Subscription<ConfigMap>>>,
    follow_secrets: Vec<watch::Receiver<Lookup<Secret>>>,
    follow_maps: Vec<watch::Receiver<Lookup<ConfigMap>>>,
    tokens: HashMap<usize, Token>,
}

impl Writer {
    /// Writes the files once all sources are known.
    pub(super) async fn first(&mut self) -> std::io::Result<()> {
        let mut retry = Retry::for_start();
        loop {
            match self.render().await {
                Ok(payload) => return atomic::write(&self.dir, &payload),
                Err(missing) => tracing::debug!(dir = %self.dir.display(), %missing, "waiting"),
            }
            tokio::select! {
                () = self.changed() => retry = Retry::for_start(),
                () = retry.wait() => {}
            }
        }
    }

    /// Follows the sources for ever.
    pub(super) async fn keep_current(mut self) {
        let mut retry = Retry::default();
        loop {
            let again = self.until_renewal();
            tokio::select! {
                () = self.changed() => {}
                () = tokio::time::sleep_until(again.into()) => {}
            }
            match self.render().await {
                Ok(payload) => {
                    retry = Retry::default();
                    if let Err(error) = atomic::write(&self.dir, &payload) {
                        tracing::warn!(dir = %self.dir.display(), %error, "volume not updated");
                    }
                }
                // The files stay as they are, as with a kubelet.
                Err(missing) => {
                    tracing::debug!(dir = %self.dir.display(), %missing, "volume kept as it was");
                    retry.wait().await;
                }
            }
        }
    }

    fn until_renewal(&self) -> Instant {
        const FAR: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
        let next = self.tokens.values().map(|t| t.renew_at).min();
        next.unwrap_or_else(|| Instant::now() + FAR)
    }

    /// Waits until any source has changed.
    async fn changed(&mut self) {
        // A closed channel never changes again.
        async fn one<T>(receiver: &mut watch::Receiver<T>) {
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        let mut all: Vec<BoxFuture<'_, ()>> = vec![one(&mut self.pod).boxed()];
        all.extend(self.follow_secrets.iter_mut().map(|r| one(r).boxed()));
        all.extend(self.follow_maps.iter_mut().map(|r| one(r).boxed()));
        select_all(all).await;
    }

    async fn render(&mut self) -> Result<Payload, String> {
        let mut payload = Payload::new();
        for (index, source) in self.files.sources.clone().into_iter().enumerate() {
            if let Some(secret) = &source.secret {
                self.add_secret(&mut payload, secret).await?;
            }
            if let Some(map) = &source.config_map {
                self.add_config_map(&mut payload, map).await?;
            }
            if let Some(downward) = &source.downward_api {
                self.add_downward(&mut payload, downward)?;
            }
            if let Some(token) = &source.service_account_token {
                self.add_token(&mut payload, index, token).await?;
            }
        }
        Ok(payload)
    }

    async fn add_secret(&self, out: &mut Payload, from: &SecretProjection) -> Result<(), String> {
        let Some(subscription) = self.secrets.get(&from.name) else {
            return Ok(());
        };
        match subscription.known().await {
            Lookup::Present(secret) => {
                let data = secret.data.iter().flatten();
                let data = data.map(|(k, v)| (k.clone(), v.0.clone())).collect();
                self.add(
                    out,
                    data,
                    from.items.as_deref(),
                    from.optional == Some(true),
                )
            }
            _ if from.optional == Some(true) => Ok(()),
            _ => Err(format!("secret {:?} not found", from.name)),
        }
    }

    async fn add_config_map(
        &self,
        out: &mut Payload,
        from: &ConfigMapProjection,
    ) -> Result<(), String> {
        let Some(subscription) = self.maps.get(&from.name) else {
            return Ok(());
        };
        match subscription.known().await {
            Lookup::Present(map) => {
                let text = map.data.iter().flatten();
                let binary = map.binary_data.iter().flatten();
                let data = text
                    .map(|(k, v)| (k.clone(), v.clone().into_bytes()))
                    .chain(binary.map(|(k, v)| (k.clone(), v.0.clone())))
                    .collect();
                self.add(
                    out,
                    data,
                    from.items.as_deref(),
                    from.optional == Some(true),
                )
            }
            _ if from.optional == Some(true) => Ok(()),
            _ => Err(format!("configmap {:?} not found", from.name)),
        }
    }

    /// Adds all keys, or the listed ones under their paths.
    fn add(
        &self,
        out: &mut Payload,
        mut data: BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        optional: bool,
    ) -> Result<(), String> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            out.extend(
                data.into_iter()
                    .map(|(k, v)| (PathBuf::from(k), (v, self.mode(None)))),
            );
            return Ok(());
        };
        for item in items {
            match data.remove(&item.key) {
                Some(content) => {
                    out.insert(PathBuf::from(&item.path), (content, self.mode(item.mode)));
                }
                None if optional => {}
                None => return Err(format!("references non-existent key {:?}", item.key)),
            }
        }
        Ok(())
    }

    fn add_downward(&self, out: &mut Payload, from: &DownwardAPIProjection) -> Result<(), String> {
        let pod = self.pod.borrow().clone();
        for item in from.items.iter().flatten() {
            let value = if let Some(selector) = &item.field_ref {
                fields::field(&pod, self.place, &selector.field_path)
            } else if let Some(selector) = &item.resource_field_ref {
                let spec = pod.spec.iter().flat_map(|s| &s.containers);
                let mut named = spec.filter(|c| Some(&c.name) == selector.container_name.as_ref());
                named
                    .next()
                    .and_then(|container| fields::resource(container, selector))
            } else {
                None
            };
            let value = value.ok_or_else(|| format!("no value for {:?}", item.path))?;
            out.insert(
                PathBuf::from(&item.path),
                (value.into_bytes(), self.mode(item.mode)),
            );
        }
        Ok(())
    }

    async fn add_token(
        &mut self,
        out: &mut Payload,
        index: usize,
        from: &ServiceAccountTokenProjection,
    ) -> Result<(), String> {
        let held = self
            .tokens
            .get(&index)
            .filter(|t| t.renew_at > Instant::now())
            .cloned();
        let token = if let Some(token) = held {
            token
        } else {
            let pod = self.pod.borrow().clone();
            let fresh = token::request(&self.agent.client, &pod, from).await;
            fresh.map_err(|error| format!("token: {error}"))?
        };
        // Only the owner may read a token, whatever the volume's mode is.
        out.insert(
            PathBuf::from(&from.path),
            (token.value.clone().into_bytes(), 0o600),
        );
        self.tokens.insert(index, token);
        Ok(())
    }

    fn mode(&self, own: Option<i32>) -> u32 {
        own.unwrap_or(self.files.mode).cast_unsigned()
    }
}
