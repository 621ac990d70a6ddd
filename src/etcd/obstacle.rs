//! Obstacles of TLS on the way to a member, each with one cause.

use jiff::Timestamp;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// Why a connection came to nothing for reasons of TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The certificate has none of the names that were asked for.
    #[error(
        "its certificate is for {}, and the gate accepts {}",
        listed(found),
        listed(asked)
    )]
    Names {
        /// The names that would do, the likeliest first.
        asked: Vec<String>,
        /// The names in the certificate.
        found: Vec<String>,
    },
    /// No trusted authority issued the certificate.
    #[error("its certificate was issued by {issuer:?}, and the trusted authority is another one")]
    Issuer {
        /// The issuer that the certificate names.
        issuer: String,
    },
    /// A certificate in the member's chain has expired.
    #[error("its certificate expired on {since}: that of {subject:?}")]
    Expired {
        /// The subject of the certificate.
        subject: String,
        /// When the certificate expired.
        since: Timestamp,
    },
    /// The gate's own client certificate has expired.
    #[error("the gate's client certificate expired on {since}: that of {subject:?}")]
    ClientExpired {
        /// The subject of the certificate.
        subject: String,
        /// When the certificate expired.
        since: Timestamp,
    },
    /// The member asks for a client certificate.
    #[error("it asks for a client certificate, and the gate has none")]
    ClientMissing,
    /// The member refused the client certificate.
    #[error("it does not accept the gate's client certificate: {0}")]
    ClientRefused(String),
    /// The member does not serve TLS.
    #[error("it answers in plaintext, and the gate asks by TLS")]
    ServesPlaintext,
    /// The member serves TLS.
    #[error("it answers by TLS, and the gate asks in plaintext")]
    ServesTls,
    /// Anything else that went wrong with TLS.
    #[error("{0}")]
    Other(String),
}

impl Obstacle {
    /// The obstacle behind an error of the TLS library.
    pub(super) fn from_tls(error: &rustls::Error) -> Self {
        use AlertDescription as Alert;
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                let known = other.0.downcast_ref::<Self>();
                known.map_or_else(|| Self::Other(other.to_string()), Self::clone)
            }
            rustls::Error::AlertReceived(Alert::CertificateRequired) => Self::ClientMissing,
            rustls::Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied),
            ) => Self::ClientRefused(format!("{alert:?}")),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                Self::ServesPlaintext
            }
            other => Self::Other(other.to_string()),
        }
    }

    /// How far the way led before it met the obstacle. Of several ways that failed, the one that
    /// led farthest says most.
    pub fn progress(&self) -> u8 {
        match self {
            Self::Names { .. } | Self::Expired { .. } => 4,
            Self::ClientRefused(_) | Self::ClientMissing | Self::ClientExpired { .. } => 3,
            Self::Issuer { .. } => 2,
            Self::ServesTls => 1,
            Self::ServesPlaintext | Self::Other(_) => 0,
        }
    }
}

/// A few of the names.
fn listed(names: &[String]) -> String {
    const MOST: usize = 6;
    match names {
        [] => "no name".to_owned(),
        few if few.len() <= MOST => few.join(", "),
        many => {
            let shown: Vec<&str> = many.iter().take(MOST).map(String::as_str).collect();
            format!("{} and {} more", shown.join(", "), many.len() - MOST)
        }
    }
}
