use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::credentials::credentials;
use super::gather::{Known, gather};
use super::in_use::{first_guess, in_use};
use super::read;
use crate::api::{MembersSpec, PortSource, Scheme, Way};
use crate::ledger::Page;
use crate::observe::contents::Contents;

/// A pod template of some kind, the objects that it refers to, and the way that is right.
#[derive(Deserialize)]
struct Shape {
    /// Objects by kind and name. A value is the name of a certificate or key in [`pki`], or `text`
    /// and the text.
    objects: BTreeMap<String, BTreeMap<String, String>>,
    expect: Expected,
    pod: PodSpec,
}

#[derive(Deserialize)]
struct Expected {
    scheme: Scheme,
    port: u16,
    container: String,
    authority: Option<String>,
    identity: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    /// Whether a verdict asks at the same port, by the same scheme, before anything was read.
    #[serde(default)]
    guess: bool,
}

fn shapes() -> Vec<(String, Shape)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/observe/ways/shapes");
    let files = std::fs::read_dir(folder).unwrap();
    let mut shapes: Vec<(String, Shape)> = files
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let shape = serde_saphyr::from_str(&text);
            (
                name.clone(),
                shape.unwrap_or_else(|error| panic!("{name}: {error}")),
            )
        })
        .collect();
    shapes.sort_by(|(one, _), (other, _)| one.cmp(other));
    shapes
}

/// Certificates and keys in PEM.
fn pki() -> BTreeMap<&'static str, String> {
    let mut pki = BTreeMap::new();
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = name.to_owned();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (ca, client_ca, own) = (authority("ca"), authority("client-ca"), authority("self"));
    for (name, key, issuer) in [
        ("ca", "ca-key", &ca),
        ("client-ca", "client-ca-key", &client_ca),
        ("self", "self-key", &own),
    ] {
        pki.insert(name, issuer.pem());
        pki.insert(key, issuer.key().serialize_pem());
    }
    for (name, key, issuer) in [
        ("server", "server-key", &ca),
        ("peer", "peer-key", &ca),
        ("client", "client-key", &ca),
        ("reader", "reader-key", &client_ca),
    ] {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if name != "client" && name != "reader" {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let pair = KeyPair::generate().unwrap();
        pki.insert(name, params.signed_by(&pair, issuer).unwrap().pem());
        pki.insert(key, pair.serialize_pem());
    }
    pki
}

impl Shape {
    fn contents(&self, pki: &BTreeMap<&str, String>) -> Contents {
        let mut contents = Contents::default();
        for (object, values) in &self.objects {
            let (kind, name) = object.split_once(' ').unwrap();
            let values = values.iter().map(|(key, value)| {
                let text = match value.strip_prefix("text ") {
                    Some(text) => text.to_owned(),
                    None => pki[value.as_str()].clone(),
                };
                (key.clone(), text)
            });
            let values: BTreeMap<String, String> = values.collect();
            match kind {
                "Secret" => {
                    let data = values.into_iter();
                    let data = data.map(|(key, text)| (key, k8s_openapi::ByteString(text.into())));
                    let data = Some(data.collect());
                    contents.add_secret(
                        name,
                        Secret {
                            data,
                            ..Secret::default()
                        },
                    );
                }
                "ConfigMap" => {
                    let data = Some(values);
                    contents.add_config_map(
                        name,
                        ConfigMap {
                            data,
                            ..ConfigMap::default()
                        },
                    );
                }
                other => panic!("a {other}"),
            }
        }
        contents
    }

    fn gather(&self, members: &MembersSpec, contents: &Contents) -> Vec<Way> {
        let (pod, services) = (&self.pod, &[]);
        gather(&Known {
            members,
            pod,
            contents,
            services,
        })
    }
}

fn authority_of(way: &Way) -> Option<String> {
    let authority = way.authority.as_ref()?;
    let key = authority.key.as_deref().unwrap_or("any");
    Some(format!(
        "{key} of {} {}",
        authority.kind.name(),
        authority.name
    ))
}

fn identity_of(way: &Way) -> Option<String> {
    let identity = way.identity.as_ref()?;
    Some(format!(
        "{} of Secret {}",
        identity.cert_key, identity.secret
    ))
}

#[test]
fn the_likeliest_way_of_each_shape_is_the_right_one() {
    let pki = pki();
    let shapes = shapes();
    assert!(shapes.len() > 15);
    let mut wrong = Vec::new();
    for (name, shape) in shapes {
        let members = MembersSpec::default();
        let ways = shape.gather(&members, &shape.contents(&pki));
        let (first, expect) = (&ways[0], &shape.expect);
        let right = first.scheme == expect.scheme
            && first.port == expect.port
            && first.container.as_ref() == Some(&expect.container)
            && authority_of(first) == expect.authority
            && identity_of(first) == expect.identity
            && expect
                .names
                .iter()
                .all(|name| first.server_names.contains(name));
        if !right {
            wrong.push(format!("{name}: {first:#?}"));
        }
        let guess = first_guess(&members, Some(&shape.pod));
        let guessed = (guess.scheme, guess.port) == (expect.scheme, expect.port);
        if expect.guess && !guessed {
            wrong.push(format!("the guess of {name}: {guess:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_candidate_shows_the_certificate_of_an_authority_or_what_etcd_trusts() {
    let pki = pki();
    for (name, shape) in shapes() {
        let contents = shape.contents(&pki);
        let bare = Contents::default();
        for ways in [&contents, &bare].map(|known| shape.gather(&MembersSpec::default(), known)) {
            for way in ways {
                let shown = identity_of(&way).unwrap_or_default();
                let (key, object) = shown.split_once(" of ").unwrap_or_default();
                let value = shape.objects.get(object).and_then(|values| values.get(key));
                let value = value.map(String::as_str).unwrap_or_default();
                assert!(
                    !["ca", "client-ca", "self"].contains(&value),
                    "{name}: {way:#?}"
                );
            }
        }
    }
}

#[test]
fn every_object_that_a_shape_needs_is_read() {
    for (name, shape) in shapes() {
        let read = read::objects(&shape.pod, None);
        let read: Vec<String> = read.iter().map(ToString::to_string).collect();
        for wanted in shape.objects.keys() {
            assert!(
                read.contains(wanted),
                "{name}: {wanted} is not among {read:?}"
            );
        }
    }
}

fn pod(containers: &Value) -> PodSpec {
    serde_json::from_value(json!({"containers": containers})).unwrap()
}

#[test]
fn a_service_account_s_volume_is_not_read() {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let root = json!({"configMap": {"name": "kube-root-ca.crt"}});
    let pod = json!({"containers": [{"name": "etcd"}], "volumes": [
        {"name": "kube-api-access-x", "projected": {"sources": [token, root]}},
    ]});
    let pod = serde_json::from_value(pod).unwrap();
    assert_eq!(read::objects(&pod, None), []);
}

fn page(spec: &Value, status: &Value) -> Page {
    let budget = json!({
        "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
        "metadata": {"name": "etcd", "namespace": "db", "uid": "b", "resourceVersion": "1"},
        "spec": {"statefulSetName": "etcd", "members": spec}, "status": status,
    });
    Page::read(serde_json::from_value(budget).unwrap()).unwrap()
}

fn recorded() -> Value {
    json!({"way": {
        "scheme": "http", "port": 4001, "portFrom": "ClientURL", "container": "etcd", "source": "it worked",
    }})
}

#[test]
fn the_recorded_way_is_in_use_and_what_the_budget_names_comes_before_it() {
    let pod = pod(&json!([{"name": "etcd"}]));
    let way = in_use(&page(&json!({}), &recorded()), Some(&pod));
    assert_eq!((way.port, way.source.as_str()), (4001, "it worked"));

    let spec = json!({"clientPort": 2399, "tls": {
        "caConfigMap": {"name": "roots", "key": "r.pem"}, "clientSecret": {"name": "me"},
    }});
    let way = in_use(&page(&spec, &recorded()), Some(&pod));
    assert_eq!((way.scheme, way.port), (Scheme::Https, 2399));
    assert_eq!(way.port_from, PortSource::Budget);
    assert_eq!(
        authority_of(&way).as_deref(),
        Some("r.pem of ConfigMap roots")
    );
    assert_eq!(identity_of(&way).as_deref(), Some("tls.crt of Secret me"));

    let other = json!({"container": "other"});
    let way = in_use(&page(&other, &recorded()), Some(&pod));
    assert_eq!(way.port, 2379, "that way was another container's");
}

#[test]
fn what_the_budget_names_is_in_every_candidate() {
    let (_, shape) = shapes().remove(0);
    let spec = json!({
        "clientPort": 2399,
        "tls": {"caSecret": {"name": "mine", "key": "root.pem"}, "clientSecret": {"name": "me", "certKey": "c", "keyKey": "k"}},
    });
    let members: MembersSpec = serde_json::from_value(spec).unwrap();
    let ways = shape.gather(&members, &shape.contents(&pki()));
    assert_eq!(ways.len(), 1, "{ways:#?}");
    let way = &ways[0];
    assert_eq!((way.scheme, way.port), (Scheme::Https, 2399));
    assert_eq!(
        authority_of(way).as_deref(),
        Some("root.pem of Secret mine")
    );
    assert_eq!(identity_of(way).as_deref(), Some("c of Secret me"));
}

#[test]
fn tls_without_an_authority_asks_nobody_and_says_what_was_looked_for() {
    for (args, words) in [
        (
            json!(["--listen-client-urls=https://0.0.0.0:2379"]),
            "--listen-client-urls=https://0.0.0.0:2379",
        ),
        (
            json!([
                "--listen-client-urls=https://0.0.0.0:2379",
                "--cert-file=/host/tls.crt"
            ]),
            "/host/tls.crt is on no volume",
        ),
    ] {
        let pod = pod(&json!([{"name": "etcd", "args": args}]));
        let members = MembersSpec::default();
        let way = first_guess(&members, Some(&pod));
        let problem = credentials(&way, &members).unwrap().problem.unwrap();
        for part in [words, "spec.members.tls"] {
            assert!(problem.contains(part), "{problem}");
        }
    }
}

#[test]
fn a_password_beside_certificates_is_not_sent_in_plaintext_on_a_guess() {
    let auth = json!({"auth": {"secret": {"name": "user"}}});
    let members: MembersSpec = serde_json::from_value(auth).unwrap();
    let contents = Contents::default();
    let schemes = |etcd: Value| {
        let pod = pod(&json!([etcd]));
        let (members, contents) = (&members, &contents);
        let known = Known {
            members,
            pod: &pod,
            contents,
            services: &[],
        };
        let ways = gather(&known);
        ways.iter().map(|way| way.scheme).collect::<Vec<_>>()
    };
    let by_file = json!({"name": "etcd", "args": ["--cert-file=/tls/tls.crt"]});
    assert_eq!(schemes(by_file), [Scheme::Https]);
    assert_eq!(schemes(json!({"name": "etcd"})), [Scheme::Http]);
}

#[test]
fn a_user_is_sent_by_the_way_that_is_in_use() {
    let spec = json!({"auth": {"secret": {"name": "user", "passwordKey": "p"}}});
    let page = page(&spec, &recorded());
    let members = &page.budget().spec.members;
    let way = in_use(&page, None);
    let user = credentials(&way, members).unwrap().user.unwrap();
    let places = [user.name.to_string(), user.password.to_string()];
    assert_eq!(places, ["username of Secret user", "p of Secret user"]);
}
