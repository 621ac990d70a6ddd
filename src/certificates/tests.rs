use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;

use super::held::{
    Authority, CERTIFICATE, Data, FORMER, FORMER_PATHS, KEY, SIGNED_BY, Serving, Stored,
};
use super::plan::{Since, State, Step, next};
use super::root::{BACKDATED, Root, roots_in};
use super::{Wishes, make};

mod lives;

const DAY: u64 = 24 * 3600;
const NEVER: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3600);

fn wishes() -> Wishes {
    Wishes {
        names: vec!["gate.ns.svc".to_owned(), "10.0.0.1".to_owned()],
        authority: Duration::from_secs(360 * DAY),
        serving: Duration::from_secs(90 * DAY),
    }
}

fn start() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn days(days: u64) -> Timestamp {
    start() + Duration::from_secs(days * DAY)
}

/// The objects in the API server.
#[derive(Clone, Default)]
struct Cluster {
    bundles: Vec<Vec<u8>>,
    called: Vec<Option<String>>,
    serving: Option<Data>,
    authority: Option<Data>,
}

impl Cluster {
    /// Webhooks that trust nobody, and no Secret.
    fn new() -> Self {
        Self {
            bundles: vec![Vec::new(), Vec::new()],
            called: vec![None, None],
            ..Self::default()
        }
    }

    /// Takes steps until nothing is to be done.
    fn settle(&mut self, now: Timestamp) {
        for _ in 0..5 {
            let step = self.next(LONG, now);
            self.take(&step, now);
        }
        assert_eq!(self.next(LONG, now), Step::Nothing);
    }

    /// As it is after the first steps at this time.
    fn settled(now: Timestamp) -> Self {
        let mut cluster = Self::new();
        cluster.settle(now);
        cluster
    }

    fn state(&self) -> State {
        State {
            bundles: self.bundles.clone(),
            called: self.called.clone(),
            serving: Stored::read(self.serving.as_ref(), Serving::read),
            authority: Stored::read(self.authority.as_ref(), Authority::read),
        }
    }

    fn next(&self, trusted_for: Duration, now: Timestamp) -> Step {
        let since = Since {
            trusted: trusted_for,
            called: trusted_for,
        };
        next(&self.state(), &wishes(), since, now)
    }

    /// Does what the step says.
    fn take(&mut self, step: &Step, now: Timestamp) {
        self.take_for(step, &wishes(), now);
    }

    fn take_for(&mut self, step: &Step, wishes: &Wishes, now: Timestamp) {
        match step {
            Step::MakeAuthority { former, .. } => {
                self.authority = Some(make::authority(wishes, former, now).unwrap());
            }
            Step::Remember { former } => {
                let former: String = former.iter().map(Root::pem).collect();
                let former = ByteString(former.into_bytes());
                let authority = self.authority.as_mut().unwrap();
                authority.insert(FORMER.to_owned(), former);
            }
            Step::WriteBundle(bundle) => {
                for one in &mut self.bundles {
                    *one = bundle.clone().into_bytes();
                }
            }
            Step::MakeServing { .. } => {
                let state = self.state();
                let authority = state.authority.here().unwrap();
                let words = state.words();
                self.serving = Some(make::serving(wishes, authority, &words, now).unwrap());
            }
            Step::WritePaths(word) => {
                self.called.fill(Some(word.clone()));
            }
            Step::ForgetPaths => {
                let serving = self.serving.as_mut().unwrap();
                serving.insert(FORMER_PATHS.to_owned(), ByteString::default());
            }
            Step::Wait(_) | Step::Nothing => {}
        }
    }

    fn root(&self) -> Root {
        self.state().authority.here().unwrap().root.clone()
    }
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::MakeAuthority { .. } => "make an authority",
        Step::Remember { .. } => "remember",
        Step::WriteBundle(_) => "write the bundle",
        Step::MakeServing { .. } => "make a serving certificate",
        Step::WritePaths(_) => "write the paths",
        Step::ForgetPaths => "forget paths",
        Step::Wait(_) => "wait",
        Step::Nothing => "nothing",
    }
}

fn rubbish() -> Data {
    [(CERTIFICATE, "rubbish"), (KEY, "rubbish")]
        .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
        .into()
}

/// Changes a settled cluster, and expects a step some time later.
struct Case {
    of: &'static str,
    change: fn(&mut Cluster),
    after: u64,
    trusted_for: Duration,
    step: &'static str,
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table, a row for each state")]
fn each_state_has_its_next_step() {
    let case = |of, after, trusted_for, step, change| Case {
        of,
        change,
        after,
        trusted_for,
        step,
    };
    let settled: fn(&mut Cluster) = |_| {};
    let cases = [
        case("all is well", 0, LONG, "nothing", settled),
        case("two thirds less a day", 59, LONG, "nothing", settled),
        case(
            "two thirds of the serving certificate",
            60,
            LONG,
            "make a serving certificate",
            settled,
        ),
        case(
            "it has ended, as after a long sleep",
            91,
            LONG,
            "make a serving certificate",
            settled,
        ),
        case(
            "the authority has ended, too",
            361,
            LONG,
            "make an authority",
            settled,
        ),
        case("no authority", 1, LONG, "make an authority", |c| {
            c.authority = None;
        }),
        case(
            "no authority, no bundle",
            1,
            LONG,
            "make an authority",
            |c| {
                c.authority = None;
                c.bundles = vec![Vec::new()];
                c.called = vec![None];
            },
        ),
        case(
            "no serving certificate",
            1,
            NEVER,
            "make a serving certificate",
            |c| c.serving = None,
        ),
        case("nothing", 1, NEVER, "make an authority", |c| {
            *c = Cluster::new();
        }),
        case(
            "rubbish for an authority",
            1,
            LONG,
            "make an authority",
            |c| c.authority = Some(rubbish()),
        ),
        case("an empty Secret", 1, LONG, "make an authority", |c| {
            c.authority = Some(Data::new());
        }),
        case(
            "a serving certificate for an authority",
            1,
            LONG,
            "make an authority",
            |c| {
                c.authority = c.serving.clone();
            },
        ),
        case(
            "an authority with another's key",
            1,
            LONG,
            "make an authority",
            |c| {
                let other = Cluster::settled(start()).authority.unwrap();
                let key = other[KEY].clone();
                c.authority.as_mut().unwrap().insert(KEY.to_owned(), key);
            },
        ),
        case(
            "rubbish for a serving certificate",
            1,
            NEVER,
            "make a serving certificate",
            |c| {
                c.serving = Some(rubbish());
            },
        ),
        case(
            "a serving certificate with another's key",
            1,
            NEVER,
            "make a serving certificate",
            |c| {
                let other = Cluster::settled(start()).serving.unwrap();
                let key = other[KEY].clone();
                c.serving.as_mut().unwrap().insert(KEY.to_owned(), key);
            },
        ),
        case(
            "a stranger's serving certificate",
            1,
            NEVER,
            "make a serving certificate",
            |c| {
                c.serving = Cluster::settled(start()).serving;
                c.serving.as_mut().unwrap().remove(SIGNED_BY);
            },
        ),
        case(
            "one that a stranger is said to have signed",
            1,
            NEVER,
            "nothing",
            |c| {
                let other = Cluster::settled(start()).serving.unwrap();
                let signer = other[SIGNED_BY].clone();
                c.serving
                    .as_mut()
                    .unwrap()
                    .insert(SIGNED_BY.to_owned(), signer);
            },
        ),
        case(
            "the authority was restored from long ago",
            1,
            LONG,
            "remember",
            |c| {
                c.authority = Cluster::settled(start()).authority;
            },
        ),
        case("a webhook lost its path", 1, LONG, "write the paths", |c| {
            c.called[1] = None;
        }),
        case(
            "webhooks call by no word",
            1,
            LONG,
            "write the paths",
            |c| {
                c.called = vec![Some(String::new()), Some(String::new())];
            },
        ),
        case("a new serving certificate", 0, LONG, "wait", |c| {
            c.serving = None;
            let step = c.next(LONG, start());
            c.take(&step, start());
        }),
        case("replicas have it", 1, NEVER, "write the paths", |c| {
            c.serving = None;
            let step = c.next(LONG, start());
            c.take(&step, start());
        }),
        case("API servers call by it", 1, LONG, "forget paths", |c| {
            for serving in [None, c.serving.clone()] {
                c.serving = c.serving.take().filter(|_| serving.is_some());
                let step = c.next(LONG, days(1));
                c.take(&step, start());
            }
        }),
        case(
            "a webhook lost its bundle",
            1,
            LONG,
            "write the bundle",
            |c| c.bundles[1].clear(),
        ),
        case(
            "a webhook trusts somebody else as well",
            1,
            LONG,
            "write the bundle",
            |c| {
                let other = Cluster::settled(start()).bundles.remove(0);
                c.bundles[0].extend(other);
            },
        ),
        case("a webhook has rubbish", 1, LONG, "write the bundle", |c| {
            c.bundles[0] = b"rubbish".to_vec();
        }),
        case("there are no webhooks", 1, LONG, "nothing", |c| {
            c.bundles.clear();
            c.called.clear();
        }),
        case(
            "two thirds of the authority",
            240,
            LONG,
            "make an authority",
            |c| {
                let step = c.next(LONG, days(239));
                c.take(&step, days(239));
            },
        ),
        case(
            "a new authority is stored",
            240,
            NEVER,
            "write the bundle",
            |c| {
                let step = c.next(LONG, days(239));
                c.take(&step, days(239));
                let step = c.next(LONG, days(240));
                c.take(&step, days(240));
            },
        ),
        case(
            "an authority that is due signs nothing more",
            240,
            LONG,
            "make an authority",
            settled,
        ),
        case("many names", 1, LONG, "make a serving certificate", |c| {
            let fewer = Wishes {
                names: vec!["gate.ns.svc".to_owned()],
                ..wishes()
            };
            let state = c.state();
            c.serving =
                Some(make::serving(&fewer, state.authority.here().unwrap(), &[], start()).unwrap());
        }),
        case(
            "longer lives than are wished for now",
            0,
            LONG,
            "make a serving certificate",
            |c| {
                let longer = Wishes {
                    serving: Duration::from_secs(100 * DAY),
                    ..wishes()
                };
                let state = c.state();
                c.serving = Some(
                    make::serving(&longer, state.authority.here().unwrap(), &[], start()).unwrap(),
                );
            },
        ),
        case(
            "the same of the authority",
            30,
            LONG,
            "make an authority",
            |c| {
                let longer = Wishes {
                    authority: Duration::from_secs(500 * DAY),
                    ..wishes()
                };
                *c = Cluster::new();
                for _ in 0..3 {
                    let step = next(&c.state(), &longer, Since::never(), start());
                    c.take_for(&step, &longer, start());
                }
            },
        ),
    ];
    for case in cases {
        let mut cluster = Cluster::settled(start());
        (case.change)(&mut cluster);
        let step = cluster.next(case.trusted_for, days(case.after));
        assert_eq!(kind(&step), case.step, "{}: {step:?}", case.of);
    }
}

#[test]
fn the_first_certificates_are_made_at_once() {
    let mut cluster = Cluster::new();
    let mut steps = Vec::new();
    loop {
        let step = cluster.next(NEVER, start());
        steps.push(kind(&step));
        if step == Step::Nothing {
            break;
        }
        cluster.take(&step, start());
    }
    let expected = [
        "make an authority",
        "write the bundle",
        "make a serving certificate",
        "write the paths",
        "nothing",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_new_authority_signs_only_when_api_servers_had_time_to_notice_it() {
    let mut cluster = Cluster::settled(start());
    let step = cluster.next(LONG, days(239));
    cluster.take(&step, days(239));
    let old = cluster.root();
    let now = days(240);
    let step = cluster.next(LONG, now);
    cluster.take(&step, now);
    assert!(!cluster.state().is_trusted());
    let step = cluster.next(NEVER, now);
    let Step::WriteBundle(bundle) = &step else {
        panic!("{step:?}");
    };
    assert_eq!(roots_in(bundle.as_bytes()), [cluster.root(), old.clone()]);
    cluster.take(&step, now);
    assert!(cluster.state().is_trusted());
    let half = Duration::from_secs(15);
    assert_eq!(cluster.next(half, now), Step::Wait(half));
    let step = cluster.next(2 * half, now);
    cluster.take(&step, now);
    assert!(
        cluster
            .state()
            .serving
            .here()
            .unwrap()
            .is_signed_by(&cluster.root())
    );
    cluster.settle(days(241));
    // The old one is trusted until it ends, and not longer.
    assert_eq!(cluster.next(NEVER, days(299)), Step::Nothing);
    let step = cluster.next(LONG, days(300));
    cluster.take(&step, days(300));
    cluster.settle(days(301));
    assert_eq!(cluster.next(NEVER, days(359)), Step::Nothing);
    let step = cluster.next(LONG, days(360));
    assert_eq!(step, Step::WriteBundle(cluster.root().pem()));
}

#[test]
fn who_was_trusted_before_stays_so_when_both_secrets_are_lost() {
    let mut cluster = Cluster::settled(start());
    let before = cluster.root();
    cluster.serving = None;
    cluster.authority = None;
    let step = cluster.next(LONG, days(1));
    let Step::MakeAuthority { former, why } = &step else {
        panic!("{step:?}");
    };
    assert_eq!(
        (former.as_slice(), why.as_str()),
        ([before].as_slice(), "there is none")
    );
    cluster.take(&step, days(1));
    let step = cluster.next(NEVER, days(1));
    assert_eq!(kind(&step), "write the bundle");
    cluster.take(&step, days(1));
    // Replicas go on with the certificate that they have until this one may be trusted.
    assert_eq!(kind(&cluster.next(NEVER, days(1))), "wait");
    assert_eq!(
        kind(&cluster.next(LONG, days(1))),
        "make a serving certificate"
    );
}

#[test]
fn an_authority_taken_over_goes_when_nothing_is_left_that_it_signed() {
    let theirs = Cluster::settled(start());
    let mut cluster = Cluster::new();
    cluster.bundles.clone_from(&theirs.bundles);
    for _ in 0..3 {
        let step = cluster.next(LONG, start());
        cluster.take(&step, start());
    }
    let former = |cluster: &Cluster, now| match cluster.next(LONG, now) {
        Step::MakeAuthority { former, .. } => former,
        other => panic!("{other:?}"),
    };
    assert_eq!(former(&cluster, days(240)), [cluster.root()]);
    cluster.serving = None;
    let all = [cluster.root(), theirs.root()];
    assert_eq!(former(&cluster, days(240)), all);
}

/// As after a change from cert-manager, whose authority replicas of the release before still need.
#[test]
fn the_authority_of_whoever_made_certificates_before_is_taken_over() {
    let theirs = Cluster::settled(start());
    let mut cluster = Cluster::new();
    cluster.bundles.clone_from(&theirs.bundles);
    let step = cluster.next(NEVER, start());
    cluster.take(&step, start());
    let step = cluster.next(NEVER, start());
    let Step::WriteBundle(bundle) = step else {
        panic!("{step:?}");
    };
    assert_eq!(roots_in(bundle.as_bytes()), [cluster.root(), theirs.root()]);
}

#[test]
fn what_is_wrong_with_a_secret_is_said_and_nothing_of_it_quoted() {
    let cluster = Cluster::settled(start());
    let (authority, serving) = (cluster.authority.unwrap(), cluster.serving.unwrap());
    let without = |key: &str| {
        let mut data = authority.clone();
        data.remove(key);
        data
    };
    let mixed = |key: &str| {
        let mut data = authority.clone();
        data.insert(key.to_owned(), serving[key].clone());
        data
    };
    let one_line = |key: &str| {
        let mut data = authority.clone();
        let text = String::from_utf8(data[key].0.clone()).unwrap();
        data.insert(
            key.to_owned(),
            ByteString(text.replace('\n', "").into_bytes()),
        );
        data
    };
    for (data, said) in [
        (rubbish(), "its tls.crt contains no certificate"),
        (without(KEY), "its tls.key is not the PEM of a private key"),
        (one_line(KEY), "does it have its line breaks?"),
        (one_line(CERTIFICATE), "does it have its line breaks?"),
        (mixed(KEY), "its tls.key does not belong to its tls.crt"),
        (mixed(CERTIFICATE), "is not the certificate of an authority"),
    ] {
        let why = Authority::read(&data).unwrap_err();
        assert!(why.contains(said), "{said}: {why}");
        assert!(!why.contains("MI") && why.len() < 120, "{why}");
    }
    let mut foreign = serving.clone();
    foreign.insert(KEY.to_owned(), authority[KEY].clone());
    let why = Serving::read(&foreign).unwrap_err();
    assert_eq!(why, "its tls.key does not belong to its tls.crt");
}

#[test]
fn a_clock_that_is_five_minutes_off_finds_new_certificates_valid() {
    let cluster = Cluster::settled(start());
    let state = cluster.state();
    let skew = SignedDuration::from_mins(5);
    for now in [start() - skew, start(), start() + skew] {
        for validity in [
            state.serving.here().unwrap().validity,
            state.authority.here().unwrap().root.validity(),
        ] {
            assert!(validity.from < now && now < validity.until);
        }
        // And a replica with such a clock has nothing to mend when it leads.
        assert_eq!(cluster.next(NEVER, now), Step::Nothing);
    }
    assert_eq!(
        state.serving.here().unwrap().validity.from + BACKDATED,
        start()
    );
}

#[test]
fn a_serving_certificate_never_outlives_its_authority() {
    let cluster = Cluster::settled(start());
    let state = cluster.state();
    let authority = state.authority.here().unwrap();
    let late = make::serving(&wishes(), authority, &[], days(300)).unwrap();
    let late = Serving::read(&late).unwrap();
    assert_eq!(late.validity.until, authority.root.validity().until);
    assert_eq!(late.lacks(&wishes().names), None);
    assert_eq!(late.lacks(&["other.svc".to_owned()]), Some("other.svc"));
    assert_eq!(late.lacks(&["10.0.0.2".to_owned()]), Some("10.0.0.2"));
}

#[test]
fn an_authority_has_to_live_twice_as_long_as_what_it_signs() {
    assert_eq!(wishes().problem(), None);
    let long = Wishes {
        serving: Duration::from_secs(181 * DAY),
        ..wishes()
    };
    assert!(long.problem().unwrap().contains("at most half as long"));
}

impl Since {
    fn never() -> Self {
        Self {
            trusted: NEVER,
            called: NEVER,
        }
    }
}
