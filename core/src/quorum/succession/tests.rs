use super::*;
use crate::quorum::condition::Condition;
use crate::quorum::process::ProcessState;
use crate::quorum::snapshot::{MemberPod, Observation, Role};
use crate::quorum::why::Why;
use crate::quorum::{Actor, ClusterRef, Grace, GrantKind, Kind, PodName, TargetPod};

const MAJORITY: Basis = Basis::Majority {
    others: 2,
    majority: 2,
};

/// A cluster of three serving members, `m-0` to `m-2` with the ids 1 to 3. The member with the id
/// `leader` leads in `term`.
fn led_by(leader: u64, term: u64) -> Snapshot {
    let cluster = ClusterRef::new("ns", "m");
    let mut snapshot = Snapshot::assemble(&Observation::before_any_look(cluster, 3));
    snapshot.leader = Some(MemberId(leader));
    snapshot.term = Some(term);
    snapshot.members = (0..3).map(|n| member(n, leader)).collect();
    snapshot
}

fn member(n: u64, leader: u64) -> Member {
    let name = format!("m-{n}");
    let id = n + 1;
    Member {
        id: Some(MemberId(id)),
        pod_name: Some(PodName::new(&name)),
        pod: Some(MemberPod {
            name: PodName::new(&name),
            uid: name.as_str().into(),
            terminating: false,
            revision: None,
        }),
        name,
        role: Role::Voter,
        leader: id == leader,
        condition: Condition::Serving,
        process: ProcessState::Alive,
        leaderless: false,
        lag: Some(n),
        sizes: None,
        alarms: Vec::new(),
    }
}

fn eviction(pod: &str) -> Disruption {
    Disruption {
        target: TargetPod {
            name: PodName::new(pod),
            uid: pod.into(),
        },
        kind: Kind::Evict,
        actor: Actor::Stranger,
        grace: Grace::Graceful,
        precondition: None,
    }
}

/// The result for the eviction of `pod`, permitted on the ground of `basis`.
fn of(
    snapshot: &Snapshot,
    pod: &str,
    basis: Basis,
    open: impl Into<Option<OpenMove>>,
) -> Succession {
    let grants = Grants::default();
    succession(
        snapshot,
        &grants,
        &eviction(pod),
        basis,
        open.into().as_ref(),
    )
}

fn moving(from: u64, to: u64, term: u64) -> LeaderMove {
    LeaderMove {
        from: MemberId(from),
        to: MemberId(to),
        term,
    }
}

/// A move from `m-0`, which led in term 7, to `m-1`. The replica has seen the move in the budget,
/// and the present leader lead, for that many seconds.
fn open(recorded_for: u64, leads_for: u64) -> OpenMove {
    OpenMove {
        begun: moving(1, 2, 7),
        recorded_for: Duration::from_secs(recorded_for),
        leads_for: Duration::from_secs(leads_for),
    }
}

#[test]
fn leadership_moves_from_a_leader_and_from_nobody_else() {
    let snapshot = led_by(1, 7);
    let begun = moving(1, 2, 7);
    assert_eq!(
        of(&snapshot, "m-0", MAJORITY, None),
        Succession::Move(begun)
    );
    assert_eq!(of(&snapshot, "m-1", MAJORITY, None), Succession::Unneeded);
}

#[test]
fn where_nobody_can_take_over_nobody_waits() {
    let snapshot = led_by(2, 8);
    let all_but_the_leader = ["m-0", "m-2"];
    let grants = all_but_the_leader
        .iter()
        .fold(Grants::default(), |grants, pod| {
            let uid = (*pod).into();
            let what = GrantKind::Delete {
                uid,
                rollout: false,
            };
            grants.issue(&PodName::new(*pod), what, "anna".into(), String::new())
        });
    let open = Some(open(1, 1));
    let comes = succession(
        &snapshot,
        &grants,
        &eviction("m-1"),
        MAJORITY,
        open.as_ref(),
    );
    assert_eq!(comes, Succession::Unneeded);
}

/// A replica that saw the move or the leader only now counts from now: nothing that it did not see
/// makes the pause shorter.
#[test]
fn a_new_leader_waits_until_it_has_led_for_five_seconds() {
    let snapshot = led_by(2, 8);
    for (recorded, leads, left) in [(0, 0, 5), (3, 1, 4), (5, 4, 1)] {
        let wait = Succession::Wait(Duration::from_secs(left));
        assert_eq!(
            of(&snapshot, "m-1", MAJORITY, open(recorded, leads)),
            wait,
            "{recorded} {leads}"
        );
    }
    assert_eq!(
        of(&snapshot, "m-1", MAJORITY, open(5, 5)),
        Succession::Move(moving(2, 1, 8))
    );
}

/// A drain asks a different replica each time. Such a replica may know the move from its watch
/// without ever having seen the leader.
#[test]
fn the_leader_of_the_next_term_has_led_since_the_transfer() {
    let moved = Succession::Move(moving(2, 1, 8));
    assert_eq!(of(&led_by(2, 8), "m-1", MAJORITY, open(7, 0)), moved);
    let a_second = Succession::Wait(Duration::from_secs(1));
    assert_eq!(of(&led_by(2, 8), "m-1", MAJORITY, open(6, 0)), a_second);
    let whole = Succession::Wait(REST);
    for other in [led_by(3, 8), led_by(2, 9)] {
        let pod = if other.leader == Some(MemberId(2)) {
            "m-1"
        } else {
            "m-2"
        };
        assert_eq!(of(&other, pod, MAJORITY, open(7, 0)), whole, "by election");
    }
}

#[test]
fn whoever_comes_while_a_move_is_under_way_joins_it() {
    let mut snapshot = led_by(1, 7);
    if let Some(other) = snapshot.members.last_mut() {
        other.lag = Some(0);
    }
    let best = of(&snapshot, "m-0", MAJORITY, None);
    assert_eq!(best, Succession::Move(moving(1, 3, 7)));
    let same = Succession::Move(moving(1, 2, 7));
    assert_eq!(of(&snapshot, "m-0", MAJORITY, open(0, 0)), same);
    // The member that leadership was to move to no longer serves.
    snapshot.members[1].condition = Condition::Failing(Why::Terminating);
    assert_eq!(of(&snapshot, "m-0", MAJORITY, open(0, 0)), best);
}

#[test]
fn the_old_leader_that_leads_again_has_to_lead_for_five_seconds_too() {
    let again = led_by(1, 9);
    let wait = Succession::Wait(Duration::from_secs(3));
    assert_eq!(of(&again, "m-0", MAJORITY, open(20, 2)), wait);
}

#[test]
fn a_leader_that_comes_and_goes_keeps_nobody_forever() {
    let snapshot = led_by(3, 20);
    assert_eq!(
        of(&snapshot, "m-2", MAJORITY, open(59, 0)),
        Succession::Wait(Duration::from_secs(1))
    );
    assert_eq!(
        of(&snapshot, "m-2", MAJORITY, open(60, 0)),
        Succession::Move(moving(3, 1, 20))
    );
}

#[test]
fn overrides_small_clusters_and_leaders_that_fail_do_not_wait() {
    let mut snapshot = led_by(2, 8);
    for basis in [Basis::Override, Basis::TwoMembers, Basis::Repair] {
        assert_eq!(
            of(&snapshot, "m-1", basis, open(1, 1)),
            Succession::GoesAsLeader,
            "{basis:?}"
        );
    }
    snapshot.members[1].condition = Condition::Failing(Why::Terminating);
    assert_eq!(
        of(&snapshot, "m-1", MAJORITY, open(1, 1)),
        Succession::GoesAsLeader
    );
}
