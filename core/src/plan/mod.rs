//! The next steps of the gate: rollouts, and in modules of their own defragmentations
//! ([`defragmentation`]), the replacement of members ([`replacement`]), their number ([`scale`])
//! and the recovery of a lost quorum ([`recovery`]).
//!
//! The order of a rollout: [`next_step`] reads a snapshot, the open grants and the wishes for the
//! rollout, and returns the next step or the reason to wait. It keeps no state: after every step
//! the cluster is observed again. So a template that changes midway, a killed controller and
//! another asker's drain need no special treatment. "Step 2" and the like refer to "The order of a
//! rollout" in docs/internals.md, which extends DEP-07's procedure.
//!
//! The planner does not replace the decision. It proposes only what [`crate::quorum::decide()`]
//! would allow now, and the controller still has to take a grant for each step, like every asker.

pub mod defragmentation;
mod desired;
mod fleet;
mod handover;
mod hindrance;
mod learner;
mod max_unavailable;
mod next;
mod non_serving;
mod ordinal_state;
mod permission;
mod preflight;
pub mod recovery;
pub mod replacement;
mod rolling_update;
mod rollout_state;
mod room;
pub mod scale;
mod serving;
mod state;
mod step;
mod version;
mod waiting;
mod without_quorum;

pub use desired::{
    Desired, Generation, Handover, NonServing, Obstacle, PodManagement, Removal, Sidecars,
};
pub use fleet::next_cluster;
pub use hindrance::Hindrance;
pub use max_unavailable::{MaxUnavailable, Unavailability};
pub use next::{Next, Steps, next_step};
pub use ordinal_state::{MOST_REPLICAS, Target, pod_name, targets};
pub use preflight::{
    ChangedSetting, EtcdSettings, Finding, RunningMember, TaggedImage, TemplateEtcd, preflight,
};
pub use rolling_update::unblock;
pub use rollout_state::{Progress, progress};
pub use state::{Absent, State};
pub use step::{Action, Because, Departure, Part, Step};
pub use version::{Defect, Version};
pub use waiting::WaitingOn;
pub use without_quorum::{Ignored, ignored};
