//! The preflight of a rollout: faults that the template shows before its first member goes.
//!
//! A rollout stops at the first updated member that does not serve. Some faults show later, or cost
//! that member more than a restart: a version that cannot read the data, another data directory, a
//! limit that kills it under load. They are in the template from the beginning.

use super::version::{Defect, Version};
use crate::quorum::PodName;

/// The settings of etcd in a pod or a template, as far as its container states them. Two are
/// compared only where both are stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The data directory, as it is written there.
    pub data_dir: Option<String>,
    /// The member's name, as it is written there.
    pub name: Option<String>,
    /// The token of the initial cluster.
    pub cluster_token: Option<String>,
    /// Whether clients are served over TLS.
    pub client_tls: Option<bool>,
}

/// A member that runs, before the rollout takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningMember {
    /// The name of its pod.
    pub pod: PodName,
    /// The version that it reports.
    pub version: Option<Version>,
    /// The resident memory, in bytes. Read only where the template lowers the limit.
    pub memory: Option<u64>,
    /// The settings.
    pub settings: EtcdSettings,
}

/// etcd as the template has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateEtcd {
    /// The version, by the tag of the image.
    pub version: Option<Version>,
    /// The memory limit, in bytes.
    pub memory_limit: Option<u64>,
    /// The settings.
    pub settings: EtcdSettings,
}

/// A setting that a running member and the template have in different words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum ChangedSetting {
    /// `--data-dir`: updated members start without their data.
    #[display("data directory")]
    DataDirectory,
    /// `--name`: an updated member with an empty volume is not found in the initial cluster.
    #[display("member name")]
    Name,
    /// `--initial-cluster-token`: a member that is made anew belongs to another cluster.
    #[display("cluster token")]
    ClusterToken,
}

/// A fault of the template. `Display` is a clause for people.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Finding {
    /// etcd starts with no data of a higher minor version.
    #[display(
        "etcd {from} runs in {pod} and the template has {to}, a downgrade, which etcd refuses unless it was enabled with etcdctl downgrade enable (3.6 and later)"
    )]
    Downgrade {
        /// The pod.
        pod: PodName,
        /// The version that runs.
        from: Version,
        /// The version of the template.
        to: Version,
    },
    /// etcd upgrades by one minor version at a time.
    #[display(
        "etcd {from} runs in {pod} and the template has {to}: upgrade one minor version at a time"
    )]
    SkippedMinor {
        /// The pod.
        pod: PodName,
        /// The version that runs.
        from: Version,
        /// The version of the template.
        to: Version,
    },
    /// The step to 3.6 meets members that a defect of 3.5 left half promoted.
    #[display(
        "etcd {from} runs in {pod} and the template has {to}: {defect}; update to 3.5.20 or later first"
    )]
    UnsafeStep {
        /// The pod.
        pod: PodName,
        /// The version that runs.
        from: Version,
        /// The version of the template.
        to: Version,
        /// The defect of the version that runs.
        defect: Defect,
    },
    /// A setting by which a member finds its data and its cluster is another one.
    #[display("the {setting} is {from} in {pod} and {to} in the template")]
    Changed {
        /// The setting.
        setting: ChangedSetting,
        /// The pod.
        pod: PodName,
        /// The text that runs.
        from: String,
        /// The text of the template.
        to: String,
    },
    /// Clients that ask over TLS are served in plaintext.
    #[display("{pod} serves clients over TLS, and the template does not")]
    ClientTlsRemoved {
        /// The pod.
        pod: PodName,
    },
    /// An updated member gets less memory than it uses now.
    #[display("{pod} uses {} MiB of memory, and the template limits it to {} MiB", uses >> 20, limit >> 20)]
    TooLittleMemory {
        /// The pod.
        pod: PodName,
        /// The resident memory, in bytes.
        uses: u64,
        /// The limit of the template, in bytes.
        limit: u64,
    },
}

/// The faults of the template beside the members that run, each kind once: with the first member
/// that shows it.
///
/// ```
/// use quorumgate_core::plan::{EtcdSettings, Finding, RunningMember, TemplateEtcd, preflight};
///
/// let running = RunningMember {
///     pod: "etcd-0".into(),
///     version: "3.6.16".parse().ok(),
///     memory: None,
///     settings: EtcdSettings::default(),
/// };
/// let template = TemplateEtcd { version: "3.5.21".parse().ok(), ..TemplateEtcd::default() };
/// let findings = preflight(&template, &[running]);
/// assert!(matches!(findings[..], [Finding::Downgrade { .. }]));
/// ```
pub fn preflight(template: &TemplateEtcd, running: &[RunningMember]) -> Vec<Finding> {
    let with_version = running.iter().filter(|member| member.version.is_some());
    // The cluster's version is the lowest of its members', and its data is of that version.
    let lowest = with_version.min_by_key(|member| member.version);
    let step = lowest.and_then(|member| version_step(template, member));
    let others = CHECKS.iter().filter_map(|check| {
        let mut found = running.iter().filter_map(|member| check(template, member));
        found.next()
    });
    step.into_iter().chain(others).collect()
}

/// A check of the template beside one member.
type Check = fn(&TemplateEtcd, &RunningMember) -> Option<Finding>;

/// The checks for which any member counts.
const CHECKS: [Check; 6] = [
    unsafe_step,
    |template, member| {
        let setting = ChangedSetting::DataDirectory;
        changed(setting, template, member, |of| &of.data_dir)
    },
    |template, member| changed(ChangedSetting::Name, template, member, |of| &of.name),
    |template, member| {
        let setting = ChangedSetting::ClusterToken;
        changed(setting, template, member, |of| &of.cluster_token)
    },
    client_tls_removed,
    too_little_memory,
];

fn version_step(template: &TemplateEtcd, member: &RunningMember) -> Option<Finding> {
    let (from, to) = (member.version?, template.version?);
    let pod = member.pod.clone();
    let release = |of: Version| (of.major, of.minor);
    let next = (from.major, from.minor.saturating_add(1));
    if release(to) < release(from) {
        return Some(Finding::Downgrade { pod, from, to });
    }
    (release(to) > next).then_some(Finding::SkippedMinor { pod, from, to })
}

fn unsafe_step(template: &TemplateEtcd, member: &RunningMember) -> Option<Finding> {
    let (from, to) = (member.version?, template.version?);
    let defect = Defect::PROMOTION_NOT_PERSISTED;
    let leaves = (to.major, to.minor) > (from.major, from.minor);
    (leaves && defect.affects(from)).then(|| Finding::UnsafeStep {
        pod: member.pod.clone(),
        from,
        to,
        defect,
    })
}

fn changed(
    setting: ChangedSetting,
    template: &TemplateEtcd,
    member: &RunningMember,
    text: fn(&EtcdSettings) -> &Option<String>,
) -> Option<Finding> {
    let from = text(&member.settings).as_ref()?;
    let to = text(&template.settings).as_ref()?;
    (from != to).then(|| Finding::Changed {
        setting,
        pod: member.pod.clone(),
        from: from.clone(),
        to: to.clone(),
    })
}

fn client_tls_removed(template: &TemplateEtcd, member: &RunningMember) -> Option<Finding> {
    let is_removed =
        member.settings.client_tls == Some(true) && template.settings.client_tls == Some(false);
    let pod = member.pod.clone();
    is_removed.then_some(Finding::ClientTlsRemoved { pod })
}

fn too_little_memory(template: &TemplateEtcd, member: &RunningMember) -> Option<Finding> {
    let (uses, limit) = (member.memory?, template.memory_limit?);
    let pod = member.pod.clone();
    (uses > limit).then_some(Finding::TooLittleMemory { pod, uses, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pod: &str, version: &str) -> RunningMember {
        RunningMember {
            pod: pod.into(),
            version: version.parse().ok(),
            memory: None,
            settings: EtcdSettings::default(),
        }
    }

    fn template(version: &str) -> TemplateEtcd {
        TemplateEtcd {
            version: version.parse().ok(),
            ..TemplateEtcd::default()
        }
    }

    /// The findings in words, about members of these versions and an image of that one.
    fn step(running: &[&str], to: &str) -> String {
        let members: Vec<_> = running.iter().map(|v| member("etcd-0", v)).collect();
        let found = preflight(&template(to), &members);
        let words: Vec<_> = found.iter().map(Finding::to_string).collect();
        words.join("; ")
    }

    #[test]
    fn a_downgrade_and_a_skipped_minor_version_are_found() {
        assert!(step(&["3.6.16", "3.6.16"], "3.5.21").contains("a downgrade"));
        assert!(step(&["3.4.38"], "3.6.1").contains("one minor version at a time"));
        for (running, to) in [
            (&["3.5.21"][..], "3.5.20"),
            (&["3.5.21"], "3.6.0"),
            (&["3.6.1"], "3.6.16"),
            (&[""], "3.4.0"),
            (&["3.6.1"], "latest"),
        ] {
            assert_eq!(step(running, to), "", "{running:?} to {to}");
        }
    }

    /// The way back from an upgrade that stopped at its first member.
    #[test]
    fn the_lowest_version_decides_what_a_downgrade_is() {
        assert_eq!(step(&["3.6.16", "3.5.21", "3.5.21"], "3.5.21"), "");
    }

    #[test]
    fn a_step_to_3_6_from_members_that_may_be_half_promoted_is_found() {
        assert!(step(&["3.5.21", "3.5.19"], "3.6.1").contains("3.5.20 or later first"));
        assert_eq!(step(&["3.5.19"], "3.5.21"), "");
    }

    #[test]
    fn other_words_for_data_name_and_token_are_found_where_both_are_known() {
        let settings = |text: Option<&str>| EtcdSettings {
            data_dir: text.map(str::to_owned),
            name: text.map(str::to_owned),
            cluster_token: text.map(str::to_owned),
            client_tls: None,
        };
        let found = |from, to| {
            let running = RunningMember {
                settings: settings(from),
                ..member("etcd-1", "")
            };
            let template = TemplateEtcd {
                settings: settings(to),
                ..TemplateEtcd::default()
            };
            let found = preflight(&template, &[running]);
            found.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let all = [
            "the data directory is a in etcd-1 and b in the template",
            "the member name is a in etcd-1 and b in the template",
            "the cluster token is a in etcd-1 and b in the template",
        ];
        assert_eq!(found(Some("a"), Some("b")), all);
        for (from, to) in [(Some("a"), Some("a")), (None, Some("b")), (Some("a"), None)] {
            assert!(found(from, to).is_empty(), "{from:?} to {to:?}");
        }
    }

    #[test]
    fn removed_client_tls_is_found_and_added_tls_is_not() {
        let found = |from: Option<bool>, to: Option<bool>| {
            let mut running = member("etcd-1", "");
            running.settings.client_tls = from;
            let mut to_template = TemplateEtcd::default();
            to_template.settings.client_tls = to;
            !preflight(&to_template, &[running]).is_empty()
        };
        assert!(found(Some(true), Some(false)));
        assert!(!found(Some(false), Some(true)));
        assert!(!found(None, Some(false)) && !found(Some(true), None));
    }

    #[test]
    fn a_limit_below_what_a_member_uses_is_found() {
        let found = |uses: u64| {
            let mut running = member("etcd-1", "");
            running.memory = Some(uses << 20);
            let template = TemplateEtcd {
                memory_limit: Some(512 << 20),
                ..TemplateEtcd::default()
            };
            let found = preflight(&template, &[running]);
            found.first().map(Finding::to_string)
        };
        let too_much = "etcd-1 uses 700 MiB of memory, and the template limits it to 512 MiB";
        assert_eq!(found(700).as_deref(), Some(too_much));
        assert_eq!(found(512), None);
    }
}
