//! New certificates: an authority, and serving certificates that it signs. Keys are of ECDSA P-256.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use super::held::{Authority, CERTIFICATE, Data, FORMER, FORMER_PATHS, KEY, SIGNED_BY, listed};
use super::root::{BACKDATED, Root};
use super::wishes::Wishes;

/// The Secret of a new authority. Those before it stay trusted.
pub(super) fn authority(
    wishes: &Wishes,
    former: &[Root],
    now: Timestamp,
) -> Result<Data, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    // Each authority has a name of its own, by which people tell them apart.
    let name = format!("quorumgate authority of {}", now.strftime("%FT%TZ"));
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let until = now.saturating_add(wishes.authority);
    lives(&mut params, now, until.unwrap_or(Timestamp::MAX));
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?;
    Ok(data([
        (CERTIFICATE, certificate.pem()),
        (KEY, key.serialize_pem()),
        (FORMER, former.iter().map(Root::pem).collect()),
    ]))
}

/// The Secret of a new serving certificate, which ends no later than its authority. `called` are
/// the words in the paths that API servers call now.
pub(super) fn serving(
    wishes: &Wishes,
    authority: &Authority,
    called: &[String],
    now: Timestamp,
) -> Result<Data, rcgen::Error> {
    let mut params = CertificateParams::new(wishes.names.clone())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "quorumgate");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let until = now.saturating_add(wishes.serving);
    let until = until.unwrap_or(Timestamp::MAX);
    lives(&mut params, now, until.min(authority.root.validity().until));
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.signed_by(&key, &authority.issuer)?;
    let mut made = data([
        (CERTIFICATE, certificate.pem()),
        (KEY, key.serialize_pem()),
        (SIGNED_BY, authority.root.pem()),
    ]);
    made.insert(FORMER_PATHS.to_owned(), listed(called));
    Ok(made)
}

fn lives(params: &mut CertificateParams, now: Timestamp, until: Timestamp) {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = at(now.saturating_sub(BACKDATED).unwrap_or(Timestamp::MIN));
    params.not_after = at(until);
}

fn data<const N: usize>(fields: [(&str, String); N]) -> Data {
    let fields = fields.into_iter();
    fields
        .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
        .collect()
}
