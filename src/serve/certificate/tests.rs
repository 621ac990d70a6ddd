use std::fs;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::*;

const NOW: &str = "2026-11-21T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// PEM of a certificate for 2026 and of its key.
fn pair() -> (String, String) {
    valid((2026, 1, 1), (2027, 1, 1))
}

fn valid(from: (i32, u8, u8), until: (i32, u8, u8)) -> (String, String) {
    let mut params = CertificateParams::new(vec!["gate.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
    params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn files(directory: &TempDir, certificate: &str, key: &str) -> Files {
    let files = Files {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
        callers: None,
    };
    fs::write(&files.certificate, certificate).unwrap();
    fs::write(&files.key, key).unwrap();
    files
}

fn open(files: Files) -> Result<Certificate, Unusable> {
    let (clock, _) = Clock::frozen(at(NOW));
    Certificate::open(files, clock, Arc::new(Metrics::new()))
}

fn said(certificate: &str, key: &str) -> String {
    let directory = TempDir::new().unwrap();
    open(files(&directory, certificate, key))
        .unwrap_err()
        .to_string()
}

#[test]
fn what_is_wrong_with_a_pair_is_said_in_words() {
    let (certificate, key) = pair();
    let (_, other_key) = pair();
    let (expired, its_key) = valid((2025, 1, 1), (2026, 2, 3));
    let (early, early_key) = valid((2026, 12, 24), (2027, 1, 1));
    assert!(said("", &key).ends_with("tls.crt contains no certificate"));
    assert!(said(&key, &key).ends_with("tls.crt contains no certificate"));
    assert!(said(&certificate, "").ends_with("tls.key contains no private key"));
    assert!(said(&certificate, &certificate).ends_with("tls.key contains no private key"));
    assert!(said(&certificate, &other_key).contains("does not belong to the certificate in"));
    assert!(said(&expired, &its_key).ends_with("tls.crt expired at 2026-02-03T00:00:00Z"));
    assert!(said(&early, &early_key).ends_with("is not valid before 2026-12-24T00:00:00Z"));
    let broken = certificate.replacen("MII", "!!!", 1);
    assert!(
        said(&broken, &key).contains("tls.crt is not PEM"),
        "{}",
        said(&broken, &key)
    );
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(
        said(garbage, &key).contains("cannot be read"),
        "{}",
        said(garbage, &key)
    );
}

#[test]
fn what_is_said_of_a_key_that_lost_its_line_breaks_repeats_none_of_it() {
    let (certificate, key) = pair();
    let one_line = key.replace('\n', "");
    let directory = TempDir::new().unwrap();
    let error = open(files(&directory, &certificate, &one_line)).unwrap_err();
    assert!(error.to_string().contains("line breaks"), "{error}");
    for said in [error.to_string(), format!("{error:?}")] {
        assert!(!said.contains("45, 45") && !said.contains("MI"), "{said}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let directory = TempDir::new().unwrap();
    let (certificate, key) = pair();
    let files = files(&directory, &certificate, &key);
    fs::remove_file(&files.key).unwrap();
    let error = open(files).unwrap_err();
    assert!(
        error.to_string().ends_with("tls.key cannot be read"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_bad_pair_keeps_the_one_before_and_is_reported_once() {
    let directory = TempDir::new().unwrap();
    let (certificate, key) = pair();
    let (other, other_key) = pair();
    let in_use = open(files(&directory, &certificate, &key)).unwrap();
    assert!(matches!(in_use.reload(), Reload::Same));
    let own = in_use.in_use.load_full().unwrap().key.cert.clone();

    fs::write(directory.path().join("tls.crt"), &other).unwrap();
    assert!(matches!(
        in_use.reload(),
        Reload::Kept(Unusable::Mismatch { .. })
    ));
    assert!(matches!(in_use.reload(), Reload::StillUnusable));
    assert_eq!(in_use.in_use.load_full().unwrap().key.cert, own);
    assert_eq!(in_use.validity(), Ok(()));

    fs::write(directory.path().join("tls.key"), &other_key).unwrap();
    assert!(matches!(in_use.reload(), Reload::Replaced));
    assert_ne!(in_use.in_use.load_full().unwrap().key.cert, own);
    let page = in_use.metrics.exposition().unwrap();
    assert!(
        page.contains("quorumgate_certificate_reload_failures_total 1"),
        "{page}"
    );
    assert!(
        page.contains("quorumgate_certificate_reloads_total 1"),
        "{page}"
    );
}

#[test]
fn files_that_vanish_keep_the_certificate_in_use() {
    let directory = TempDir::new().unwrap();
    let (certificate, key) = pair();
    let in_use = open(files(&directory, &certificate, &key)).unwrap();
    fs::remove_file(directory.path().join("tls.crt")).unwrap();
    assert!(matches!(in_use.reload(), Reload::Kept(Unusable::Read(..))));
    assert!(matches!(in_use.reload(), Reload::StillUnusable));
    fs::write(directory.path().join("tls.crt"), &certificate).unwrap();
    assert!(matches!(in_use.reload(), Reload::Same));
}

#[test]
fn a_certificate_that_expires_in_use_is_told() {
    let directory = TempDir::new().unwrap();
    let (certificate, key) = valid((2026, 1, 1), (2026, 11, 22));
    let (clock, hands) = Clock::frozen(at(NOW));
    let metrics = Arc::new(Metrics::new());
    let in_use = Certificate::open(files(&directory, &certificate, &key), clock, metrics).unwrap();
    assert_eq!(in_use.validity(), Ok(()));
    hands.advance(Duration::from_secs(12 * 3600));
    let why = in_use.validity().unwrap_err();
    assert_eq!(
        why,
        "the serving certificate expired at 2026-11-22T00:00:00Z"
    );
}

#[test]
fn a_certificate_that_is_not_valid_yet_by_the_time_of_api_servers_is_told() {
    let directory = TempDir::new().unwrap();
    let (certificate, key) = valid((2026, 11, 21), (2027, 1, 1));
    let (clock, _) = Clock::frozen(at(NOW));
    let metrics = Arc::new(Metrics::new());
    let files = files(&directory, &certificate, &key);
    let in_use = Certificate::open(files, clock.clone(), metrics).unwrap();
    clock.compare(clock.instant(), at("2026-11-20T23:00:00Z"));
    let why = in_use.validity().unwrap_err();
    assert_eq!(
        why,
        "the serving certificate is not valid before 2026-11-21T00:00:00Z"
    );
}

#[tokio::test]
async fn one_that_is_awaited_is_served_when_it_is_offered_and_what_is_unusable_changes_nothing() {
    let (clock, _) = Clock::frozen(at(NOW));
    let files = Files::in_secret("gate-serving", None);
    let awaited = Arc::new(Certificate::awaited(files, clock, Arc::new(Metrics::new())));
    let why = awaited.validity().unwrap_err();
    assert_eq!(why, "there is no serving certificate yet");
    let offer = |certificate: &str, key: &str| {
        let pair = [certificate, key].map(|pem| pem.as_bytes().to_vec());
        Arc::clone(&awaited).offer(pair)
    };
    let (certificate, key) = pair();
    let (_, other_key) = pair();
    offer("rubbish", &key).await;
    assert!(!awaited.is_there());
    offer(&certificate, &key).await;
    assert_eq!(awaited.validity(), Ok(()));
    let own = awaited.in_use.load_full().unwrap().key.cert.clone();
    offer(&certificate, &other_key).await;
    assert_eq!(awaited.in_use.load_full().unwrap().key.cert, own);
    let why = awaited.take(Ok(Content::default()));
    let Reload::Kept(why) = why else {
        panic!("{why:?}");
    };
    assert_eq!(
        why.to_string(),
        "secret/gate-serving/tls.crt contains no certificate"
    );
}
