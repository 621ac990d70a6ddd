//! Twenty minutes in the life of certificates, tick by tick. The bundles that API servers trust and
//! the certificates that replicas serve both lag behind what is stored, Secrets are lost and
//! spoiled, leaders change. No call may fail.

use proptest::prelude::*;

use super::*;
use crate::certificates::held::words;
use crate::clock::monotonic_now;
use crate::serve::call_paths::CallPaths;

/// A mishap of the stored objects.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    AuthorityLost,
    ServingLost,
    BothLost,
    AuthoritySpoiled,
    ServingSpoiled,
    /// The Secret of the authority is restored as it was at the start.
    AuthorityRestored,
    /// Another replica leads, which has not seen for how long the authority is trusted.
    OtherLeader,
}

const TICKS: u64 = 240;
const TICK: Duration = Duration::from_secs(5);
/// Ticks by which an API server is behind at most: less than what it is given.
const NOTICED: usize = 2;
/// Ticks by which a replica is behind at most.
const FOLLOWED: usize = 2;

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        Just(Mishap::AuthorityLost),
        Just(Mishap::ServingLost),
        Just(Mishap::BothLost),
        Just(Mishap::AuthoritySpoiled),
        Just(Mishap::ServingSpoiled),
        Just(Mishap::AuthorityRestored),
        Just(Mishap::OtherLeader),
    ]
}

fn ticks(ticks: u64) -> Duration {
    TICK * u32::try_from(ticks).unwrap()
}

fn suffer(cluster: &mut Cluster, mishap: Mishap, at_the_start: &Cluster) {
    match mishap {
        Mishap::AuthorityLost => cluster.authority = None,
        Mishap::ServingLost => cluster.serving = None,
        Mishap::BothLost => (cluster.authority, cluster.serving) = (None, None),
        Mishap::AuthoritySpoiled => cluster.authority = Some(rubbish()),
        Mishap::ServingSpoiled => cluster.serving = Some(rubbish()),
        Mishap::AuthorityRestored => cluster.authority.clone_from(&at_the_start.authority),
        Mishap::OtherLeader => {}
    }
}

/// The bundle that is stored, and the certificate that replicas serve, at some time.
#[derive(Clone)]
struct Moment {
    bundle: Vec<u8>,
    serving: Data,
    called: Option<String>,
}

/// The end of the time in which an API server that trusts this bundle believes this certificate.
fn believed_until(bundle: &[u8], serving: &Data) -> Timestamp {
    let serving = Serving::read(serving).unwrap();
    let roots = roots_in(bundle);
    let signed = roots.iter().filter(|root| serving.is_signed_by(root));
    let ends = signed.map(|root| root.validity().until.min(serving.validity.until));
    ends.max().unwrap_or(Timestamp::MIN)
}

/// The parts of the last moments, each once.
fn recent<'a, T: PartialEq>(
    moments: &'a [Moment],
    lag: usize,
    part: impl Fn(&'a Moment) -> &'a T,
) -> Vec<&'a T> {
    let mut parts: Vec<&T> = Vec::new();
    for moment in moments.iter().rev().take(lag + 1) {
        if !parts.contains(&part(moment)) {
            parts.push(part(moment));
        }
    }
    parts
}

fn live(mishaps: &[(u64, Mishap)], pace: u64) -> Result<(usize, usize), TestCaseError> {
    let wishes = Wishes {
        authority: Duration::from_secs(600),
        serving: Duration::from_secs(300),
        ..wishes()
    };
    let mut cluster = Cluster::new();
    for _ in 0..4 {
        let step = next(&cluster.state(), &wishes, Since::never(), start());
        cluster.take_for(&step, &wishes, start());
    }
    let at_the_start = cluster.clone();
    let mut moments = vec![Moment {
        bundle: cluster.bundles[0].clone(),
        serving: cluster.serving.clone().unwrap(),
        called: cluster.called[0].clone(),
    }];
    let begun = monotonic_now();
    let replicas: [CallPaths; FOLLOWED + 1] = std::array::from_fn(|_| CallPaths::offered());
    let mut believed: Vec<(Vec<u8>, Data, Timestamp)> = Vec::new();
    let (mut trusted_since, mut called_since) = (None, None);
    let (mut authorities, mut certificates) = (0, 0);
    for tick in 1..TICKS {
        let now = start() + ticks(tick);
        for (_, mishap) in mishaps.iter().filter(|(at, _)| *at == tick) {
            suffer(&mut cluster, *mishap, &at_the_start);
            (trusted_since, called_since) = (None, None);
        }
        if tick % pace == 0 {
            let state = cluster.state();
            let since = state.is_trusted().then(|| trusted_since.unwrap_or(tick));
            trusted_since = since;
            let word = state.settled_word();
            called_since = word.map(|_| called_since.unwrap_or(tick));
            let for_ticks = |since: Option<u64>| ticks(since.map_or(0, |since| tick - since));
            let since = Since {
                trusted: for_ticks(trusted_since),
                called: for_ticks(called_since),
            };
            let step = next(&state, &wishes, since, now);
            authorities += usize::from(matches!(step, Step::MakeAuthority { .. }));
            certificates += usize::from(matches!(step, Step::MakeServing { .. }));
            cluster.take_for(&step, &wishes, now);
        }
        // A replica keeps what it has where the Secret holds nothing of use.
        let before = moments.last().unwrap();
        let fresh = cluster.serving.as_ref();
        let fresh = fresh.filter(|data| **data == before.serving || Serving::read(data).is_ok());
        let serving = fresh.unwrap_or(&before.serving).clone();
        let bundle = cluster.bundles[0].clone();
        let called = cluster.called[0].clone();
        moments.push(Moment {
            bundle,
            serving,
            called,
        });
        for (lag, replica) in replicas.iter().enumerate() {
            let followed = moments.get(moments.len().saturating_sub(lag + 1));
            let told = words(&followed.unwrap_or(&moments[0]).serving);
            replica.offer(told, begun + ticks(tick));
            for word in recent(&moments, NOTICED, |moment| &moment.called) {
                let is_answered = word.as_ref().is_some_and(|word| replica.admits(word));
                prop_assert!(is_answered, "a path is unknown at tick {tick}");
            }
        }
        for serving in recent(&moments, FOLLOWED, |moment| &moment.serving) {
            for bundle in recent(&moments, NOTICED, |moment| &moment.bundle) {
                let known = believed
                    .iter()
                    .find(|(b, s, _)| b == bundle && s == serving);
                let until = known.map_or_else(|| believed_until(bundle, serving), |k| k.2);
                if known.is_none() {
                    believed.push((bundle.clone(), serving.clone(), until));
                }
                prop_assert!(now < until, "a call fails at tick {tick}");
            }
        }
    }
    Ok((authorities, certificates))
}

#[test]
fn an_undisturbed_life_has_many_rotations_and_no_failed_call() {
    let (authorities, certificates) = live(&[], 1).unwrap();
    assert!((2..=3).contains(&authorities), "{authorities}");
    assert!((5..=9).contains(&certificates), "{certificates}");
}

/// Replicas still serve what the authority in between signed, and only the bundles tell of it.
#[test]
fn an_older_authority_that_is_restored_after_the_loss_of_both_fails_no_call() {
    for tick in (1..TICKS).step_by(12) {
        let mishaps = [(tick, Mishap::BothLost), (tick, Mishap::AuthorityRestored)];
        live(&mishaps, 1).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_lost_or_spoiled_no_call_fails(
        mishaps in prop::collection::vec((1..TICKS, mishap()), 0..5),
        pace in 1_u64..=2,
    ) {
        live(&mishaps, pace)?;
    }
}
