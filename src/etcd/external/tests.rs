use std::time::Duration;

use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use crate::clock::Clock;
use crate::etcd::{Connections, Endpoint};
use crate::quorum::MemberId;

const SOON: Duration = Duration::from_secs(10);

fn at(address: &str) -> IpAddr {
    address.parse().unwrap()
}

#[test]
fn what_is_only_for_this_host_or_for_no_single_one_is_off_limits() {
    for address in [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "64:ff9b::a83f:8110",
    ] {
        assert!(is_off_limits(at(address)), "{address}");
    }
}

/// Addresses of pods, of nodes and of machines outside the cluster.
#[test]
fn where_members_are_is_not() {
    for address in [
        "10.0.0.7",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "1.2.3.4",
        "fd00::7",
        "2001:db8::7",
        "::ffff:10.0.0.7",
        "64:ff9b::a00:7",
    ] {
        assert!(!is_off_limits(at(address)), "{address}");
    }
}

#[test]
fn an_address_of_this_host_is_its_own_and_another_is_not() {
    assert!(is_own(at("127.0.0.1")));
    // Reserved for documentation: no host has it.
    assert!(!is_own(at("192.0.2.1")));
}

fn external(client_url: &str) -> Endpoint {
    Endpoint::external(MemberId(7), client_url, None).unwrap()
}

#[tokio::test]
async fn nothing_is_sent_to_this_host_by_whatever_name_it_is_called() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Connections::new(Clock::system());
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let endpoint = external(&format!("http://{host}:{port}"));
        let got = timeout(SOON, connections.get(&endpoint)).await.unwrap();
        let why = got.err().expect(host).to_string();
        assert!(why.ends_with("where no member can be"), "{host}: {why}");
    }
    assert!(listener.accept().now_or_never().is_none());
    assert_eq!(connections.count(), 0);
}

#[tokio::test]
async fn a_name_is_resolved_and_only_so_many_are_connected_to_at_one_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    let way = ExternalDialer {
        places: Arc::new(Semaphore::new(2)),
        // The test connects to its own host, so only its IPv6 addresses are off limits.
        is_off_limits: |address| address.is_ipv6(),
    };
    let connect = || timeout(SOON, way.connect(&address));
    let first = connect().await.unwrap().unwrap();
    let second = connect().await.unwrap().unwrap();
    assert!(way.connect(&address).now_or_never().is_none(), "a third");
    assert_eq!(way.places.available_permits(), 0);
    drop(first.place);
    connect().await.unwrap().unwrap();
    drop(second);
    assert_eq!(way.places.available_permits(), 2);
}
