//! A certificate authority that issues client and serving certificates, kept in a directory.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A certificate chain and its key, both as PEM.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

impl Credential {
    /// Writes `<directory>/<name>.crt` and `<directory>/<name>.key`. Only the owner can read the
    /// key.
    pub fn write(&self, directory: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let certificate = directory.join(format!("{name}.crt"));
        let key = directory.join(format!("{name}.key"));
        fs::create_dir_all(directory)?;
        write_secret(&key, &self.key)?;
        fs::write(&certificate, &self.certificate)
            .with_context(|| format!("cannot write {}", certificate.display()))?;
        Ok((certificate, key))
    }
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Client authentication.
    Client,
    /// Server authentication.
    Server,
    /// Both, as etcd's peers need.
    Peer,
}

/// The content of a certificate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The subject's common name, which is the user to Kubernetes and etcd.
    pub common_name: String,
    /// The subject's organisation, which is the group to Kubernetes.
    pub organisation: Option<String>,
    /// DNS names and IP addresses of the subject.
    pub names: Vec<String>,
    /// The purpose of the certificate.
    pub usage: Usage,
    /// The start of the validity. The default is a day ago.
    pub not_before: SystemTime,
    /// The end of the validity. The default is in ten years.
    pub not_after: SystemTime,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Request {
    /// A request with a common name and a purpose, without organisation and names.
    pub fn new(common_name: impl Into<String>, usage: Usage) -> Self {
        let now = SystemTime::now();
        Self {
            common_name: common_name.into(),
            organisation: None,
            names: Vec::new(),
            usage,
            not_before: now - DAY,
            not_after: now + 3650 * DAY,
        }
    }

    /// Sets the organisation (group).
    #[must_use]
    pub fn organisation(self, organisation: impl Into<String>) -> Self {
        Self {
            organisation: Some(organisation.into()),
            ..self
        }
    }

    /// Sets the DNS names and IP addresses.
    #[must_use]
    pub fn names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// Sets the end of the validity, which may lie in the past.
    #[must_use]
    pub fn until(self, not_after: SystemTime) -> Self {
        Self {
            not_before: self.not_before.min(not_after - DAY),
            not_after,
            ..self
        }
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new authority in memory.
    pub fn new(common_name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let params = authority_params(common_name)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// The authority in `directory`, whose files are `ca.crt` and `ca.key`. Created if they do not
    /// exist.
    pub fn load_or_create(directory: &Path, common_name: &str) -> Result<Self> {
        let (certificate_file, key_file) = (directory.join("ca.crt"), directory.join("ca.key"));
        // The certificate is written last. So if it exists, the key exists too.
        if let Ok(certificate) = fs::read_to_string(&certificate_file) {
            let key = fs::read_to_string(&key_file)
                .with_context(|| format!("cannot read {}", key_file.display()))?;
            let key = KeyPair::from_pem(&key)?;
            return Ok(Self {
                issuer: Issuer::new(authority_params(common_name)?, key),
                certificate,
            });
        }
        let authority = Self::new(common_name)?;
        let credential = Credential {
            certificate: authority.certificate.clone(),
            key: authority.issuer.key().serialize_pem(),
        };
        credential.write(directory, "ca")?;
        Ok(authority)
    }

    /// An authority of [`Authority::new`] with this name, restored from its
    /// [`Authority::credential`].
    pub fn restore(common_name: &str, credential: &Credential) -> Result<Self> {
        let key = KeyPair::from_pem(&credential.key).context("an authority's key is not PEM")?;
        Ok(Self {
            issuer: Issuer::new(authority_params(common_name)?, key),
            certificate: credential.certificate.clone(),
        })
    }

    /// The authority's certificate and key.
    pub fn credential(&self) -> Credential {
        Credential {
            certificate: self.certificate.clone(),
            key: self.issuer.key().serialize_pem(),
        }
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, request: &Request) -> Result<Credential> {
        let key = KeyPair::generate()?;
        let certificate: Certificate = leaf_params(request)?.signed_by(&key, &self.issuer)?;
        Ok(Credential {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The key pair that signs service account tokens. Writes `sa.key` and `sa.pub` into `directory` if
/// they are missing.
pub fn service_account_keys(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let (private, public) = (directory.join("sa.key"), directory.join("sa.pub"));
    if !public.exists() {
        let key = KeyPair::generate()?;
        fs::create_dir_all(directory)?;
        write_secret(&private, &key.serialize_pem())?;
        fs::write(&public, key.public_key_pem())?;
    }
    Ok((private, public))
}

/// The parameters of an authority. The same name gives the same parameters, so that a restored
/// authority issues under the same name.
fn authority_params(common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    Ok(params)
}

fn leaf_params(request: &Request) -> Result<CertificateParams> {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let Request {
        common_name,
        organisation,
        names,
        usage,
        not_before,
        not_after,
    } = request;
    let mut params = CertificateParams::new(names.clone())?;
    params
        .distinguished_name
        .push(DnType::CommonName, common_name.as_str());
    if let Some(organisation) = organisation {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organisation.as_str());
    }
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = match usage {
        Usage::Client => vec![ClientAuth],
        Usage::Server => vec![ServerAuth],
        Usage::Peer => vec![ClientAuth, ServerAuth],
    };
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(1970, 1, 1) + not_before.duration_since(UNIX_EPOCH)?;
    params.not_after = date_time_ymd(1970, 1, 1) + not_after.duration_since(UNIX_EPOCH)?;
    Ok(params)
}

fn write_secret(path: &Path, content: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        std::io::Write::write_all(&mut file, content.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
