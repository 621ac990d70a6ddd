//! The order of a rollout: which step comes next.
//!
//! [`next_step`] reads a snapshot, the open grants and the wishes for the rollout, and returns the
//! next step or the reason to wait. It keeps no state: after every step the cluster is observed
//! again. So a template that changes midway, a killed controller and another asker's drain need no
//! special treatment. "Step 2" and the like refer to "The order of a rollout" in ARCHITECTURE.md,
//! which extends DEP-07's procedure.
//!
//! The planner does not replace the decision. It proposes only what [`crate::quorum::decide()`]
//! would allow now, and the controller still has to take a grant for each step, like every asker.

mod absence;
mod begin;
mod board;
mod desired;
mod handover;
mod max_unavailable;
mod next;
mod non_serving;
mod permission;
mod rolling_update;
mod room;
mod serving;
mod state;
mod step;
mod targets;
mod waiting;
mod without_quorum;

pub use absence::{Absent, Unavailability};
pub use board::{Progress, progress};
pub use desired::{Desired, Generation, Handover, NonServing, Obstacle, PodManagement, Removal};
pub use max_unavailable::MaxUnavailable;
pub use next::{Next, Steps, next_step};
pub use rolling_update::unblock;
pub use state::State;
pub use step::{Action, Because, Departure, Part, Step};
pub use targets::{MOST_REPLICAS, Target, pod_name, targets};
pub use waiting::WaitingOn;
