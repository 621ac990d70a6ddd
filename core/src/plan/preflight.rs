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

/// The image of etcd's container, where its tag says a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedImage {
    /// The last part of the image's name: `etcd`.
    pub name: String,
    /// The version by the tag.
    pub version: Version,
}

/// A member in a pod of the StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningMember {
    /// The name of its pod.
    pub pod: PodName,
    /// Whether it serves.
    pub serves: bool,
    /// The version that it reports.
    pub version: Option<Version>,
    /// The image, if its tag says a version.
    pub image: Option<TaggedImage>,
    /// The resident memory, in bytes. Read only where the template lowers the limit.
    pub memory: Option<u64>,
    /// The settings.
    pub settings: EtcdSettings,
}

/// etcd as the template has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateEtcd {
    /// The image, if its tag says a version. It counts only where running members have an image of
    /// this name, and all their tags say the versions which they report: the tag may be that of a
    /// wrapper.
    pub image: Option<TaggedImage>,
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
/// that shows it. A member that does not serve shows none: its pod may be of a template that was
/// taken back.
///
/// ```
/// use quorumgate_core::plan::{
///     EtcdSettings, Finding, RunningMember, TaggedImage, TemplateEtcd, preflight,
/// };
///
/// let image = |version: &str| Some(TaggedImage {
///     name: "etcd".into(),
///     version: version.parse().unwrap(),
/// });
/// let running = RunningMember {
///     pod: "etcd-0".into(),
///     serves: true,
///     version: "3.6.16".parse().ok(),
///     image: image("3.6.16"),
///     memory: None,
///     settings: EtcdSettings::default(),
/// };
/// let template = TemplateEtcd { image: image("3.5.21"), ..TemplateEtcd::default() };
/// let findings = preflight(&template, &[running]);
/// assert!(matches!(findings[..], [Finding::Downgrade { .. }]));
/// ```
pub fn preflight(template: &TemplateEtcd, members: &[RunningMember]) -> Vec<Finding> {
    let serving: Vec<&RunningMember> = members.iter().filter(|member| member.serves).collect();
    let to = target_version(template, members);
    let version = |member: &RunningMember| {
        let by_image = member.image.as_ref().map(|image| image.version);
        member.version.or(by_image)
    };
    // The cluster's version is the lowest of its members', and its data is of that version.
    let lowest = members.iter().filter_map(|m| Some((version(m)?, &m.pod)));
    let lowest = lowest.min_by_key(|(version, _)| *version);
    let lowest = lowest.filter(|_| !serving.is_empty());
    let step = lowest
        .zip(to)
        .and_then(|((from, pod), to)| version_step(pod, from, to));
    let risk = to.and_then(|to| serving.iter().find_map(|member| unsafe_step(member, to)));
    let texts: [(ChangedSetting, Text); 3] = [
        (ChangedSetting::DataDirectory, |of| of.data_dir.as_ref()),
        (ChangedSetting::Name, |of| of.name.as_ref()),
        (ChangedSetting::ClusterToken, |of| of.cluster_token.as_ref()),
    ];
    let changed = texts
        .into_iter()
        .filter_map(|(setting, text)| changed(setting, template, &serving, text));
    let tls = client_tls_removed(template, &serving);
    let memory = serving.iter().find_map(|m| too_little_memory(template, m));
    let first = step.into_iter().chain(risk).chain(changed);
    first.chain(tls).chain(memory).collect()
}

/// A setting as text.
type Text = fn(&EtcdSettings) -> Option<&String>;

/// The version that updated members will have, as far as tags tell.
fn target_version(template: &TemplateEtcd, members: &[RunningMember]) -> Option<Version> {
    let image = template.image.as_ref()?;
    let is_told = |member: &RunningMember| match (member.version, &member.image) {
        (None, _) => true,
        (Some(version), Some(image)) => release(version) == release(image.version),
        (Some(_), None) => false,
    };
    let mut images = members.iter().filter_map(|member| member.image.as_ref());
    let is_known =
        images.any(|own| own.name == image.name && own.version.major == image.version.major);
    (is_known && members.iter().all(is_told)).then_some(image.version)
}

fn release(of: Version) -> (u32, u32) {
    (of.major, of.minor)
}

fn version_step(pod: &PodName, from: Version, to: Version) -> Option<Finding> {
    let pod = pod.clone();
    let next = (from.major, from.minor.saturating_add(1));
    if release(to) < release(from) {
        return Some(Finding::Downgrade { pod, from, to });
    }
    (release(to) > next).then_some(Finding::SkippedMinor { pod, from, to })
}

fn unsafe_step(member: &RunningMember, to: Version) -> Option<Finding> {
    let from = member.version?;
    let defect = Defect::PROMOTION_NOT_PERSISTED;
    let leaves = release(to) > release(from);
    (leaves && defect.affects(from)).then(|| Finding::UnsafeStep {
        pod: member.pod.clone(),
        from,
        to,
        defect,
    })
}

/// The change of a setting, where more members differ from the template than agree with it. On the
/// way back from a template that was rolled out to one member, most agree.
fn changed(
    setting: ChangedSetting,
    template: &TemplateEtcd,
    serving: &[&RunningMember],
    text: Text,
) -> Option<Finding> {
    let to = text(&template.settings)?;
    let stated = serving.iter().filter_map(|member| {
        let from = text(&member.settings)?;
        Some((member, from))
    });
    let (agree, differ): (Vec<_>, Vec<_>) = stated.partition(|(_, from)| *from == to);
    let (member, from) = differ.first().filter(|_| differ.len() > agree.len())?;
    Some(Finding::Changed {
        setting,
        pod: member.pod.clone(),
        from: (*from).clone(),
        to: to.clone(),
    })
}

fn client_tls_removed(template: &TemplateEtcd, serving: &[&RunningMember]) -> Option<Finding> {
    if template.settings.client_tls != Some(false) {
        return None;
    }
    let with = |tls: bool| {
        let having = serving.iter().copied();
        having.filter(move |member| member.settings.client_tls == Some(tls))
    };
    let is_most = with(true).count() > with(false).count();
    let pod = with(true).next().filter(|_| is_most)?.pod.clone();
    Some(Finding::ClientTlsRemoved { pod })
}

fn too_little_memory(template: &TemplateEtcd, member: &RunningMember) -> Option<Finding> {
    let (uses, limit) = (member.memory?, template.memory_limit?);
    let pod = member.pod.clone();
    (uses > limit).then_some(Finding::TooLittleMemory { pod, uses, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, version: &str) -> Option<TaggedImage> {
        let name = name.to_owned();
        let version = version.parse().ok()?;
        Some(TaggedImage { name, version })
    }

    fn member(pod: &str, version: &str) -> RunningMember {
        RunningMember {
            pod: pod.into(),
            serves: true,
            version: version.parse().ok(),
            image: image("etcd", version),
            memory: None,
            settings: EtcdSettings::default(),
        }
    }

    fn template(version: &str) -> TemplateEtcd {
        TemplateEtcd {
            image: image("etcd", version),
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

    /// etcd-druid's image has the version of its wrapper.
    #[test]
    fn a_tag_counts_only_where_tags_say_what_members_report() {
        let running = |name: &str, tag: &str| RunningMember {
            image: image(name, tag),
            ..member("etcd-0", "3.5.21")
        };
        let to = |name: &str, tag: &str| TemplateEtcd {
            image: image(name, tag),
            ..TemplateEtcd::default()
        };
        for (running, to) in [
            (
                running("etcd-wrapper", "0.6.2"),
                to("etcd-wrapper", "0.6.3"),
            ),
            (running("etcd-wrapper", "0.6.2"), to("etcd", "3.4.0")),
            (running("etcd", ""), to("etcd", "3.4.0")),
            (running("etcd", "3.5.21"), to("etcd-wrapper", "0.6.2")),
            (running("etcd", "3.5.21"), to("etcd", "2026.1.1")),
        ] {
            let found = preflight(&to, std::slice::from_ref(&running));
            assert_eq!(found, [], "{running:?} to {to:?}");
        }
        let found = preflight(&to("etcd", "3.4.0"), &[running("etcd", "3.5.0")]);
        assert!(!found.is_empty());
    }

    /// The pod of one may be of a template that was taken back, or never have started.
    #[test]
    fn members_that_do_not_serve_hold_no_repair() {
        let mut broken = member("etcd-2", "");
        broken.serves = false;
        broken.settings.data_dir = Some("/wrong".to_owned());
        broken.settings.client_tls = Some(true);
        let mut right = TemplateEtcd::default();
        right.settings.data_dir = Some("/data".to_owned());
        right.settings.client_tls = Some(false);
        assert_eq!(preflight(&right, std::slice::from_ref(&broken)), []);
        let mut whole = member("etcd-0", "");
        whole.settings = right.settings.clone();
        assert_eq!(preflight(&right, &[broken, whole]), []);
    }

    #[test]
    fn the_way_back_from_a_template_that_one_member_has_is_no_change() {
        let with = |pod: &str, dir: &str, tls: bool| {
            let mut member = member(pod, "");
            member.settings.data_dir = Some(dir.to_owned());
            member.settings.client_tls = Some(tls);
            member
        };
        let back = TemplateEtcd {
            settings: with("", "/old", false).settings,
            ..TemplateEtcd::default()
        };
        let updated = with("etcd-2", "/new", true);
        let old = |pod| with(pod, "/old", false);
        assert_eq!(
            preflight(&back, &[updated.clone(), old("etcd-1"), old("etcd-0")]),
            []
        );
        assert_eq!(preflight(&back, &[updated]).len(), 2);
    }

    /// A silent member may be the one that has not been upgraded.
    #[test]
    fn a_silent_member_counts_by_its_image() {
        let mut silent = member("etcd-0", "3.5.21");
        silent.version = None;
        silent.serves = false;
        let upgraded = [member("etcd-1", "3.6.1"), member("etcd-2", "3.6.1"), silent];
        assert_eq!(preflight(&template("3.5.21"), &upgraded), []);
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
