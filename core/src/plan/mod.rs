//! What a rollout does next. Pure: no clock, no IO, no async.
//!
//! [`next_step`] looks at a snapshot, the open grants and what is desired, and names one step, or what is waited for. It remembers
//! nothing: after every step the cluster is observed anew, so that a template that changes midway, a controller that was killed, and a
//! stranger's drain are nothing special. "Step 2" and the like refer to the order of a rollout in ARCHITECTURE.md.
//!
//! The planner never replaces the judgement. It only proposes what [`crate::quorum::decide()`] would allow now; whoever carries a step
//! out takes its grant first, like everyone.

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
