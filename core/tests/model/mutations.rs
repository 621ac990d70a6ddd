//! The errors that the model can be given.

use crate::exhaustive::is_explored;
use crate::exploration::explore_until_broken;
use crate::properties::{DEAD_GO, EMPTY, FOUNDED, KEPT, MAJORITY, NOBODY_WAITS, QUORUM, SETTLES};
use crate::scenario::{
    ALL_AT_ONCE, BLIND_ROLLOUT, DATA_IN_PODS, DEFRAGMENTATION, FAILURES, HALVES, LEARNER,
    LOST_VOLUMES, MUTE_ROLLOUT, OUT_OF_FORCE, OUTAGE, QUIET, RECREATION, REJECTED,
    REJECTED_ROLLOUT, REMOVAL, REPLACEMENT, REPLACEMENT_GIVEN_UP, REPLACEMENT_OF_FOUR, REPORTS,
    REUSED_ADDRESS, SCALING, Scenario, TWO_OUT,
};

/// An error in the protocol, or in the input or output of the shipped code. The model has to find
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// No error: everything is as shipped.
    None,
    SettleByAgeWithoutALook,
    ResendAnOldVerdict,
    CountUnknownAsServing,
    OwnGrantAlwaysPasses,
    RepeatedYesWithoutAWrite,
    ShrinkTheExpectedVoters,
    NoGrantForNonServing,
    CountTerminatingAsServing,
    LearnerWithoutAGrant,
    EvidenceAcrossAResourceVersion,
    LookBeforeTheLedger,
    ShortSettleTime,
    Rule12WithoutItsException,
    OneIdOnTwoPods,
    QuorumLostByTimeouts,
    ReplaceDroppedByANewerUid,
    RemoveBeforeTheGrant,
    PromoteBeforeCaughtUp,
    UndoWhileACallIsAlive,
    StartWithoutTheGuard,
    DefragmentWithoutRenewal,
    SettleADefragmentationByItsMetricAlone,
    RecreatedBudgetStartsTrusted,
    NoBudgetReadAsForeign,
    CountWhatLingersAsServing,
    ReportOverTheLedger,
    StepsByMaxUnavailableAlone,
    StepWithoutAFence,
    AnswersCountByName,
    NoGraceAfterAScaleOut,
    ScaleInWithoutAGrant,
    AdmitEveryScaleIn,
    TrustedRightAfterAnOutage,
    TrustWhatIsWrittenOfForce,
    OutagesUnknownUntilWritten,
    BelieveRefusals,
    TakeSilenceForMute,
    // Three errors that break liveness, which has to be able to fail too.
    NeverSettleWhatStands,
    CountServingAsUnknown,
    RefuseTheDead,
}

/// An error, the scenario in which it is made, and the property that it breaks.
struct Case {
    mutation: Mutation,
    scenario: Scenario,
    /// The property that it breaks.
    breaks: &'static str,
}

/// Every error that breaks safety. The same scenario holds without it.
const CASES: [Case; 40] = [
    case(Mutation::SettleByAgeWithoutALook, LEARNER, MAJORITY),
    case(Mutation::ResendAnOldVerdict, QUIET, MAJORITY),
    case(Mutation::CountUnknownAsServing, FAILURES, MAJORITY),
    case(Mutation::OwnGrantAlwaysPasses, FAILURES, MAJORITY),
    case(Mutation::RepeatedYesWithoutAWrite, QUIET, MAJORITY),
    case(Mutation::ShrinkTheExpectedVoters, REMOVAL, MAJORITY),
    case(Mutation::NoGrantForNonServing, FAILURES, MAJORITY),
    case(Mutation::CountTerminatingAsServing, FAILURES, MAJORITY),
    case(Mutation::LearnerWithoutAGrant, LEARNER, MAJORITY),
    case(Mutation::EvidenceAcrossAResourceVersion, QUIET, MAJORITY),
    case(Mutation::LookBeforeTheLedger, QUIET, MAJORITY),
    case(Mutation::ShortSettleTime, QUIET, MAJORITY),
    case(Mutation::Rule12WithoutItsException, OUTAGE, MAJORITY),
    case(Mutation::OneIdOnTwoPods, REUSED_ADDRESS, MAJORITY),
    case(Mutation::QuorumLostByTimeouts, BLIND_ROLLOUT, FOUNDED),
    case(Mutation::ReplaceDroppedByANewerUid, REPLACEMENT, MAJORITY),
    case(Mutation::RemoveBeforeTheGrant, REPLACEMENT, MAJORITY),
    case(Mutation::PromoteBeforeCaughtUp, REPLACEMENT_OF_FOUR, QUORUM),
    case(
        Mutation::UndoWhileACallIsAlive,
        REPLACEMENT_GIVEN_UP,
        MAJORITY,
    ),
    case(Mutation::StartWithoutTheGuard, LOST_VOLUMES, KEPT),
    case(Mutation::StartWithoutTheGuard, LOST_VOLUMES, EMPTY),
    case(Mutation::StartWithoutTheGuard, DATA_IN_PODS, KEPT),
    case(
        Mutation::DefragmentWithoutRenewal,
        DEFRAGMENTATION,
        MAJORITY,
    ),
    case(
        Mutation::SettleADefragmentationByItsMetricAlone,
        DEFRAGMENTATION,
        MAJORITY,
    ),
    case(Mutation::RecreatedBudgetStartsTrusted, RECREATION, MAJORITY),
    case(Mutation::NoBudgetReadAsForeign, RECREATION, MAJORITY),
    case(Mutation::CountWhatLingersAsServing, QUIET, MAJORITY),
    case(Mutation::ReportOverTheLedger, REPORTS, MAJORITY),
    case(Mutation::StepsByMaxUnavailableAlone, TWO_OUT, MAJORITY),
    case(Mutation::StepWithoutAFence, ALL_AT_ONCE, MAJORITY),
    case(Mutation::AnswersCountByName, HALVES, MAJORITY),
    case(Mutation::NoGraceAfterAScaleOut, SCALING, MAJORITY),
    case(Mutation::ScaleInWithoutAGrant, SCALING, MAJORITY),
    case(Mutation::AdmitEveryScaleIn, SCALING, FOUNDED),
    case(Mutation::TrustedRightAfterAnOutage, OUT_OF_FORCE, MAJORITY),
    case(Mutation::TrustWhatIsWrittenOfForce, OUT_OF_FORCE, MAJORITY),
    case(Mutation::OutagesUnknownUntilWritten, OUT_OF_FORCE, MAJORITY),
    case(Mutation::BelieveRefusals, REJECTED, MAJORITY),
    case(Mutation::BelieveRefusals, REJECTED_ROLLOUT, MAJORITY),
    case(Mutation::TakeSilenceForMute, MUTE_ROLLOUT, FOUNDED),
];

/// The errors that break liveness.
const LIVENESS: [Case; 3] = [
    case(Mutation::NeverSettleWhatStands, QUIET, SETTLES),
    case(Mutation::CountServingAsUnknown, QUIET, NOBODY_WAITS),
    case(Mutation::RefuseTheDead, FAILURES, DEAD_GO),
];

const fn case(mutation: Mutation, scenario: Scenario, breaks: &'static str) -> Case {
    Case {
        mutation,
        scenario,
        breaks,
    }
}

#[test]
fn every_mutation_is_caught() {
    for Case {
        mutation,
        scenario,
        breaks,
    } in CASES.iter().chain(&LIVENESS)
    {
        assert!(
            is_explored(scenario),
            "{} has to hold without {mutation:?}",
            scenario.name
        );
        let found = explore_until_broken(scenario.mutated(*mutation), breaks);
        let broken = found.broken.as_ref().map(|(property, _)| *property);
        assert_eq!(
            broken,
            Some(*breaks),
            "{mutation:?} in {}: {}",
            scenario.name,
            found.story()
        );
        println!(
            "{mutation:?} in {:?}: \"{breaks}\" is broken after {} steps",
            scenario.name, found.depth
        );
    }
}
