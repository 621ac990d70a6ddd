use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::*;

struct Pem {
    authority: String,
    certificate: String,
    key: String,
}

fn issue(from_year: i32, until_year: i32) -> Pem {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(["client".to_owned()]).unwrap();
    params.not_before = date_time_ymd(from_year, 1, 1);
    params.not_after = date_time_ymd(until_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    Pem {
        authority: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

fn parse(pem: &Pem) -> TlsIdentity {
    let client = (pem.certificate.as_bytes(), pem.key.as_bytes());
    TlsIdentity::parse(&[pem.authority.as_bytes()], Some(client)).unwrap()
}

fn refusal(authority: &str, certificate: &str, key: &str) -> String {
    let client = (certificate.as_bytes(), key.as_bytes());
    let error = TlsIdentity::parse(&[authority.as_bytes()], Some(client)).unwrap_err();
    let Unanswered::Tls(text) = Unanswered::from(error) else {
        panic!("an error of TLS is a failure of TLS")
    };
    text
}

fn on(date: &str) -> Timestamp {
    format!("{date}T00:00:00Z").parse().unwrap()
}

#[test]
fn a_certificate_is_good_between_its_dates() {
    let identity = parse(&issue(2020, 2030));
    assert_eq!(identity.expires(), Some(on("2030-01-01")));
    assert_eq!(identity.check_validity(on("2025-06-01")), Ok(()));
}

#[test]
fn an_expired_certificate_is_named_with_its_date() {
    let refused = parse(&issue(2020, 2021)).check_validity(on("2025-06-01"));
    let text = refused.unwrap_err().to_string();
    let says = "the gate's client certificate expired on 2021-01-01T00:00:00Z: that of";
    assert!(text.starts_with(says), "{text}");
}

#[test]
fn a_certificate_of_the_future_is_named_with_its_date() {
    let refused = parse(&issue(2030, 2031)).check_validity(on("2025-06-01"));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.ends_with("is not valid before 2030-01-01T00:00:00Z"),
        "{text}"
    );
}

#[test]
fn without_a_client_certificate_nothing_expires() {
    let pem = issue(2020, 2021);
    let identity = TlsIdentity::parse(&[pem.authority.as_bytes()], None).unwrap();
    assert_eq!(identity.expires(), None);
    assert_eq!(identity.check_validity(Timestamp::MAX), Ok(()));
}

#[test]
fn equal_content_has_an_equal_fingerprint() {
    let (one, other) = (issue(2020, 2030), issue(2020, 2030));
    assert_eq!(parse(&one).fingerprint(), parse(&one).fingerprint());
    assert_ne!(parse(&one).fingerprint(), parse(&other).fingerprint());
    let bare = TlsIdentity::parse(&[one.authority.as_bytes()], None).unwrap();
    assert_ne!(parse(&one).fingerprint(), bare.fingerprint());
}

#[test]
fn several_authorities_may_stand_in_one_bundle_and_in_several() {
    let (one, other) = (issue(2020, 2030), issue(2020, 2030));
    let bundle = format!("{}{}", one.authority, other.authority);
    TlsIdentity::parse(&[bundle.as_bytes()], None).unwrap();
    TlsIdentity::parse(
        &[one.authority.as_bytes(), other.authority.as_bytes()],
        None,
    )
    .unwrap();
}

#[test]
fn what_cannot_be_read_is_named() {
    let Pem {
        authority,
        certificate,
        key,
    } = issue(2020, 2030);
    let garbage = "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
    let stranger = issue(2020, 2030).key;
    let cases = [
        (
            refusal("", &certificate, &key),
            "no CA certificate in the CA bundle",
        ),
        (
            refusal(garbage, &certificate, &key),
            "the CA bundle is not PEM",
        ),
        (
            refusal(&authority, "", &key),
            "no certificate where the client certificate should be",
        ),
        (
            refusal(&authority, garbage, &key),
            "the client certificate is not PEM",
        ),
        (
            refusal(&authority, &certificate, ""),
            "the client key cannot be read",
        ),
        (
            refusal(&authority, &certificate, &stranger),
            "the client certificate and its key cannot be used",
        ),
    ];
    for (text, expected) in cases {
        assert!(
            text.starts_with(expected),
            "{text:?} should start with {expected:?}"
        );
    }
}

#[test]
fn only_fingerprint_and_expiry_are_printed() {
    let identity = parse(&issue(2020, 2030));
    let start = u64::from_be_bytes(*identity.fingerprint().first_chunk().unwrap());
    let expected = format!(
        "TlsIdentity {{ fingerprint: {start:016x}, expires: Some(2030-01-01T00:00:00Z), .. }}"
    );
    assert_eq!(format!("{identity:?}"), expected);
}

#[test]
fn what_is_said_of_a_key_that_lost_its_line_breaks_repeats_none_of_it() {
    let Pem {
        authority,
        certificate,
        key,
    } = issue(2020, 2030);
    let one_line = key.replace('\n', "");
    // Also where a key was put in place of something else.
    for said in [
        refusal(&authority, &certificate, &one_line),
        refusal(&authority, &one_line, &key),
        refusal(&one_line, &certificate, &key),
    ] {
        assert!(said.contains("line breaks"), "{said}");
        assert!(!said.contains("45, 45") && !said.contains("MI"), "{said}");
    }
}

#[test]
fn the_certificate_of_an_authority_is_not_presented_and_its_key_not_read() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let pem = authority.pem();
    // What is in the place of the key does not matter.
    let said = refusal(&pem, &pem, "no key at all");
    assert!(said.contains("is one of an authority"), "{said}");
}

#[test]
fn both_alerts_about_client_certificates_have_their_own_words() {
    use rustls::AlertDescription as Alert;
    let of = |alert| Obstacle::from_tls(&rustls::Error::AlertReceived(alert));
    assert_eq!(of(Alert::CertificateRequired), Obstacle::ClientMissing);
    for alert in [
        Alert::BadCertificate,
        Alert::UnknownCA,
        Alert::CertificateExpired,
    ] {
        assert!(matches!(of(alert), Obstacle::ClientRefused(_)), "{alert:?}");
    }
    assert!(matches!(of(Alert::InternalError), Obstacle::Other(_)));
}
