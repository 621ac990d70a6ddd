//! The steps of a replacement. Each is one effect, which may have happened already.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSpec};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::{info, warn};

use super::gather::{Gathered, some_serve};
use super::{AFTER_REFUSAL, Driver, STEP, WAITING, record, tell};
use crate::api::ReplacementStatus;
use crate::api::names::IDENTITY;
use crate::causes::causes;
use crate::etcd::{AdminError, Endpoint};
use crate::judge::{Asker, Refused, ReplacementQuestion, SeenVersions};
use crate::ledger::StatusUpdate;
use crate::observe::{EtcdContainer, finding, joining};
use crate::plan::replacement::{Proof, Record, disarm, expected_in};
use crate::quorum::evidence::{Alarm, AlarmKind, Unanswered};
use crate::quorum::{Actor, LeaderMove, MemberId, PodName, PodUid, Replacement, VolumeRecord};
use crate::reconcile::look::{Look, Problem};
use crate::telemetry::events::{Notice, Severity};

/// The time limit of the judge, and of one call of etcd.
const PATIENCE: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(5);
const MOVE: Duration = Duration::from_secs(1);

/// The time after which a call that was given up cannot take effect any more. etcd gives a change
/// of the members up after twelve seconds at most.
const CALLS_ARE_OVER: Duration = Duration::from_secs(30);

/// A step that has to be tried again, with the reason for people.
type Done = Result<(), String>;

impl Driver {
    /// Takes the grant, and writes the record with it.
    pub(super) async fn grant(&self, look: &Look, record: &Record, proof: Option<&Proof>) -> Done {
        let begins = record::begun(record, proof, self.run.clock.now());
        let member = &record.member;
        self.ask(look, member, Some(begins)).await?;
        let because = proof.map_or_else(|| "somebody asked for it".to_owned(), ToString::to_string);
        let note = format!("{member} is being replaced: {because}");
        self.notify(look, Severity::Warning, "MemberReplacing", note);
        Ok(())
    }

    /// Renews the grant, and writes the claim and the pod to give up into the record.
    pub(super) async fn renew(&self, look: &Look, record: &Record) -> Done {
        let open = record::open(&look.page).ok_or("nothing is on record any more")?;
        let renewed = record::renewed(open, record);
        self.ask(look, &record.member, Some(renewed)).await
    }

    /// Renews the grant, and removes the member from etcd.
    pub(super) async fn remove(&mut self, look: &Look, pod: &PodName, id: MemberId) -> Done {
        let latest = self.run.clock.instant() + PATIENCE;
        self.ask(look, pod, None).await?;
        // A process that was held up after its permission removes nothing.
        let now = self.run.clock.instant();
        if now >= latest {
            return Err("there was no time left".to_owned());
        }
        let admin = self.run.judge.admin();
        let removed = any_of(others(look, pod)?, |voter| {
            admin.remove_member(voter, id, now + CALL)
        });
        let removed = removed.await;
        if let Err(error @ AdminError::PermissionDenied(_)) = &removed {
            self.members_stay = Some((now + AFTER_REFUSAL, causes(error)));
        }
        removed.map_err(|error| causes(&error))
    }

    async fn ask(&self, look: &Look, member: &PodName, begins: Option<ReplacementStatus>) -> Done {
        let run = &self.run;
        let question = ReplacementQuestion {
            cluster: self.cluster.clone(),
            member: member.clone(),
            asker: Asker {
                name: run.own_username.clone(),
                actor: Actor::Gate,
            },
            begins,
            deadline: run.clock.instant() + PATIENCE,
            seen: SeenVersions::of(&look.page, &look.world),
        };
        let answer = run.judge.judge_replacement(question).boxed().await;
        match answer.decision {
            Ok(allowed) => match allowed.recorded() {
                Some(_) => Ok(()),
                None => Err("the judge gave no permission that can be used".into()),
            },
            Err(Refused::Wait(because) | Refused::Deny(because)) => Err(because.to_string()),
            Err(Refused::Outdated | Refused::NoSuchPod) => Err("something has changed".to_owned()),
        }
    }

    /// Adds the member as a learner.
    pub(super) async fn add(&self, look: &Look, pod: &PodName, urls: &[String]) -> Done {
        let deadline = self.run.clock.instant() + CALL;
        let admin = self.run.judge.admin();
        let added = any_of(others(look, pod)?, |voter| {
            admin.add_learner(voter, urls, deadline)
        });
        added.await.map_err(|error| causes(&error))
    }

    /// Records the volume on which the new member runs.
    pub(super) async fn record_volume(
        &self,
        look: &Look,
        gathered: &Gathered,
        pod: &PodName,
        id: MemberId,
    ) -> Result<Duration, Problem> {
        let record = volume_record(look, gathered, pod);
        let Some(record) = record.filter(|record| record.id == id) else {
            return Ok(WAITING);
        };
        let mut volumes = look.page.volume_records();
        volumes.insert(pod.clone(), record);
        let update = StatusUpdate {
            volumes: Some(volumes),
            ..StatusUpdate::default()
        };
        self.run.ledger().update(&look.page, update).await?;
        self.run.metrics.replacement_step("record-volume");
        Ok(STEP)
    }

    /// Promotes the learner.
    pub(super) async fn promote(&self, look: &Look, pod: &PodName, id: MemberId) -> Done {
        let deadline = self.run.clock.instant() + CALL;
        let admin = self.run.judge.admin();
        let promoted = any_of(others(look, pod)?, |voter| {
            admin.promote(voter, id, deadline)
        });
        promoted.await.map_err(|error| causes(&error))
    }

    /// Moves leadership away from the member.
    pub(super) async fn move_leader(
        &mut self,
        look: &Look,
        pod: &PodName,
        to: MemberId,
    ) -> Result<Duration, Problem> {
        let run = Arc::clone(&self.run);
        let endpoint = look.world.endpoint_of(pod);
        let (Some(endpoint), Some(from)) = (endpoint, look.snapshot.leader) else {
            return Ok(WAITING);
        };
        // No other replica begins a move meanwhile.
        let begun = LeaderMove {
            from,
            to,
            term: look.snapshot.term.unwrap_or_default(),
        };
        let update = StatusUpdate {
            leader_move: Some(begun),
            ..StatusUpdate::default()
        };
        run.ledger().update(&look.page, update).await?;
        let deadline = run.clock.instant() + MOVE;
        let moving = run.judge.admin().move_leader(endpoint, to, deadline);
        if let Err(error) = moving.await {
            let because = causes(&error);
            warn!(cluster = %self.cluster, from = %pod, %to, because, "leadership could not be moved");
            if let AdminError::PermissionDenied(_) = error {
                self.leadership_stays_until = Some(run.clock.instant() + AFTER_REFUSAL);
            }
        }
        Ok(STEP)
    }

    /// Deletes the old claim, after that of the write-ahead log if it is another. Both stay,
    /// terminating, until their pod is gone.
    pub(super) async fn delete_claim(
        &self,
        look: &Look,
        gathered: &Gathered,
        pod: &PodName,
        uid: &str,
    ) -> Done {
        let claim = gathered.claims.get(pod).ok_or("its claim is not known")?;
        let namespace = &look.page.cluster.namespace;
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.run.client.clone(), namespace);
        let only_this = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        if let Some((name, uid)) = &claim.wal {
            let only_this = DeleteParams::default().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            });
            done(claims.delete(name, &only_this).await.map(drop))?;
        }
        let deleted = claims.delete(&claim.name, &only_this).await;
        done(deleted.map(drop))
    }

    /// Deletes the old pod.
    pub(super) async fn delete_pod(&self, look: &Look, name: &PodName, uid: &PodUid) -> Done {
        let Some(pod) = look.world.pod(name) else {
            return Ok(());
        };
        let only_this = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_string()),
            resource_version: pod.resource_version(),
        });
        let deleted = self.pods(look).delete(name.as_str(), &only_this).await;
        done(deleted.map(drop))
    }

    /// Removes the scheduling gate from a pod.
    pub(super) async fn release(&self, look: &Look, pod: &PodName, uid: &PodUid) -> Done {
        let change = json!({
            "metadata": {"uid": uid.as_str()},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": IDENTITY}]},
        });
        let change = Patch::Strategic(&change);
        let params = PatchParams::default();
        let patched = self.pods(look).patch(pod.as_str(), &params, &change).await;
        if patched.is_ok() {
            let namespace = &look.page.cluster.namespace;
            let told = tell::say_held(&self.run, namespace, (pod, uid), None).await;
            if let Err(error) = told {
                let because = causes(&error);
                warn!(cluster = %self.cluster, %pod, because, "cannot write the pod's condition");
            }
        }
        done(patched.map(drop))
    }

    /// Starts the first pod that waits and need not wait any more. Where a new cluster begins, the
    /// old one is forgotten first, and a pod that was made to join it is created anew.
    pub(super) async fn release_any(
        &self,
        look: &Look,
        gathered: &Gathered,
    ) -> Result<Option<Duration>, Problem> {
        let observer = &self.run.observer;
        let list = gathered.facts.list.as_deref();
        let some_serve = some_serve(&look.snapshot);
        let begun = look.page.status().map(|status| &status.begins_anew);
        let of_new = |uid: &PodUid| {
            let mut begun = begun.into_iter().flatten();
            begun.any(|known| known == uid.as_str())
        };
        let may_start = |(pod, uid): &&(PodName, PodUid)| {
            let claim = gathered.claims.get(pod);
            let found = finding(&look.page, pod, claim, &gathered.notes);
            let seen = (list, &look.snapshot);
            let on_its_own =
                observer.may_start(&look.page, &look.world, pod, &found, seen, some_serve);
            on_its_own || of_new(uid)
        };
        let Some((pod, uid)) = gathered.held.iter().find(may_start) else {
            return Ok(None);
        };
        let set = look.world.stateful_set();
        if !some_serve && !of_new(uid) && observer.bootstraps(look.page.budget(), set) {
            let held = gathered.held.iter().map(|(_, uid)| uid.clone());
            self.run.ledger().begin_anew(&look.page, held).await?;
            info!(cluster = %self.cluster, "record of the old cluster removed: a new one begins");
            return Ok(Some(STEP));
        }
        let recreated = of_new(uid)
            && look
                .world
                .pod(pod)
                .is_some_and(|pod| is_to_join(pod, set, look.world.etcd_container()));
        self.record_expected(look, gathered, (pod, uid)).await?;
        let done = if recreated {
            self.delete_pod(look, pod, uid).await
        } else {
            self.release(look, pod, uid).await
        };
        Ok(Some(match done {
            Ok(()) => {
                info!(cluster = %self.cluster, %pod, recreated, "scheduling gate removed");
                STEP
            }
            Err(because) => {
                warn!(cluster = %self.cluster, %pod, because, "cannot remove the scheduling gate");
                WAITING
            }
        }))
    }

    /// Records the volume of a member that etcd expects in a pod, before the pod starts. It may be
    /// created again before a look shows that the member serves.
    async fn record_expected(
        &self,
        look: &Look,
        gathered: &Gathered,
        (pod, uid): (&PodName, &PodUid),
    ) -> Result<(), Problem> {
        let list = gathered.facts.list.as_deref().unwrap_or_default();
        let volume = gathered.claims.get(pod).and_then(|c| c.volume.clone());
        let mut volumes = look.page.volume_records();
        let expected = expected_in(&look.page.cluster.name, pod, list);
        if let (Some(id), Some(volume), false) = (expected, volume, volumes.contains_key(pod)) {
            let record = VolumeRecord {
                id,
                pod: uid.clone(),
                volume,
            };
            volumes.insert(pod.clone(), record);
            let update = StatusUpdate {
                volumes: Some(volumes),
                ..StatusUpdate::default()
            };
            self.run.ledger().update(&look.page, update).await?;
        }
        Ok(())
    }

    /// Disarms a CORRUPT alarm for which the member that was removed is the reason. etcd refuses
    /// writes while it stands.
    pub(super) async fn disarm(&self, look: &Look, gathered: &Gathered) -> Option<Duration> {
        let member = disarm(&look.snapshot, &gathered.facts).into_iter().next()?;
        let record = gathered.facts.record.as_ref()?;
        let kind = AlarmKind::Corrupt;
        let deadline = self.run.clock.instant() + CALL;
        let voters = others(look, &record.member).ok()?;
        let admin = self.run.judge.admin();
        let disarmed = any_of(voters, |voter| {
            admin.disarm(voter, Alarm { member, kind }, deadline)
        });
        match disarmed.await {
            Ok(()) => {
                info!(cluster = %self.cluster, %member, "its CORRUPT alarm is disarmed: the reason for it was removed");
                Some(STEP)
            }
            Err(error) => {
                let because = causes(&error);
                warn!(cluster = %self.cluster, %member, because, "its CORRUPT alarm could not be disarmed");
                Some(WAITING)
            }
        }
    }

    /// Ends the replacement: the new voter serves. Its volume is recorded in the same write.
    pub(super) async fn settle(
        &self,
        look: &Look,
        gathered: &Gathered,
        pod: &PodName,
    ) -> Result<Duration, Problem> {
        let run = &self.run;
        let now = record::time(run.clock.now());
        let record = volume_record(look, gathered, pod);
        let settling = run.ledger().settle_replacement(
            &look.page,
            pod,
            Replacement::Serves,
            run.settings.settle_time,
            |all, volumes| {
                let own = |one: &&mut ReplacementStatus| one.member == pod.as_str();
                if let Some(own) = all.iter_mut().find(own) {
                    own.finished = Some(now);
                }
                match record {
                    Some(record) => drop(volumes.insert(pod.clone(), record)),
                    None => drop(volumes.remove(pod)),
                }
            },
        );
        settling.await?;
        self.run.metrics.replacement_step("settle");
        let note = format!("{pod} was replaced and serves");
        self.notify(look, Severity::Normal, "MemberServes", note);
        Ok(STEP)
    }

    /// Ends the replacement before anything was changed. A call that was given up may take effect a
    /// little later, and until then the member must not count.
    pub(super) async fn undo(
        &self,
        look: &Look,
        pod: &PodName,
        because: &str,
    ) -> Result<Duration, Problem> {
        let run = &self.run;
        let page = &look.page;
        let causes = page.grants.of(pod).into_iter().flat_map(|g| &g.causes);
        let seen = run.ledger().seen();
        let age = causes.map(|cause| seen.cause_for(&page.cluster, &page.uid, cause.seq));
        if age.min().is_some_and(|age| age < CALLS_ARE_OVER) {
            return Ok(WAITING);
        }
        let settling = run.ledger().settle_replacement(
            page,
            pod,
            Replacement::Undone,
            run.settings.settle_time,
            |all, _| all.retain(|one| one.member != pod.as_str() || one.finished.is_some()),
        );
        settling.await?;
        self.run.metrics.replacement_step("undo");
        info!(cluster = %self.cluster, %pod, because, "it is not replaced after all");
        Ok(WAITING)
    }

    fn pods(&self, look: &Look) -> Api<Pod> {
        Api::namespaced(self.run.client.clone(), &look.page.cluster.namespace)
    }

    fn notify(&self, look: &Look, severity: Severity, reason: &str, note: String) {
        self.run.events.notify(Notice {
            regarding: look.page.budget().object_ref(&()),
            severity,
            reason: reason.to_owned(),
            action: "Replace",
            note,
        });
    }
}

/// Whether the gate made the pod join a cluster: its etcd is given another state than in the
/// template of its StatefulSet.
fn is_to_join(pod: &Pod, set: Option<&StatefulSet>, named: Option<&str>) -> bool {
    let joins = |spec: Option<&PodSpec>| {
        let container = EtcdContainer::of(spec?, named).certain()?;
        Some(matches!(joining(container), Ok(None)))
    };
    let template = set.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    joins(pod.spec.as_ref()) == Some(true) && joins(template) != Some(true)
}

/// The record of the volume on which the member in this pod runs.
fn volume_record(look: &Look, gathered: &Gathered, pod: &PodName) -> Option<VolumeRecord> {
    let member = look.snapshot.member(pod)?;
    Some(VolumeRecord {
        id: member.id?,
        pod: member.pod.as_ref()?.uid.clone(),
        volume: gathered.claims.get(pod)?.volume.clone()?,
    })
}

/// The endpoints of the voters that serve, without the member in this pod. The one that leads comes
/// first.
fn others<'a>(look: &'a Look, pod: &PodName) -> Result<Vec<&'a Endpoint>, String> {
    let serving = look.snapshot.members.iter();
    let mut serving: Vec<_> = serving
        .filter(|member| member.serves_quorum() && member.pod_name() != Some(pod))
        .collect();
    serving.sort_by_key(|member| !member.leader);
    let endpoints = serving.into_iter();
    let endpoints: Vec<_> = endpoints
        .filter_map(|member| look.world.endpoint_of(member.pod_name()?))
        .collect();
    if endpoints.is_empty() {
        return Err("no other voter serves".to_owned());
    }
    Ok(endpoints)
}

/// Asks one voter after the other for a change of the members, until one does not refuse.
///
/// etcd refuses with "unhealthy cluster" by what the asked voter alone knows of its connections. A
/// voter may take another one for unconnected as long as it runs, although both serve: a message
/// failed after the streams between them were up again, and nothing else marks a peer as active.
async fn any_of<E, F>(voters: Vec<E>, ask: impl Fn(E) -> F) -> Result<(), AdminError>
where
    F: Future<Output = Result<(), AdminError>>,
{
    let mut answer = Err(AdminError::Unanswered(Unanswered::NotAsked));
    for voter in voters {
        answer = ask(voter).await;
        if !matches!(answer, Err(AdminError::Refused(_))) {
            break;
        }
    }
    answer
}

/// The end of a request. What is gone or was changed is looked at again.
fn done(answer: Result<(), kube::Error>) -> Done {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(causes(&error)),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Asks three voters who answer like this. Returns the answer, and the number of those asked.
    async fn asked(
        answers: [fn() -> Result<(), AdminError>; 3],
    ) -> (Result<(), AdminError>, usize) {
        let count = Mutex::new(0);
        let answer = any_of(answers.to_vec(), async |answer| {
            *count.lock().unwrap() += 1;
            answer()
        });
        (answer.await, count.into_inner().unwrap())
    }

    fn refuses() -> Result<(), AdminError> {
        Err(AdminError::Refused("unhealthy cluster".to_owned()))
    }

    fn is_silent() -> Result<(), AdminError> {
        Err(AdminError::Unanswered(Unanswered::Deadline))
    }

    #[tokio::test]
    async fn a_voter_that_takes_another_for_unconnected_is_not_the_only_one_that_is_asked() {
        assert_eq!(asked([refuses, || Ok(()), refuses]).await, (Ok(()), 2));
        assert_eq!(asked([refuses; 3]).await, (refuses(), 3));
    }

    #[tokio::test]
    async fn a_change_that_may_have_been_made_is_not_asked_for_again() {
        let silent = [is_silent, refuses, || Ok(())];
        assert_eq!(asked(silent).await, (is_silent(), 1));
        assert_eq!(asked([|| Ok(()), refuses, refuses]).await, (Ok(()), 1));
    }
}
