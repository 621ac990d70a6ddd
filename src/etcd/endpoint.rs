//! The address of a member, and the credentials for it.

use std::sync::Arc;

use http::Uri;
use http::uri::Authority;

use super::tls::TlsIdentity;
use crate::quorum::MemberId;
use crate::quorum::evidence::{Target, Unanswered};

/// etcd's client port, for URLs that name none.
const CLIENT_PORT: u16 = 2379;

/// The client endpoint of one member, with everything that a connection needs.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The pod incarnation or external member. Connections are kept per target, so a new
    /// incarnation of a pod never inherits one.
    pub target: Target,
    /// `address:port`, IPv6 in brackets. For a pod it is the pod's IP, so that no DNS is needed;
    /// only an external member may have a host name here.
    pub address: String,
    /// The names of which the member's certificate has to carry one, the likeliest first. Its IP
    /// address will do too. A name that ends in `.svc` stands for the same in any cluster domain.
    pub server_names: Vec<String>,
    /// Certificates, user or both; `None`: neither TLS nor a user.
    pub tls: Option<Arc<TlsIdentity>>,
}

impl Endpoint {
    /// The endpoint of an external member (a voter without a pod) at one of the client URLs that
    /// etcd lists. `tls` is used where the URL is `https`.
    ///
    /// # Errors
    ///
    /// [`Unanswered::Tls`] where the URL is `https` and no certificates are configured;
    /// [`Unanswered::Other`] where the URL cannot be used (`unix://…`).
    pub fn external(
        member: MemberId,
        client_url: &str,
        tls: Option<&Arc<TlsIdentity>>,
    ) -> Result<Self, Unanswered> {
        let useless = || Unanswered::Other(format!("its client URL is {client_url:?}"));
        let url: Uri = client_url.parse().map_err(|_| useless())?;
        let authority = url.authority().ok_or_else(useless)?;
        let tls = match (url.scheme_str(), tls) {
            // A password that is meant to be sent over TLS is not sent in plain text.
            (Some("http"), tls) => tls.filter(|tls| !tls.uses_tls()).cloned(),
            (Some("https"), Some(tls)) if tls.uses_tls() => Some(Arc::clone(tls)),
            (Some("https"), _) => {
                let text = "its client URL is https, and no certificates are configured";
                return Err(Unanswered::Tls(text.to_owned()));
            }
            _ => return Err(useless()),
        };
        Ok(Self {
            target: Target::External(member),
            address: format!("{}:{}", authority.host(), port(authority)),
            server_names: dns_name(authority).into_iter().collect(),
            tls,
        })
    }
}

fn port(authority: &Authority) -> u16 {
    authority.port_u16().unwrap_or(CLIENT_PORT)
}

fn dns_name(authority: &Authority) -> Option<String> {
    let host = authority.host();
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    (!is_address).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: MemberId = MemberId(7);

    fn external(url: &str) -> Result<(String, Vec<String>), Unanswered> {
        let endpoint = Endpoint::external(MEMBER, url, None)?;
        assert_eq!(endpoint.target, Target::External(MEMBER));
        Ok((endpoint.address, endpoint.server_names))
    }

    #[test]
    fn a_client_url_names_address_and_server() {
        let address = |address: &str, names: &[&str]| {
            Ok((
                address.to_owned(),
                names.iter().map(|name| (*name).to_owned()).collect(),
            ))
        };
        assert_eq!(
            external("http://10.0.0.7:2399"),
            address("10.0.0.7:2399", &[])
        );
        assert_eq!(
            external("http://[fd00::7]:2399"),
            address("[fd00::7]:2399", &[])
        );
        let named = address("etcd.example.org:2379", &["etcd.example.org"]);
        assert_eq!(external("http://etcd.example.org"), named);
    }

    #[test]
    fn https_needs_certificates() {
        assert!(matches!(
            external("https://10.0.0.7:2379"),
            Err(Unanswered::Tls(_))
        ));
    }

    #[test]
    fn other_urls_are_of_no_use() {
        for url in ["unix://127.0.0.1:2379", "10.0.0.7:2379", "", "http://"] {
            assert!(matches!(external(url), Err(Unanswered::Other(_))), "{url}");
        }
    }
}
