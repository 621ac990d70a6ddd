//! Gathers the ways in which members may be asked, the likeliest first. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::found::Found;
use super::named::{authority_in, authority_named, identity_named, port_named};
use crate::api::{
    AuthoritySource, IdentitySource, MembersSpec, PortSource, Scheme, SourceKind, Way,
};
use crate::observe::client_urls::{ClientUrl, client_urls, hosts};
use crate::observe::contents::{Contents, Object, Place};
use crate::observe::endpoints::client_ports;
use crate::observe::etcd_container::{EtcdContainer, lasting};
use crate::observe::mounts::behind;
use crate::observe::settings::{Settings, flag};

/// etcd's default port for clients.
const CLIENT_PORT: u16 = 2379;

/// The volume with the authority, by etcd-druid's convention.
const CA_VOLUME: &str = "etcd-ca";
/// The volume with the client certificate, by etcd-druid's convention.
const CLIENT_VOLUME: &str = "etcd-client-tls";

/// Most containers whose settings are looked at, where several may be etcd's.
const MOST_CONTAINERS: usize = 4;

/// Most names that are remembered with a way.
const MOST_NAMES: usize = 8;

/// The facts about a cluster from which candidates are gathered.
pub(in crate::observe) struct Known<'a> {
    pub(in crate::observe) members: &'a MembersSpec,
    /// The template of the pods, or a pod.
    pub(in crate::observe) pod: &'a PodSpec,
    pub(in crate::observe) contents: &'a Contents,
    /// The Services that select the pods.
    pub(in crate::observe) services: &'a [String],
}

/// Settings that may be etcd's, and the container that has them.
struct Source<'a> {
    container: Option<&'a Container>,
    settings: Settings,
}

/// A port that members may serve clients on.
struct Door {
    scheme: Option<Scheme>,
    port: u16,
    from: PortSource,
    container: Option<String>,
    told: String,
}

/// A source of certificates, and why it was taken.
type Sourced<T> = (T, String);

/// The candidates, the likeliest first. There is at least one.
pub(in crate::observe) fn gather(known: &Known<'_>) -> Vec<Way> {
    let found = Found::among(known.contents);
    let sources = sources(known);
    let trust = Trust::new(known, &found, &sources);
    let names = names(known, &sources);
    let mut ranked: Vec<(usize, Way)> = Vec::new();
    for door in doors(known, &sources) {
        let told = format!("{}{}", prefix(door.container.as_deref()), door.told);
        let way = |scheme, authority, identity, source| Way {
            scheme,
            port: door.port,
            port_from: door.from,
            container: door.container.clone(),
            authority,
            identity,
            server_names: match scheme {
                Scheme::Https => names.clone(),
                Scheme::Http => Vec::new(),
            },
            source,
        };
        let is_guess = door.scheme.is_none() && trust.serves_tls;
        // A password that goes with certificates is not sent in plaintext on a mere guess.
        let may_be_plain = match door.scheme {
            Some(scheme) => scheme == Scheme::Http,
            None => !(is_guess && known.members.auth.is_some()),
        };
        let combined = match door.scheme {
            Some(Scheme::Http) => Vec::new(),
            Some(Scheme::Https) | None => trust.combinations(),
        };
        for (rank, (authority, identity)) in combined.iter().enumerate() {
            let source = format!("{told}; {}; {}", authority.1, identity.1);
            let (authority, identity) = (authority.0.clone(), identity.0.clone());
            let way = way(Scheme::Https, Some(authority), identity, source);
            ranked.push((2 * rank, way));
        }
        if may_be_plain {
            ranked.push((usize::from(is_guess), way(Scheme::Http, None, None, told)));
        } else if combined.is_empty() {
            let source = format!("{told}; {}", trust.lack());
            ranked.push((0, way(Scheme::Https, None, None, source)));
        }
    }
    // The best of each port come before the second best of any. The order is stable.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, way)| way).collect()
}

fn prefix(container: Option<&str>) -> String {
    container.map_or_else(String::new, |name| format!("container {name}: "))
}

/// The settings of every container that may be etcd's, and of configuration files that nothing
/// leads to: a sidecar may hand one to etcd.
fn sources<'a>(known: &Known<'a>) -> Vec<Source<'a>> {
    let named = known.members.container.as_deref();
    let etcd = EtcdContainer::find(known.pod, named);
    let containers = etcd.candidates().iter().take(MOST_CONTAINERS);
    let mut sources: Vec<Source<'a>> = containers
        .map(|container| Source {
            container: Some(container),
            settings: Settings::read(container, known.pod, known.contents),
        })
        .collect();
    let says = |source: &Source<'_>| {
        let has = |name| source.settings.get(name).is_some();
        has("listen-client-urls") || has("advertise-client-urls")
    };
    let is_told = |source: &Source<'_>| says(source) && source.settings.unread_file().is_none();
    if !sources.iter().any(is_told) {
        let texts = known.contents.all();
        let files = texts.filter_map(|(place, value)| {
            let text = std::str::from_utf8(value).ok()?;
            let settings = text.contains("listen-client-urls").then_some(text);
            Settings::of_file(settings?, &place.to_string())
        });
        let container = etcd.certain();
        let files: Vec<_> = files
            .map(|settings| Source {
                container,
                settings,
            })
            .collect();
        sources.splice(0..0, files);
    }
    // Where several may be etcd's, the one that says most comes first.
    sources.sort_by_key(|source| !says(source));
    sources
}

fn doors(known: &Known<'_>, sources: &[Source<'_>]) -> Vec<Door> {
    let urls: Vec<(&Source<'_>, ClientUrl)> = sources
        .iter()
        .flat_map(|source| {
            let urls = client_urls(&source.settings).into_iter();
            urls.map(move |url| (source, url))
        })
        .collect();
    let name = |container: Option<&Container>| container.map(|container| container.name.clone());
    let mut doors: Vec<Door> = Vec::new();
    let mut open = |door: Door| {
        let same = |known: &&Door| {
            known.port == door.port && (door.scheme.is_none() || known.scheme == door.scheme)
        };
        if !doors.iter().any(|known| same(&known)) {
            doors.push(door);
        }
    };
    let of_url = |(source, url): &(&Source<'_>, ClientUrl)| Door {
        scheme: Some(url.scheme),
        port: url.port,
        from: PortSource::ClientUrl,
        container: name(source.container),
        told: url.told.clone(),
    };
    let of_budget = known.members.tls.as_ref().map(|_| Scheme::Https);
    if let Some(port) = port_named(known.members) {
        let told = urls.iter().find(|(_, url)| url.port == port);
        open(Door {
            scheme: of_budget.or(told.map(|(_, url)| url.scheme)),
            port,
            from: PortSource::Budget,
            container: sources.first().and_then(|source| name(source.container)),
            told: format!("spec.members.clientPort={port}"),
        });
        return doors;
    }
    for url in &urls {
        open(Door {
            scheme: of_budget.or(Some(url.1.scheme)),
            ..of_url(url)
        });
    }
    for source in sources {
        for (named, port) in source.container.into_iter().flat_map(client_ports) {
            open(Door {
                scheme: of_budget,
                port,
                from: PortSource::ContainerPort,
                container: name(source.container),
                told: format!("its port {named:?} is {port}"),
            });
        }
    }
    open(Door {
        scheme: of_budget,
        port: CLIENT_PORT,
        from: PortSource::Default,
        container: sources.first().and_then(|source| name(source.container)),
        told: default_told(known.pod),
    });
    doors
}

/// The hosts of the URLs that members advertise to clients, and the Services that select them.
fn names(known: &Known<'_>, sources: &[Source<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let urls = sources
        .iter()
        .filter_map(|source| source.settings.get("advertise-client-urls"));
    let advertised: Vec<String> = urls.flat_map(|urls| hosts(&urls.value)).collect();
    let services = known.services.iter();
    let services = services.map(|service| format!("{service}.{{namespace}}.svc"));
    for name in advertised.into_iter().chain(services) {
        if names.len() < MOST_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The certificates that may be used.
struct Trust<'a> {
    known: &'a Known<'a>,
    found: &'a Found,
    /// Whether anything says that members serve TLS.
    serves_tls: bool,
    authorities: Vec<Sourced<AuthoritySource>>,
    identities: Vec<Sourced<Option<IdentitySource>>>,
    /// Why what the settings name was not found.
    missed: Vec<String>,
}

impl<'a> Trust<'a> {
    fn new(known: &'a Known<'a>, found: &'a Found, sources: &[Source<'_>]) -> Self {
        let mut trust = Self {
            known,
            found,
            serves_tls: false,
            authorities: Vec::new(),
            identities: Vec::new(),
            missed: Vec::new(),
        };
        let told = trust.told(sources);
        trust.authorities = trust.find_authorities(&told);
        trust.identities = trust.find_identities(&told);
        let is_told = told.serving.is_some() || known.members.tls.is_some();
        trust.serves_tls = is_told || !trust.authorities.is_empty();
        trust
    }

    /// The files that the settings name.
    fn told(&mut self, sources: &[Source<'_>]) -> NamedFiles {
        let mut told = NamedFiles::default();
        for source in sources {
            let settings = &source.settings;
            told.wants_client |= settings.is_on("client-cert-auth");
            for (flag, file) in [
                ("cert-file", &mut told.serving),
                ("key-file", &mut told.key),
                ("trusted-ca-file", &mut told.trusted),
            ] {
                if let (None, Some(setting)) = (&file, settings.get(flag)) {
                    let place = self.place(&setting.value, source.container, &setting.told_by);
                    *file = Some((place, setting.told_by));
                }
            }
        }
        told.wants_client |= told.trusted.is_some();
        told
    }

    /// The place behind a path in this container, or in any other: a sidecar may mount the same
    /// volumes.
    fn place(&mut self, path: &str, container: Option<&Container>, told: &str) -> Option<Place> {
        let pod = self.known.pod;
        let own = container.map(|container| behind(path, container, pod));
        match own {
            Some(Ok(place)) => Some(place),
            Some(Err(why)) => {
                self.missed.push(format!("{told}: {why}"));
                None
            }
            None => lasting(pod).find_map(|container| behind(path, container, pod).ok()),
        }
    }

    /// Whether the place may hold certificates: it does, or it was not read.
    fn may_hold(&self, place: &Place) -> bool {
        !self.known.contents.has(&place.object) || self.found.at(place).is_some()
    }

    fn find_authorities(&self, told: &NamedFiles) -> Vec<Sourced<AuthoritySource>> {
        let named = self.known.members.tls.as_ref().and_then(authority_named);
        if let Some(named) = named {
            let words = format!("spec.members.tls names {}", words_of(&named));
            return vec![(named, words)];
        }
        let mut all: Vec<Sourced<AuthoritySource>> = Vec::new();
        let mut take = |source: AuthoritySource, why: &str| {
            if !all.iter().any(|(known, _)| *known == source) {
                let words = format!("authority: {} ({why})", words_of(&source));
                all.push((source, words));
            }
        };
        let serving = told.serving();
        let trusted = told.trusted();
        let certificate = serving.and_then(|place| self.found.at(place));
        if let Some(certificate) = certificate {
            let issued = |(_, authority): &(&Place, &_)| certificate.is_issued_by(authority);
            let mut issuers: Vec<_> = self.found.authorities().filter(issued).collect();
            issuers.sort_by_key(|(place, _)| {
                let is_beside = serving.is_some_and(|serving| serving.object == place.object);
                (Some(*place) != trusted, !is_beside)
            });
            for (place, _) in issuers {
                if Some(place) != serving {
                    take(exact(place), "it issued etcd's certificate");
                }
            }
        }
        let convention = authority_in(self.known.pod, CA_VOLUME);
        if let Some(source) = convention.filter(|source| self.has_authority(source)) {
            take(source, "volume etcd-ca");
        }
        if let Some((Some(place), why)) = &told.trusted
            && self.may_hold(place)
        {
            take(exact(place), why);
        }
        for [(place, why)] in self.of_clients([("ETCDCTL_CACERT", "cacert")]) {
            if self.may_hold(&place) {
                take(exact(&place), &why);
            }
        }
        if let Some(serving) = serving {
            let beside = Place::new(serving.object.clone(), "ca.crt");
            if self.may_hold(&beside) {
                take(exact(&beside), "beside etcd's certificate");
            }
        }
        for (place, _) in self.found.authorities() {
            if Some(place) != serving {
                take(exact(place), "mounted");
            }
        }
        // etcd's own certificate vouches for itself alone, where no authority does.
        if let (Some(place), Some(certificate)) = (serving, certificate) {
            let has_issuer = self
                .found
                .authorities()
                .any(|(other, authority)| other != place && certificate.is_issued_by(authority));
            if certificate.may_sign || certificate.is_self_issued || !has_issuer {
                take(exact(place), "etcd's own certificate");
            }
        }
        all
    }

    /// Whether the object may have the certificate of an authority.
    fn has_authority(&self, source: &AuthoritySource) -> bool {
        let object = Object {
            kind: source.kind,
            name: source.name.clone(),
        };
        let mut authorities = self.found.authorities();
        !self.known.contents.has(&object) || authorities.any(|(place, _)| place.object == object)
    }

    fn find_identities(&self, told: &NamedFiles) -> Vec<Sourced<Option<IdentitySource>>> {
        let none = || (None, "no client certificate".to_owned());
        let named = self.known.members.tls.as_ref().and_then(identity_named);
        if let Some(named) = named {
            let words = format!(
                "spec.members.tls names {} of Secret {}",
                named.cert_key, named.secret
            );
            return vec![(Some(named), words)];
        }
        let has_settings = told.serving.is_some();
        if has_settings && !told.wants_client {
            return vec![none()];
        }
        let mut all: Vec<Sourced<Option<IdentitySource>>> = Vec::new();
        let mut take = |source: IdentitySource, why: &str| {
            let is_known = |(known, _): &Sourced<Option<IdentitySource>>| {
                let same = |known: &IdentitySource| {
                    known.secret == source.secret && known.cert_key == source.cert_key
                };
                known.as_ref().is_some_and(same)
            };
            if self.may_be_identity(&source, told) && !all.iter().any(is_known) {
                let words = format!(
                    "client certificate: {} of Secret {} ({why})",
                    source.cert_key, source.secret
                );
                all.push((Some(source), words));
            }
        };
        let files = [("ETCDCTL_CERT", "cert"), ("ETCDCTL_KEY", "key")];
        for [(certificate, why), (key, _)] in self.of_clients(files) {
            if let Some(source) = pair(&certificate, &key) {
                take(source, &why);
            }
        }
        let trusted = told.trusted().and_then(|place| self.found.at(place));
        let serving = told.serving();
        let is_serving = |source: &IdentitySource| {
            let place = Place::new(Object::secret(&source.secret), &source.cert_key);
            serving == Some(&place)
        };
        let pairs = self.found.pairs.iter().filter(|(_, c)| c.is_for_clients);
        for (source, certificate) in pairs.clone() {
            let is_accepted = trusted.is_some_and(|trusted| certificate.is_issued_by(trusted));
            if is_accepted && !is_serving(source) {
                take(source.clone(), "issued by the authority that etcd trusts");
            }
        }
        if let Some(secret) = secret_of(self.known.pod, CLIENT_VOLUME) {
            take(usual_pair(secret), "volume etcd-client-tls");
        }
        if let Some(secret) = self.secret_of_clients(told) {
            take(
                usual_pair(secret),
                "the only volume that is called after clients",
            );
        }
        if let (Some(certificate), Some((Some(key), _))) = (serving, &told.key)
            && let Some(source) = pair(certificate, key)
        {
            take(source, "etcd's own");
        }
        for (source, _) in pairs {
            take(source.clone(), "mounted");
        }
        if all.is_empty() || !told.wants_client {
            all.push(none());
        }
        all
    }

    /// The Secret of the only volume that is called after clients, besides what etcd serves with
    /// and what it trusts.
    fn secret_of_clients(&self, told: &NamedFiles) -> Option<String> {
        let volumes = self.known.pod.volumes.iter().flatten();
        let secrets = volumes.filter_map(|volume| {
            let secret = volume.secret.as_ref()?.secret_name.as_ref()?;
            let object = Object::secret(secret);
            let is_etcds = [told.serving(), told.trusted()]
                .into_iter()
                .flatten()
                .any(|place| place.object == object);
            let named = volume.name.contains("client") || secret.contains("client");
            (named && !is_etcds).then(|| secret.clone())
        });
        let mut secrets = secrets.collect::<BTreeSet<String>>().into_iter();
        let only = secrets.next()?;
        secrets.next().is_none().then_some(only)
    }

    /// Whether the pair may be shown: its certificate is no authority's, and not the one that etcd
    /// trusts. What was not read is judged when it is.
    fn may_be_identity(&self, source: &IdentitySource, told: &NamedFiles) -> bool {
        let place = Place::new(Object::secret(&source.secret), &source.cert_key);
        if told.trusted() == Some(&place) {
            return false;
        }
        match self.found.at(&place) {
            Some(certificate) => !certificate.may_sign,
            None => !self.known.contents.has(&place.object),
        }
    }

    /// The files that clients of etcd in the pod's containers are told to use: by variables, or by
    /// flags on a command line or in a probe. A container counts that has all of them.
    fn of_clients<const N: usize>(&self, names: [(&str, &str); N]) -> Vec<[Sourced<Place>; N]> {
        let pod = self.known.pod;
        let init = pod.init_containers.iter().flatten();
        let containers = pod.containers.iter().chain(init);
        let all = containers.filter_map(|container| {
            let settings = Settings::read(container, pod, self.known.contents);
            let probes = probe_words(container);
            let file = |(variable, name): (&str, &str)| {
                let by_flag = || settings.flag(name).or_else(|| flag(&probes, name));
                let setting = settings.env(variable).or_else(by_flag)?;
                let place = behind(&setting.value, container, pod).ok()?;
                let why = format!("{} in container {}", setting.told_by, container.name);
                Some((place, why))
            };
            let files: Vec<_> = names.into_iter().filter_map(file).collect();
            files.try_into().ok()
        });
        all.collect()
    }

    /// Each authority with each identity, the likeliest first.
    fn combinations(&self) -> Vec<(&Sourced<AuthoritySource>, &Sourced<Option<IdentitySource>>)> {
        let mut all: Vec<_> = self
            .authorities
            .iter()
            .enumerate()
            .flat_map(|(a, authority)| {
                let identities = self.identities.iter().enumerate();
                identities.map(move |(i, identity)| (a + i, (authority, identity)))
            })
            .collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().map(|(_, both)| both).collect()
    }

    /// Why no authority was found, for people.
    fn lack(&self) -> String {
        let missed = match self.missed.first() {
            Some(why) => format!(" ({why})"),
            None => String::new(),
        };
        format!("no certificate of an authority is mounted{missed}; name it in spec.members.tls")
    }
}

/// The source of the default port, for people.
fn default_told(pod: &PodSpec) -> String {
    if pod.containers.is_empty() {
        return "neither a StatefulSet nor a pod shows settings: etcd's default port".to_owned();
    }
    "no client URL in its settings: etcd's default port".to_owned()
}

/// The files that etcd's settings name, with the settings. The place is `None` where the path leads
/// to no Secret and no ConfigMap.
#[derive(Default)]
struct NamedFiles {
    serving: Option<(Option<Place>, String)>,
    key: Option<(Option<Place>, String)>,
    trusted: Option<(Option<Place>, String)>,
    /// Whether etcd asks for client certificates.
    wants_client: bool,
}

impl NamedFiles {
    fn serving(&self) -> Option<&Place> {
        self.serving.as_ref()?.0.as_ref()
    }

    fn trusted(&self) -> Option<&Place> {
        self.trusted.as_ref()?.0.as_ref()
    }
}

/// Certificate and key with the key names of Secrets of type `kubernetes.io/tls`.
fn usual_pair(secret: String) -> IdentitySource {
    IdentitySource {
        secret,
        cert_key: "tls.crt".to_owned(),
        key_secret: None,
        key_key: "tls.key".to_owned(),
    }
}

fn exact(place: &Place) -> AuthoritySource {
    AuthoritySource {
        kind: place.object.kind,
        name: place.object.name.clone(),
        key: Some(place.key.clone()),
    }
}

fn words_of(source: &AuthoritySource) -> String {
    let object = format!("{} {}", source.kind.name(), source.name);
    match &source.key {
        Some(key) => format!("{key} of {object}"),
        None => object,
    }
}

fn pair(certificate: &Place, key: &Place) -> Option<IdentitySource> {
    let secrets = [certificate, key].map(|place| place.object.kind == SourceKind::Secret);
    (secrets == [true, true]).then(|| IdentitySource {
        secret: certificate.object.name.clone(),
        cert_key: certificate.key.clone(),
        key_secret: (key.object != certificate.object).then(|| key.object.name.clone()),
        key_key: key.key.clone(),
    })
}

fn secret_of(pod: &PodSpec, volume: &str) -> Option<String> {
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|found| found.name == volume)?;
    volume.secret.as_ref()?.secret_name.clone()
}

/// The words of the commands in a container's probes.
fn probe_words(container: &Container) -> Vec<String> {
    let probes = [
        &container.readiness_probe,
        &container.liveness_probe,
        &container.startup_probe,
    ];
    let commands = probes
        .into_iter()
        .flatten()
        .filter_map(|probe| probe.exec.as_ref());
    let words = commands.flat_map(|exec| exec.command.iter().flatten());
    let words = words.flat_map(|word| word.split_whitespace());
    words.map(str::to_owned).collect()
}
