//! Where operations happen, and where it is written down.

use std::sync::Mutex;

use anyhow::Result;
use tokio::sync::Mutex as Turn;

use super::operation::Operation;
use super::timeline::{Entry, Timeline};
use crate::world::World;

/// The world, and what happened in it.
pub(super) struct Stage {
    pub(super) world: World,
    /// Whoever stops or freezes a replica of the gate has its turn.
    pub(super) replicas: Vec<Turn<()>>,
    timeline: Mutex<Timeline>,
}

impl Stage {
    pub(super) fn new(world: World) -> Self {
        let replicas = world.gate.replicas().iter().map(|_| Turn::new(()));
        Self {
            replicas: replicas.collect(),
            world,
            timeline: Mutex::default(),
        }
    }

    /// Does it. That it was refused, or found nobody, is no failure.
    pub(super) async fn perform(&self, operation: Operation) {
        let entry = Entry::begin(&operation);
        let outcome: Result<()> = operation.perform(self).await;
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.add(entry.end(outcome));
        }
    }

    /// The world, and all that happened.
    pub(super) fn leave(self) -> (World, Timeline) {
        let timeline = self.timeline.into_inner().unwrap_or_default();
        (self.world, timeline)
    }
}
