//! The content of the two Secrets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::root::{Root, roots_in};
use crate::api::call_path::PLAIN;
use crate::crypto::{self, Validity};
use crate::serve::call_paths::word_of;

/// The key of a certificate, as in Secrets of the type `kubernetes.io/tls`.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// The key of a private key, as in Secrets of the type `kubernetes.io/tls`.
pub(super) const KEY: &str = "tls.key";
/// The key of the authority that signed a serving certificate, as cert-manager names it.
pub(super) const SIGNED_BY: &str = "ca.crt";
/// The key of the authorities before the present one, which are trusted until they end.
pub(super) const FORMER: &str = "former.crt";

/// The key of the words in the paths of webhooks that were called before the present one, and are
/// until API servers have noticed it.
pub(super) const FORMER_PATHS: &str = "former-paths";
/// The sign for a path without a word.
const NO_WORD: &str = "-";

/// The data of a Secret.
pub(super) type Data = BTreeMap<String, ByteString>;

/// The content of a Secret, if there is any of use.
#[derive(Debug)]
pub(super) enum Stored<T> {
    /// There is no such Secret.
    Missing,
    /// The Secret holds something else. Says what is wrong with it, and quotes nothing of it.
    Unusable(String),
    /// The Secret holds what it should.
    Here(T),
}

impl<T> Stored<T> {
    pub(super) fn read(data: Option<&Data>, read: impl Fn(&Data) -> Result<T, String>) -> Self {
        match data.map(read) {
            None => Self::Missing,
            Some(Err(why)) => Self::Unusable(why),
            Some(Ok(content)) => Self::Here(content),
        }
    }

    pub(super) fn here(&self) -> Option<&T> {
        match self {
            Self::Here(content) => Some(content),
            Self::Missing | Self::Unusable(_) => None,
        }
    }

    /// Why it has to be made.
    pub(super) fn lack(&self) -> &str {
        match self {
            Self::Missing => "there is none",
            Self::Unusable(why) => why,
            Self::Here(_) => "it is there",
        }
    }
}

/// The authority that signs, and those before it.
pub(super) struct Authority {
    pub(super) root: Root,
    pub(super) former: Vec<Root>,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("root", &self.root)
            .field("former", &self.former)
            .finish_non_exhaustive()
    }
}

pub(super) fn field<'a>(data: &'a Data, key: &str) -> &'a [u8] {
    data.get(key).map_or(&[], |bytes| bytes.0.as_slice())
}

fn first_certificate(data: &Data) -> Result<CertificateDer<'static>, String> {
    let certificates = crypto::certificates(field(data, CERTIFICATE));
    let certificates =
        certificates.map_err(|why| format!("its {CERTIFICATE} is not PEM: {why}"))?;
    let first = certificates.into_iter().next();
    first.ok_or_else(|| format!("its {CERTIFICATE} contains no certificate"))
}

impl Authority {
    pub(super) fn read(data: &Data) -> Result<Self, String> {
        let of_certificate = |why: String| format!("its {CERTIFICATE} is no good: {why}");
        let root = Root::new(first_certificate(data)?).map_err(of_certificate)?;
        let key = crypto::private_key(field(data, KEY))
            .map_err(|why| format!("its {KEY} is not the PEM of a private key: {why}"))?;
        let key = KeyPair::try_from(&key).map_err(|_| format!("its {KEY} is of no known kind"))?;
        let certificate = root.certificate();
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|error| of_certificate(error.to_string()))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(format!("its {KEY} does not belong to its {CERTIFICATE}"));
        }
        let issuer = Issuer::from_ca_cert_der(certificate, key)
            .map_err(|error| of_certificate(error.to_string()))?;
        Ok(Self {
            former: roots_in(field(data, FORMER)),
            root,
            issuer,
        })
    }

    /// The authorities to be trusted: the present one, and those before it that have not ended.
    pub(super) fn trusted(&self, now: Timestamp) -> impl Iterator<Item = &Root> {
        let former = self.former.iter().filter(move |root| !root.has_ended(now));
        std::iter::once(&self.root).chain(former.filter(|root| **root != self.root))
    }

    /// The `caBundle` of every webhook.
    pub(super) fn bundle(&self, now: Timestamp) -> String {
        self.trusted(now).map(Root::pem).collect()
    }
}

/// The words in the paths by which API servers may call a gate with this serving certificate, its
/// own first.
pub(super) fn words(data: &Data) -> Vec<String> {
    let own = crypto::private_key(field(data, KEY)).ok();
    let own = own.map(|key| word_of(&key));
    let former = str::from_utf8(field(data, FORMER_PATHS)).unwrap_or_default();
    let former = former.split_ascii_whitespace();
    let former = former.map(|word| if word == NO_WORD { PLAIN } else { word }.to_owned());
    own.into_iter().chain(former).collect()
}

/// The words as the Secret lists them.
pub(super) fn listed(words: &[String]) -> ByteString {
    let signs = words.iter().map(|word| match word.as_str() {
        PLAIN => NO_WORD,
        word => word,
    });
    ByteString(signs.collect::<Vec<_>>().join(" ").into_bytes())
}

/// The serving certificate.
#[derive(Debug)]
pub(super) struct Serving {
    chain: Vec<CertificateDer<'static>>,
    pub(super) validity: Validity,
    /// The authority that is said to have signed it.
    said_to_be_signed_by: Vec<Root>,
    /// The words by which webhooks may call, the present one first.
    pub(super) words: Vec<String>,
}

impl Serving {
    pub(super) fn read(data: &Data) -> Result<Self, String> {
        let own = first_certificate(data)?;
        let validity =
            Validity::parse(&own).map_err(|why| format!("its {CERTIFICATE} is no good: {why}"))?;
        let chain = crypto::certificates(field(data, CERTIFICATE)).unwrap_or_default();
        let key = crypto::private_key(field(data, KEY))
            .map_err(|why| format!("its {KEY} is not the PEM of a private key: {why}"))?;
        CertifiedKey::from_der(chain.clone(), key, &crypto::provider())
            .map_err(|_| format!("its {KEY} does not belong to its {CERTIFICATE}"))?;
        Ok(Self {
            chain,
            validity,
            said_to_be_signed_by: roots_in(field(data, SIGNED_BY)),
            words: words(data),
        })
    }

    /// Whether API servers that trust this authority believe the certificate. Whether it has ended
    /// is another question.
    pub(super) fn is_signed_by(&self, root: &Root) -> bool {
        let at = self.validity.from.max(root.validity().from);
        is_believed(&self.chain, [root], at)
    }

    /// The first of these names for which the certificate is not.
    pub(super) fn lacks<'a>(&self, names: &'a [String]) -> Option<&'a str> {
        let own = self.chain.first().map(ParsedCertificate::try_from);
        let Some(Ok(own)) = own else {
            return names.first().map(String::as_str);
        };
        let has = |name: &String| {
            let name = match name.parse::<IpAddr>() {
                Ok(address) => Ok(ServerName::from(address)),
                Err(_) => ServerName::try_from(name.as_str()),
            };
            name.is_ok_and(|name| verify_server_name(&own, &name).is_ok())
        };
        let lacking = names.iter().find(|name| !has(name));
        lacking.map(String::as_str)
    }

    /// The authorities beside the certificate that did sign it.
    pub(super) fn signed_by(&self) -> impl Iterator<Item = &Root> {
        let said = self.said_to_be_signed_by.iter();
        said.filter(|root| self.is_signed_by(root))
    }
}

/// Whether an API server that trusts these authorities believes a server with this chain at that
/// time.
pub(super) fn is_believed<'a>(
    chain: &[CertificateDer<'_>],
    roots: impl IntoIterator<Item = &'a Root>,
    at: Timestamp,
) -> bool {
    let Some((own, rest)) = chain.split_first() else {
        return false;
    };
    let Ok(own) = ParsedCertificate::try_from(own) else {
        return false;
    };
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(roots.into_iter().map(|root| root.certificate().clone()));
    let at = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    let at = UnixTime::since_unix_epoch(at);
    let algorithms = crypto::provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&own, &trusted, rest, at, algorithms).is_ok()
}
