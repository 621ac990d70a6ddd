//! The next step about the certificates, given what there is. A function of data: it reads no clock
//! and makes nothing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::held::{Authority, Serving, Stored};
use super::root::{BACKDATED, Root, is_due, roots_in};
use super::wishes::Wishes;

/// Most authorities that are taken over from what was trusted before. More would be somebody's
/// whole collection, and a `caBundle` has limits.
const TAKEN_OVER: usize = 16;

/// The time within which every replica has taken a new serving certificate from its Secret: twice
/// the interval between two looks.
const FOLLOWED: SignedDuration = SignedDuration::from_secs(10);

/// The state of the certificates, as it was read.
#[derive(Debug)]
pub(super) struct State {
    /// The `caBundle` of every webhook of the gate, in the configurations that there are.
    pub(super) bundles: Vec<Vec<u8>>,
    /// The word in the path of every webhook of the gate. `None` for one without a path.
    pub(super) called: Vec<Option<String>>,
    /// The serving certificate.
    pub(super) serving: Stored<Serving>,
    /// The authority.
    pub(super) authority: Stored<Authority>,
}

/// The next thing to be done. Whoever has done it looks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a new authority.
    MakeAuthority {
        /// The authorities that stay trusted until they end.
        former: Vec<Root>,
        /// Why, for people.
        why: String,
    },
    /// Write into the authority's Secret which authorities stay trusted: these besides its own.
    Remember {
        /// The authorities that stay trusted until they end.
        former: Vec<Root>,
    },
    /// Write this `caBundle` into every webhook.
    WriteBundle(String),
    /// Make a new serving certificate.
    MakeServing {
        /// Why, for people.
        why: String,
    },
    /// Write this word into the path of every webhook.
    WritePaths(String),
    /// Take the words that nobody calls any more out of the Secret of the serving certificate.
    ForgetPaths,
    /// Something is to be done after so long: API servers may not know yet what was written, or
    /// replicas what is in the Secret.
    Wait(Duration),
    /// Everything is as it should be.
    Nothing,
}

impl State {
    /// Whether every webhook trusts the present authority.
    pub(super) fn is_trusted(&self) -> bool {
        let Some(authority) = self.authority.here() else {
            return false;
        };
        let trusts = |bundle: &Vec<u8>| roots_in(bundle).contains(&authority.root);
        self.bundles.iter().all(trusts)
    }

    /// The words that webhooks call, and that replicas were told to admit, each once.
    pub(super) fn words(&self) -> Vec<String> {
        let told = self.serving.here().into_iter();
        let told = told.flat_map(|serving| serving.words.clone());
        let called = self.called.iter().flatten().cloned();
        let mut words: Vec<String> = Vec::new();
        for word in called.chain(told) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words.truncate(TAKEN_OVER);
        words
    }

    /// The word of the serving certificate, once every webhook calls by it.
    pub(super) fn settled_word(&self) -> Option<&str> {
        let own = self.serving.here()?.words.first()?;
        let is_own = |word: &Option<String>| word.as_ref() == Some(own);
        self.called.iter().all(is_own).then_some(own)
    }

    /// The authorities that API servers trust or that certificates in use are signed by, whoever
    /// made them, except those that have ended.
    fn in_use(&self, now: Timestamp) -> Vec<Root> {
        let own = self.authority.here().into_iter();
        let own = own.flat_map(|authority| authority.trusted(now).cloned());
        let signed = self.serving.here().into_iter();
        let signed = signed.flat_map(|serving| serving.signed_by().cloned());
        let bundles = self.bundles.iter().flat_map(|bundle| roots_in(bundle));
        let mut all: Vec<Root> = Vec::new();
        for root in own.chain(signed).chain(bundles) {
            if !root.has_ended(now) && !all.contains(&root) {
                all.push(root);
            }
        }
        all.truncate(TAKEN_OVER);
        all
    }
}

/// How long API servers have to notice that a webhook has another `caBundle`. They watch the
/// configurations, so it takes them milliseconds; one that is busy may take longer.
fn notice(wishes: &Wishes) -> Duration {
    (wishes.serving / 20).clamp(Duration::from_secs(5), Duration::from_secs(30))
}

/// For how long something has been seen to hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    /// Every webhook trusts the present authority ([`State::is_trusted`]).
    pub(super) trusted: Duration,
    /// Every webhook calls by the present word ([`State::settled_word`]).
    pub(super) called: Duration,
}

/// The next step.
pub(super) fn next(state: &State, wishes: &Wishes, since: Since, now: Timestamp) -> Step {
    let make_authority = |former, why: &str| Step::MakeAuthority {
        former,
        why: why.to_owned(),
    };
    let authority = match &state.authority {
        Stored::Here(authority) if !authority.root.has_ended(now) => authority,
        Stored::Here(_) => return make_authority(state.in_use(now), "it has ended"),
        absent => return make_authority(state.in_use(now), absent.lack()),
    };
    // An older Secret may have been restored over a newer one. Without the serving certificate only
    // the bundles tell what replicas still serve.
    let signers = match state.serving.here() {
        Some(serving) => serving.signed_by().cloned().collect(),
        None => state.in_use(now),
    };
    let mut signers = signers.into_iter().filter(|root| !root.has_ended(now));
    let unknown = signers.find(|root| !authority.trusted(now).any(|known| known == root));
    if let Some(unknown) = unknown {
        let former = authority.trusted(now).skip(1).cloned();
        return Step::Remember {
            former: former.chain([unknown]).collect(),
        };
    }
    let bundle = authority.bundle(now);
    if state.bundles.iter().any(|one| one != bundle.as_bytes()) {
        return Step::WriteBundle(bundle);
    }
    if is_due(authority.root.validity(), signed(wishes.authority), now) {
        // Nothing is in use any more that an earlier one signed, unless something was mended.
        let settled = has_settled(&state.serving, authority, now);
        let former = authority
            .trusted(now)
            .take(if settled { 1 } else { TAKEN_OVER });
        let why = "two thirds of its life are over";
        return make_authority(former.cloned().collect(), why);
    }
    if let Some(why) = serving_is_due(&state.serving, authority, wishes, now) {
        // Where nothing else was ever trusted, no call can succeed before.
        let others = authority.trusted(now).nth(1).is_some();
        return match notice(wishes).checked_sub(since.trusted) {
            Some(rest) if others && !rest.is_zero() => Step::Wait(rest),
            _ => Step::MakeServing { why },
        };
    }
    next_about_paths(state, wishes, since.called, now)
}

/// The next step about the paths by which API servers call.
fn next_about_paths(state: &State, wishes: &Wishes, called: Duration, now: Timestamp) -> Step {
    let Some(serving) = state.serving.here() else {
        return Step::Nothing;
    };
    let Some(own) = serving.words.first() else {
        return Step::Nothing;
    };
    if state.settled_word().is_none() {
        // Calls by a path that no replica is told to answer fail until it is changed.
        let is_answered = |word: &String| serving.words.contains(word);
        let mut called = state.called.iter();
        let all_answered = called.all(|word| word.as_ref().is_some_and(is_answered));
        let rest = FOLLOWED.saturating_sub(since_made(serving, now));
        return match Duration::try_from(rest) {
            Ok(rest) if all_answered && !rest.is_zero() => Step::Wait(rest),
            _ => Step::WritePaths(own.clone()),
        };
    }
    match notice(wishes).checked_sub(called) {
        _ if serving.words.len() == 1 => Step::Nothing,
        Some(rest) if !rest.is_zero() => Step::Wait(rest),
        _ => Step::ForgetPaths,
    }
}

/// The time since the certificate was made.
fn since_made(serving: &Serving, now: Timestamp) -> SignedDuration {
    let made = serving.validity.from.saturating_add(BACKDATED);
    made.map_or(SignedDuration::ZERO, |made| now.duration_since(made))
}

/// Whether every replica serves what the present authority signed.
fn has_settled(serving: &Stored<Serving>, authority: &Authority, now: Timestamp) -> bool {
    serving.here().is_some_and(|serving| {
        since_made(serving, now) >= FOLLOWED && serving.is_signed_by(&authority.root)
    })
}

/// Why there has to be another serving certificate, if so.
fn serving_is_due(
    serving: &Stored<Serving>,
    authority: &Authority,
    wishes: &Wishes,
    now: Timestamp,
) -> Option<String> {
    let serving = match serving {
        Stored::Here(serving) => serving,
        absent => return Some(absent.lack().to_owned()),
    };
    if !serving.is_signed_by(&authority.root) {
        return Some("it is not signed by the present authority".to_owned());
    }
    if let Some(name) = serving.lacks(&wishes.names) {
        return Some(format!("it is not for {name}"));
    }
    is_due(serving.validity, signed(wishes.serving), now)
        .then(|| "two thirds of its life are over".to_owned())
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
