use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};

use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, name.to_owned());
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn leaf(issuer: &Issuer, names: &[&str]) -> CertificateDer<'static> {
    leaf_until(issuer, names, 2100)
}

fn leaf_until(issuer: &Issuer, names: &[&str], year: i32) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "the-leaf");
    params.not_after = date_time_ymd(year, 1, 1);
    params.subject_alt_names = names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        })
        .collect();
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, issuer).unwrap().der().clone()
}

fn verifier(trusted: &[&str], names: &[&str]) -> Verifier {
    let bundles: Vec<&[u8]> = trusted.iter().map(|pem| pem.as_bytes()).collect();
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let address = Some("10.0.0.7".parse().unwrap());
    Verifier::new(Arc::new(Trust::parse(&bundles).unwrap()), names, address)
}

fn now() -> UnixTime {
    let at: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
    UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().unsigned_abs()))
}

#[test]
fn one_name_of_the_certificate_has_to_be_among_those_of_the_member() {
    let ca = authority("ca");
    let trusted = ca.pem();
    let names = [
        "etcd-0.etcd.db.svc",
        "etcd-0.etcd.db",
        "etcd-0.etcd",
        "etcd-0",
        "etcd.db.svc",
    ];
    let verifier = verifier(&[&trusted], &names);
    for right in [
        "etcd-0.etcd.db.svc",
        "etcd-0.etcd.db",
        "etcd-0.etcd",
        "etcd-0",
        "ETCD-0.etcd.db.svc",
        "etcd-0.etcd.db.svc.cluster.local",
        "etcd-0.etcd.db.svc.k8s.example.org",
        "*.etcd.db.svc",
        "*.etcd.db.svc.cluster.local",
        "*.etcd",
        "etcd.db.svc.cluster.local",
        "*.db.svc",
        "10.0.0.7",
    ] {
        let der = leaf(&ca, &["other.example.org", right]);
        assert_eq!(verifier.verify(&der, &[], now()), Ok(()), "{right}");
    }
    for wrong in [
        "etcd-1.etcd.db.svc",
        "etcd-0.etcd.other.svc.cluster.local",
        "etcd-0.other.db.svc",
        "*.other.db.svc.cluster.local",
        "*.cluster.local",
        "etcd-0.etcd.db.svcx",
        "etcd-0.etcd.db.example.svc.cluster.local",
        "10.0.0.8",
        "localhost",
    ] {
        let der = leaf(&ca, &[wrong]);
        let obstacle = verifier.verify(&der, &[], now()).unwrap_err();
        let Obstacle::Names { asked, found } = &obstacle else {
            panic!("{wrong}: {obstacle:?}");
        };
        assert_eq!(found, &[wrong]);
        assert_eq!(asked[0], "etcd-0.etcd.db.svc");
        let told = obstacle.to_string();
        assert!(told.contains(wrong) && told.contains("10.0.0.7"), "{told}");
    }
}

#[test]
fn the_chain_has_to_end_at_a_trusted_authority() {
    let (ca, stranger) = (authority("ca"), authority("stranger"));
    let trusted = ca.pem();
    let verifier = verifier(&[&trusted], &["etcd-0"]);
    let der = leaf(&stranger, &["etcd-0"]);
    let issuer = "stranger".to_owned();
    assert_eq!(
        verifier.verify(&der, &[], now()),
        Err(Obstacle::Issuer { issuer })
    );
}

#[test]
fn a_certificate_that_is_itself_trusted_passes_and_vouches_for_no_other() {
    // `openssl req -x509` makes one with CA:TRUE, and other tools make one without.
    let own = authority("one");
    let pem = own.pem();
    let der = own.der().clone();
    assert_eq!(
        verifier(&[&pem], &["etcd-0"]).verify(&der, &[], now()),
        Ok(())
    );

    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (pem, der) = (made.cert.pem(), made.cert.der().clone());
    let verifier = verifier(&[&pem], &["etcd-0"]);
    assert_eq!(verifier.verify(&der, &[], now()), Ok(()));
    let params = CertificateParams::new(["a".to_owned()]).unwrap();
    let issuer = rcgen::Issuer::new(params, made.signing_key);
    let other = CertificateParams::new(["etcd-0".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = other.signed_by(&key, &issuer).unwrap();
    let refused = verifier.verify(signed.der(), &[], now());
    assert!(
        matches!(refused, Err(Obstacle::Issuer { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_expired_certificate_is_named_with_its_date() {
    let ca = authority("ca");
    let trusted = ca.pem();
    let verifier = verifier(&[&trusted], &["etcd-0"]);
    let der = leaf_until(&ca, &["etcd-0"], 2026);
    let expired = Obstacle::Expired {
        subject: "the-leaf".to_owned(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    assert_eq!(verifier.verify(&der, &[], now()), Err(expired.clone()));
    // A trusted certificate is no exception.
    let pem = pem::encode(&pem::Pem::new("CERTIFICATE", der.to_vec()));
    let own = self::verifier(&[&pem], &["etcd-0"]);
    assert_eq!(own.verify(&der, &[], now()), Err(expired));
}
