//! Cluster DNS for the pods of this node, on port 53 of the node's address.
//!
//! `/etc/hosts` has the same names, but Go programs read it at most every five seconds. A member
//! that starts a moment before its peers would wait that long for their names. Other names do not
//! exist: nothing is forwarded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio::net::UdpSocket;

use super::endpoints::Endpoints;
use super::hosts::ServiceNames;

/// The time to live of an answer in seconds, as in most clusters.
const TTL: u32 = 5;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
const NAME_ERROR: u8 = 3;

/// Answers for ever. Fails if the port cannot be bound.
pub(super) async fn serve(ip: Ipv4Addr, endpoints: Arc<Endpoints>) -> std::io::Result<()> {
    let socket = UdpSocket::bind((ip, 53)).await?;
    let mut buffer = [0; 1500];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let Some(question) = buffer.get(..length).and_then(Question::parse) else {
            continue;
        };
        let answer = question.answer(&endpoints.current());
        if let Err(error) = socket.send_to(&answer, from).await {
            tracing::debug!(%error, "answer to {from}");
        }
    }
}

/// The `resolv.conf` of a pod, with nameserver and search list, as the kubelet writes it.
pub(super) fn resolv_conf(server: Ipv4Addr, namespace: &str) -> String {
    format!(
        "nameserver {server}\n\
         search {namespace}.svc.cluster.local svc.cluster.local cluster.local\n\
         options ndots:5 timeout:1 attempts:2\n"
    )
}

struct Question<'a> {
    id: [u8; 2],
    recursion: u8,
    /// The question section, which the answer repeats.
    section: &'a [u8],
    name: String,
    kind: u16,
}

impl<'a> Question<'a> {
    /// The only question of a query; `None` for anything else.
    fn parse(packet: &'a [u8]) -> Option<Self> {
        let header = packet.get(..12)?;
        let (is_query, one) = (header.get(2)? & 0xf8 == 0, header.get(4..6)? == [0, 1]);
        if !is_query || !one {
            return None;
        }
        let body = packet.get(12..)?;
        let mut labels = Vec::new();
        let mut at = 0;
        loop {
            let length = usize::from(*body.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(
                std::str::from_utf8(body.get(at..at + length)?)
                    .ok()?
                    .to_lowercase(),
            );
            at += length;
        }
        let kind = u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?);
        let class = u16::from_be_bytes(body.get(at + 2..at + 4)?.try_into().ok()?);
        (class == CLASS_IN).then_some(Self {
            id: header.get(..2)?.try_into().ok()?,
            recursion: header.get(2)? & 1,
            section: body.get(..at + 4)?,
            name: labels.join("."),
            kind,
        })
    }

    fn answer(&self, namespaces: &HashMap<String, ServiceNames>) -> Vec<u8> {
        let all = lookup(&self.name, namespaces);
        let code = if all.is_empty() { NAME_ERROR } else { 0 };
        // A name that exists has no records of other types.
        let octets = |address| match (address, self.kind) {
            (IpAddr::V4(four), TYPE_A) => Some(four.octets().to_vec()),
            (IpAddr::V6(six), TYPE_AAAA) => Some(six.octets().to_vec()),
            (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
        };
        let addresses: Vec<Vec<u8>> = all.into_iter().filter_map(octets).collect();
        let count = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
        let mut out = Vec::with_capacity(512);
        out.extend(self.id);
        // The flags: response, authoritative, recursion available, so that no resolver asks
        // elsewhere.
        out.extend([0x84 | self.recursion, 0x80 | code]);
        out.extend([0, 1]);
        out.extend(count.to_be_bytes());
        out.extend([0; 4]);
        out.extend(self.section);
        for address in addresses {
            // A pointer to the name in the question.
            out.extend([0xc0, 12]);
            out.extend(self.kind.to_be_bytes());
            out.extend(CLASS_IN.to_be_bytes());
            out.extend(TTL.to_be_bytes());
            let length = u16::try_from(address.len()).unwrap_or(u16::MAX);
            out.extend(length.to_be_bytes());
            out.extend(address);
        }
        out
    }
}

/// The addresses of `<name>.<namespace>.svc.cluster.local`.
fn lookup(name: &str, namespaces: &HashMap<String, ServiceNames>) -> Vec<IpAddr> {
    let found = name.strip_suffix(".svc.cluster.local").and_then(|rest| {
        let (name, namespace) = rest.rsplit_once('.')?;
        Some(namespaces.get(namespace)?.addresses(name).collect())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::json;

    use super::*;

    fn query(name: &str, kind: u8) -> Vec<u8> {
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend(label.as_bytes());
        }
        packet.extend([0, 0, kind, 0, 1]);
        packet
    }

    fn namespaces() -> HashMap<String, ServiceNames> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "peers"}, "spec": {"clusterIP": "None", "selector": {"app": "a"}}
        }))
        .unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"hostname": "a-1", "subdomain": "peers", "containers": []},
            "status": {"podIP": "127.64.0.8", "conditions": [{"type": "Ready", "status": "True"}]}
        }))
        .unwrap();
        HashMap::from([("ns".to_owned(), ServiceNames::new([&service], &[&pod]))])
    }

    #[test]
    fn a_known_name_is_answered_with_its_address() {
        let packet = query("A-1.peers.ns.svc.cluster.local", 1);
        let answer = Question::parse(&packet).unwrap().answer(&namespaces());
        assert_eq!(&answer[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert!(answer.ends_with(&[0, 4, 127, 64, 0, 8]));
    }

    #[test]
    fn an_unknown_name_does_not_exist_and_a_known_one_has_no_other_records() {
        for name in [
            "a-2.peers.ns.svc.cluster.local",
            "a-1.peers.other.svc.cluster.local",
            "x",
        ] {
            let packet = query(name, 1);
            let answer = Question::parse(&packet).unwrap().answer(&namespaces());
            assert_eq!(answer[3] & 0xf, NAME_ERROR, "{name}");
        }
        let packet = query("a-1.peers.ns.svc.cluster.local", 28);
        let answer = Question::parse(&packet).unwrap().answer(&namespaces());
        assert_eq!((answer[3] & 0xf, answer[7]), (0, 0));
    }

    #[test]
    fn packets_that_are_no_queries_are_not_answered() {
        assert!(Question::parse(&[]).is_none());
        assert!(Question::parse(&[0; 12]).is_none());
        let packet = query("a.b", 1);
        assert!(Question::parse(&packet[..packet.len() - 1]).is_none());
    }
}
