//! The URLs on which etcd serves clients, by its settings.

use std::net::{IpAddr, Ipv6Addr};

use super::settings::Settings;
use crate::api::Scheme;

/// A client URL that others than its own pod can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientUrl {
    pub(super) scheme: Scheme,
    pub(super) port: u16,
    /// The setting, for people.
    pub(super) told: String,
}

/// The URLs that etcd listens on, and those that it advertises: behind a proxy in the pod etcd
/// listens on loopback only.
pub(super) fn client_urls(settings: &Settings) -> Vec<ClientUrl> {
    let named = ["listen-client-urls", "advertise-client-urls"];
    let lists = named.into_iter().filter_map(|name| settings.get(name));
    let mut urls: Vec<ClientUrl> = Vec::new();
    for list in lists {
        for (scheme, host, port) in list.value.split(',').filter_map(parts) {
            let is_known = urls
                .iter()
                .any(|url| (url.scheme, url.port) == (scheme, port));
            if !is_known && !is_loopback(host) {
                let told = list.told_by.clone();
                urls.push(ClientUrl { scheme, port, told });
            }
        }
    }
    urls
}

/// The host names in a list of URLs. Addresses and what is not known are left out.
pub(super) fn hosts(urls: &str) -> Vec<String> {
    let hosts = urls.split(',').filter_map(parts).map(|(_, host, _)| host);
    let named = hosts.filter(|host| {
        let is_name = host.contains(|c: char| c.is_ascii_alphabetic());
        let is_address = host.starts_with('[') || host.contains("{address}");
        is_name && !is_address && !host.contains(['$', '*', ':']) && !is_loopback(host)
    });
    named.map(str::to_owned).collect()
}

/// Scheme, host and port of a URL. An IPv6 address is in brackets.
fn parts(url: &str) -> Option<(Scheme, &str, u16)> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let authority = rest.split('/').next()?;
    let host_end = authority.rfind(']').unwrap_or_default();
    let colon = authority.get(host_end..)?.rfind(':')? + host_end;
    let port = authority.get(colon + 1..)?.parse().ok()?;
    Some((scheme, authority.get(..colon)?, port))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let v6 = host.parse::<Ipv6Addr>().map(|v6| v6.to_canonical());
    let address = v6.or_else(|_| host.parse::<IpAddr>());
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_both_families_are_read_and_loopback_is_left_out() {
        for (url, expected) in [
            (
                "https://0.0.0.0:2379",
                Some((Scheme::Https, "0.0.0.0", 2379)),
            ),
            ("http://[::]:2379/", Some((Scheme::Http, "[::]", 2379))),
            (
                "https://[{address}]:4001",
                Some((Scheme::Https, "[{address}]", 4001)),
            ),
            (
                "https://[$(POD_IP)]:4001",
                Some((Scheme::Https, "[$(POD_IP)]", 4001)),
            ),
            (
                "https://{address}:4001",
                Some((Scheme::Https, "{address}", 4001)),
            ),
            ("unix://localhost:m1", None),
            ("https://0.0.0.0", None),
            ("https://[::1]", None),
            ("https://0.0.0.0:$(PORT)", None),
            ("", None),
        ] {
            assert_eq!(parts(url), expected, "{url}");
        }
        for loopback in [
            "localhost",
            "127.0.0.1",
            "127.1.2.3",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(loopback), "{loopback}");
        }
        for other in ["0.0.0.0", "[::]", "[$(POD_IP)]", "{address}", "etcd-0.etcd"] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn only_names_are_names() {
        let urls = "https://{pod}.etcd.db.svc:2379,https://10.0.0.7:2379,http://[fd00::7]:2379,https://{address}:1,https://localhost:2379,https://$(X):2379";
        assert_eq!(hosts(urls), ["{pod}.etcd.db.svc"]);
    }
}
