//! Advice where no member can be asked: one cause, and one command.

use std::fmt;

use serde_json::{Value, json};

use super::trial::{FailedWay, WhyFailed};
use crate::api::{IdentitySource, Scheme, Way};
use crate::etcd::{Failure, Obstacle};
use crate::quorum::ClusterRef;
use crate::quorum::evidence::Unanswered;

/// The cause for which nobody could be asked, and the command against it.
pub fn advice(cluster: &ClusterRef, failed: &FailedWay) -> String {
    let FailedWay { way, pod, why, .. } = failed;
    let cause = match why {
        WhyFailed::Asked(Failure::Tls(obstacle)) => format!("{pod}: {obstacle}"),
        WhyFailed::Asked(Failure::Other(why)) => {
            format!("{pod}: {why} at port {} ({})", way.port, way.source)
        }
        WhyFailed::Certificates(why) => why.clone(),
        WhyFailed::OtherCluster { recorded, found } => format!(
            "{pod}: an etcd of cluster {found} answers at port {} ({}), and not that of cluster {recorded}",
            way.port, way.source
        ),
    };
    // No other setting helps where this one did.
    if failed.has_answered
        && let Some(look) = look_into(cluster, failed)
    {
        return format!("{cause}, and members have answered by this way before; {look}");
    }
    format!("{cause}; to fix it, {}", fix(cluster, pod, way, why))
}

/// Where to look if members have answered by a way, and answer by it no more. `None` where the
/// failure itself says what to do.
fn look_into(cluster: &ClusterRef, failed: &FailedWay) -> Option<String> {
    let namespace = &cluster.namespace;
    match &failed.why {
        WhyFailed::Certificates(_) => Some(format!(
            "if this lasts, look at the Secret: {}",
            check(cluster, failed.way.identity.as_ref())
        )),
        WhyFailed::Asked(Failure::Other(_)) => Some(format!(
            "its log says why: kubectl -n {namespace} logs {}; or see whether the gate reaches \
             port {}: kubectl -n {namespace} get networkpolicies",
            failed.pod, failed.way.port
        )),
        WhyFailed::Asked(Failure::Tls(_)) | WhyFailed::OtherCluster { .. } => None,
    }
}

/// The command that names a user of etcd, where members want one and the budget names none.
pub fn name_a_user(cluster: &ClusterRef) -> String {
    let ClusterRef { namespace, name } = cluster;
    let secret = format!("{name}-user");
    let members = json!({"auth": {"secret": {"name": secret}}});
    let patch = Patch { cluster, members };
    format!(
        "name a user of etcd: kubectl -n {namespace} create secret generic {secret} \
         --from-literal=username=USER --from-literal=password=PASSWORD, and run: {patch}"
    )
}

fn fix(cluster: &ClusterRef, pod: &str, way: &Way, why: &WhyFailed) -> String {
    let patch = |members: Value| Patch { cluster, members }.to_string();
    let authority = || {
        let members = json!({"tls": {"caSecret": {"name": "SECRET", "key": "ca.crt"}}});
        format!(
            "name the authority that issued etcd's certificate: {}",
            patch(members)
        )
    };
    let port = || {
        let members = json!({"clientPort": "PORT"});
        format!(
            "name the port on which etcd serves clients: {}",
            patch(members)
        )
    };
    let client = || {
        let members = json!({"tls": {"clientSecret": {"name": "SECRET"}}});
        format!(
            "name a client certificate that etcd accepts: {}",
            patch(members)
        )
    };
    let failure = match why {
        WhyFailed::Asked(failure) => failure,
        WhyFailed::Certificates(_) => return authority(),
        WhyFailed::OtherCluster { .. } => return port(),
    };
    match failure {
        Failure::Tls(Obstacle::Names { found, .. }) => match name_for(pod, found) {
            Some(name) => format!("run: {}", patch(json!({"serverName": name}))),
            None => "issue a certificate that has the names of the pods".to_owned(),
        },
        Failure::Tls(Obstacle::Expired { subject, .. }) => {
            format!("renew the certificate {subject:?} of the members, and restart them")
        }
        Failure::Tls(Obstacle::ClientExpired { .. }) => format!(
            "renew the certificate: {}",
            check(cluster, way.identity.as_ref())
        ),
        Failure::Tls(Obstacle::ClientMissing | Obstacle::ClientRefused(_)) => client(),
        Failure::Tls(Obstacle::Issuer { .. } | Obstacle::ServesTls) => authority(),
        Failure::Tls(Obstacle::ServesPlaintext | Obstacle::Other(_))
            if way.scheme == Scheme::Https =>
        {
            "remove spec.members.tls, or let etcd serve TLS".to_owned()
        }
        Failure::Other(Unanswered::Deadline) => format!(
            "let the gate reach port {} of the pods: kubectl -n {} get networkpolicies",
            way.port, cluster.namespace
        ),
        Failure::Tls(_) | Failure::Other(_) => port(),
    }
}

/// A command that shows when the certificate ends.
fn check(cluster: &ClusterRef, identity: Option<&IdentitySource>) -> String {
    let Some(identity) = identity else {
        return format!("kubectl -n {} get secrets", cluster.namespace);
    };
    format!(
        "kubectl -n {} get secret {} -o jsonpath='{{.data.{}}}' | base64 -d | openssl x509 -noout -subject -enddate",
        cluster.namespace,
        identity.secret,
        identity.cert_key.replace('.', "\\.")
    )
}

/// The name of the certificate that is best for `spec.members.serverName`: one that differs from
/// pod to pod before one that does not, and an address last.
fn name_for(pod: &str, found: &[String]) -> Option<String> {
    let own = found.iter().find(|name| {
        let rest = name.strip_prefix(pod);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    if let Some(own) = own {
        return Some(own.replacen(pod, "{pod}", 1));
    }
    let is_address = |name: &&String| name.parse::<std::net::IpAddr>().is_ok();
    let any = found.iter().find(|name| !is_address(name));
    any.or_else(|| found.first())
        .map(|name| match name.strip_prefix("*.") {
            Some(rest) => format!("{{pod}}.{rest}"),
            None => name.clone(),
        })
}

/// The command that changes how the members of a cluster are asked.
struct Patch<'a> {
    cluster: &'a ClusterRef,
    members: Value,
}

impl fmt::Display for Patch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterRef { namespace, name } = self.cluster;
        let patch = json!({"spec": {"members": self.members}});
        // A number that stands for the reader's own is no text.
        let patch = patch.to_string().replace("\"PORT\"", "PORT");
        write!(
            f,
            "kubectl -n {namespace} patch qdb {name} --type merge -p '{patch}'"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PortSource;

    fn told_way() -> Way {
        Way {
            scheme: Scheme::Https,
            port: 2379,
            port_from: PortSource::Default,
            container: None,
            authority: None,
            identity: None,
            server_names: Vec::new(),
            source: "its settings".to_owned(),
        }
    }

    fn told(why: WhyFailed) -> String {
        let (way, pod) = (told_way(), "etcd-0".to_owned());
        let failed = FailedWay {
            way,
            pod,
            why,
            has_answered: false,
        };
        advice(&ClusterRef::new("db", "etcd"), &failed)
    }

    /// An API server that is slow for a moment is no reason to name another authority.
    #[test]
    fn of_a_way_that_has_worked_no_setting_is_changed() {
        let failed = |why| FailedWay {
            way: told_way(),
            pod: "etcd-0".to_owned(),
            why,
            has_answered: true,
        };
        let cluster = ClusterRef::new("db", "etcd");
        for why in [
            WhyFailed::Certificates("the API server did not answer within 1 s".into()),
            WhyFailed::Asked(Unanswered::Deadline.into()),
        ] {
            let told = advice(&cluster, &failed(why));
            assert!(
                !told.contains("patch") && told.contains("kubectl"),
                "{told}"
            );
        }
        let expired = Obstacle::ClientMissing;
        let told = advice(&cluster, &failed(WhyFailed::Asked(Failure::Tls(expired))));
        assert!(told.contains("patch"), "{told}");
    }

    #[test]
    fn each_obstacle_is_told_with_one_command() {
        let names = |found: &[&str]| Obstacle::Names {
            asked: vec!["etcd-0.etcd.db.svc".to_owned()],
            found: found.iter().map(|name| (*name).to_owned()).collect(),
        };
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        let subject = "etcd".to_owned();
        let issuer = "old".to_owned();
        for (obstacle, cause, command) in [
            (
                names(&["a.example.org"]),
                "is for a.example.org",
                r#"{"serverName":"a.example.org"}"#,
            ),
            (
                names(&["*.example.org"]),
                "accepts etcd-0.etcd.db.svc",
                r#"{"serverName":"{pod}.example.org"}"#,
            ),
            (
                names(&["10.0.0.7", "etcd-0.example.org"]),
                "10.0.0.7",
                r#"{"serverName":"{pod}.example.org"}"#,
            ),
            (
                Obstacle::Expired { subject, since },
                "certificate expired on 2026-01-01",
                "renew the certificate \"etcd\"",
            ),
            (Obstacle::Issuer { issuer }, "issued by \"old\"", "caSecret"),
            (
                Obstacle::ClientMissing,
                "asks for a client certificate",
                "clientSecret",
            ),
            (
                Obstacle::ClientRefused("UnknownCA".into()),
                "does not accept",
                "clientSecret",
            ),
            (Obstacle::ServesTls, "answers by TLS", "caSecret"),
            (
                Obstacle::ServesPlaintext,
                "answers in plaintext",
                "remove spec.members.tls",
            ),
        ] {
            let told = told(WhyFailed::Asked(obstacle.into()));
            assert!(told.contains(cause) && told.contains(command), "{told}");
        }
        for (why, command) in [
            (
                Unanswered::Refused,
                r#"'{"spec":{"members":{"clientPort":PORT}}}'"#,
            ),
            (Unanswered::Deadline, "kubectl -n db get networkpolicies"),
        ] {
            let told = told(WhyFailed::Asked(why.into()));
            assert!(
                told.contains(command) && told.contains("its settings"),
                "{told}"
            );
        }
        let told = told(WhyFailed::Certificates("Secret ca does not exist".into()));
        let patch = "kubectl -n db patch qdb etcd --type merge -p";
        assert!(
            told.starts_with("Secret ca does not exist; to fix it,"),
            "{told}"
        );
        assert!(told.contains(patch), "{told}");
    }
}
