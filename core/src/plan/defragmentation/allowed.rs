//! The conditions under which a member may be defragmented. They are checked before the grant and
//! once more right before the call.

use std::time::Duration;

use super::super::hindrance::Hindrance;
use super::super::version::Defect;
use super::input::{DefragmentationInput, MemberFacts};
use super::refusal::Refusal;
use crate::quorum::{
    Disruption, Grants, Kind, Member, PodName, Role, Snapshot, TargetPod, Tolerance, decide,
};

/// The time for which all voters have to have served.
const ALL_SERVE_FOR: Duration = Duration::from_secs(10);

/// The most entries that a voter may be behind.
const MOST_LAG: u64 = 1000;

/// The most entries that a member may be behind to be in sync: members of a busy cluster are
/// asked at slightly different moments.
const IN_SYNC: u64 = 10;

/// The time that a process runs at least, where the version has [`Defect::SNAPSHOT_RACE`].
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// The bytes in use that are defragmented in a second, where no earlier run says better. Slow on
/// purpose.
const BYTES_PER_SECOND: u64 = 32 << 20;

/// The share of the time that the liveness probe bears: one part in so many.
const LIVENESS_SHARE: u32 = 3;

/// The reason why the member in `target` may not be defragmented now, apart from its own grant.
pub(super) fn refusal(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &DefragmentationInput,
    target: &TargetPod,
    on_request: bool,
) -> Option<Refusal> {
    cluster(snapshot, grants, input, &target.name)
        .or_else(|| {
            let member = snapshot.member(&target.name)?;
            let own = input.member(&target.name);
            version(snapshot, member, &own)
                .or_else(|| room(member, &own, on_request))
                .or_else(|| time(member, &own, input))
        })
        .or_else(|| {
            let disruption = Disruption::of_gate(target.clone(), Kind::Defragment);
            let verdict = decide(snapshot, grants, &disruption);
            Hindrance::of_verdict(verdict).map(Refusal::from)
        })
}

/// The conditions of the cluster.
fn cluster(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &DefragmentationInput,
    target: &PodName,
) -> Option<Refusal> {
    let pods = snapshot.pods.iter();
    let hindrance = Hindrance::of_evidence(snapshot)
        .or_else(|| Hindrance::of_others(grants, target, pods, input.rolling_out));
    if let Some(hindrance) = hindrance {
        return Some(hindrance.into());
    }
    let name = |member: &Member| member.name.clone();
    let learner = snapshot.members.iter().find(|m| m.role == Role::Learner);
    if let Some(member) = learner.map(name) {
        return Some(Refusal::Learner { member });
    }
    if let Some(id) = snapshot.accused.first() {
        let mut members = snapshot.members.iter();
        let named = members.find(|m| m.id == Some(*id)).map(name);
        let member = named.unwrap_or_else(|| "no member that is listed".to_owned());
        return Some(Refusal::Corrupt { member });
    }
    let in_flight = |(_, own): &(&PodName, &MemberFacts)| own.in_flight == Some(true);
    if let Some((pod, _)) = input.members.iter().find(in_flight) {
        return Some(Refusal::InFlight { pod: pod.clone() });
    }
    attendance(snapshot, input)
}

/// The conditions that every voter serves, keeps up, and has done so for a while.
fn attendance(snapshot: &Snapshot, input: &DefragmentationInput) -> Option<Refusal> {
    if !snapshot.all_voters_serve() {
        return Some(not_all_serving(snapshot));
    }
    let lags = |m: &&Member| m.lag.is_none_or(|lag| lag > MOST_LAG);
    if let Some(member) = snapshot.members.iter().find(lags) {
        return Some(Refusal::Behind {
            member: member.name.clone(),
            behind: member.lag,
            most: MOST_LAG,
        });
    }
    let served_for = input.all_served_for;
    (served_for < ALL_SERVE_FOR).then_some(Refusal::ServingTooShort {
        served_for,
        needed: ALL_SERVE_FOR,
    })
}

/// The refusal while some voter does not serve.
pub(super) fn not_all_serving(snapshot: &Snapshot) -> Refusal {
    let Tolerance {
        voters, serving, ..
    } = snapshot.tolerance(&Grants::default());
    Refusal::NotAllServing { voters, serving }
}

fn version(snapshot: &Snapshot, member: &Member, own: &MemberFacts) -> Option<Refusal> {
    let Some(version) = own.version else {
        return Some(Refusal::VersionUnknown);
    };
    let crash = Defect::CRASH_IN_DEFRAGMENTATION;
    if crash.affects(version) {
        let defect = crash;
        return Some(Hindrance::Defect { version, defect }.into());
    }
    let pod = member.pod_name().and_then(|pod| snapshot.pod(pod));
    let up_for = pod.and_then(|pod| pod.up_for);
    let steady = member.lag.is_some_and(|lag| lag <= IN_SYNC) && up_for >= Some(STEADY_AFTER);
    let race = Defect::SNAPSHOT_RACE;
    (race.affects(version) && !steady).then_some(Refusal::Unsteady {
        version,
        defect: race,
        behind: member.lag,
        up_for,
    })
}

/// bbolt copies what is in use into a second file before it removes the first one.
fn room(member: &Member, own: &MemberFacts, on_request: bool) -> Option<Refusal> {
    let needed = member.sizes?.in_use;
    match own.room {
        Some(free) if free < needed => Some(Refusal::NoRoom { needed, free }),
        Some(_) => None,
        None => (!on_request).then_some(Refusal::RoomUnknown),
    }
}

fn time(member: &Member, own: &MemberFacts, input: &DefragmentationInput) -> Option<Refusal> {
    let predicted = predicted(member.sizes?.in_use, own);
    if let Some(bears) = own.liveness
        && predicted.saturating_mul(LIVENESS_SHARE) > bears
    {
        return Some(Refusal::LivenessTooShort { predicted, bears });
    }
    let timeout = input.settings.timeout;
    (predicted > timeout).then_some(Refusal::TooLong { predicted, timeout })
}

/// The time that a defragmentation will take: in proportion to the bytes in use, at the speed of
/// the latest run, or else at a slow one. A run copies what is in use and leaves a file of that
/// size.
pub(super) fn predicted(in_use: u64, own: &MemberFacts) -> Duration {
    let measured = own.last.as_ref().and_then(|last| {
        let copied = last.size_after.filter(|copied| *copied > 0)?;
        let factor = u32::try_from(in_use.div_ceil(copied)).unwrap_or(u32::MAX);
        Some(last.took?.saturating_mul(factor))
    });
    let assumed = || Duration::from_secs(in_use / BYTES_PER_SECOND);
    measured.unwrap_or_else(assumed).max(Duration::from_secs(1))
}
