//! Certificates and keys among what was read, by what they are and not by what they are called.

use std::collections::BTreeMap;

use crate::api::{IdentitySource, SourceKind};
use crate::crypto::{self, Certificate};
use crate::observe::contents::{Contents, Object, Place};

/// Longest value that may be PEM, in bytes. Bundles of public authorities have about 200,000.
const LONGEST: usize = 512 * 1024;

/// The certificates that were read.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The first certificate in each place.
    first: BTreeMap<Place, Certificate>,
    /// Pairs of a certificate that may not sign others with its private key.
    pub(super) pairs: Vec<(IdentitySource, Certificate)>,
}

impl Found {
    pub(super) fn among(contents: &Contents) -> Self {
        let texts = contents.all().filter_map(|(place, value)| {
            let text = std::str::from_utf8(value).ok()?;
            (text.len() <= LONGEST && text.contains("-----BEGIN ")).then_some((place, text))
        });
        let texts: Vec<(Place, &str)> = texts.collect();
        let certificates = texts.iter().filter_map(|(place, text)| {
            let certificates = crypto::certificates(text.as_bytes()).ok()?;
            let first = Certificate::parse(certificates.first()?).ok()?;
            Some((place.clone(), first))
        });
        let first: BTreeMap<Place, Certificate> = certificates.collect();
        let keys = texts.iter().filter(|(place, text)| {
            place.object.kind == SourceKind::Secret && text.contains("PRIVATE KEY-----")
        });
        // The key of an authority is not even parsed.
        let of_authorities = |place: &Place| {
            let beside = of_object(&first, &place.object);
            let mut authorities = beside.filter(|(_, certificate)| certificate.may_sign);
            authorities.any(|(other, _)| stem(&other.key) == stem(&place.key))
        };
        let keys = keys.filter(|(place, _)| !of_authorities(place));
        let pairs = keys.filter_map(|(place, text)| {
            let mut beside: Vec<_> = of_object(&first, &place.object)
                .filter(|(_, certificate)| !certificate.may_sign)
                .collect();
            // Mostly a key is called like its certificate.
            beside.sort_by_key(|(other, _)| stem(&other.key) != stem(&place.key));
            let key = crypto::private_key(text.as_bytes()).ok();
            let found = key.and_then(|key| beside.into_iter().find(|(_, c)| c.has_key(&key)));
            found.map(|(certificate, read)| {
                let source = IdentitySource {
                    secret: place.object.name.clone(),
                    cert_key: certificate.key.clone(),
                    key_secret: None,
                    key_key: place.key.clone(),
                };
                (source, read.clone())
            })
        });
        let pairs = pairs.collect();
        Self { first, pairs }
    }

    /// The first certificate in a place.
    pub(super) fn at(&self, place: &Place) -> Option<&Certificate> {
        self.first.get(place)
    }

    /// The places of authorities. Of several with one certificate, each is listed.
    pub(super) fn authorities(&self) -> impl Iterator<Item = (&Place, &Certificate)> {
        let all = self.first.iter();
        all.filter(|(_, certificate)| certificate.may_sign)
    }
}

fn of_object<'a>(
    all: &'a BTreeMap<Place, Certificate>,
    object: &Object,
) -> impl Iterator<Item = (&'a Place, &'a Certificate)> {
    all.iter().filter(move |(place, _)| place.object == *object)
}

/// A name without what tells certificate and key apart: `server` of `server.crt`, `server.key` and
/// `server-key.pem`.
fn stem(key: &str) -> &str {
    let name = key.rsplit_once('.').map_or(key, |(name, _)| name);
    let ends = ["-key", "_key", ".key", "-cert", "_cert", ".cert", "-crt"];
    let ends = ends.iter().find_map(|end| name.strip_suffix(end));
    ends.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_called_like_its_certificate() {
        for (certificate, key) in [
            ("tls.crt", "tls.key"),
            ("server.pem", "server-key.pem"),
            ("etcd-client.crt", "etcd-client.key"),
            ("peer.cert.pem", "peer.key.pem"),
            ("me_cert.pem", "me_key.pem"),
        ] {
            assert_eq!(stem(certificate), stem(key), "{certificate} and {key}");
        }
        assert_ne!(stem("ca.crt"), stem("tls.key"));
    }
}
