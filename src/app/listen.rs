//! TCP listeners, for IPv4 and IPv6 on one socket, or for IPv4 alone on machines without IPv6.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tracing::info;

/// The length of the kernel's queue of connections. It is long, so that `serve` and not the kernel
/// decides which connection has to go when there are too many.
const QUEUE: i32 = 4096;

/// Listens on `address`; `[::]` stands for every address of both families. `what` names the
/// listener in errors.
pub(super) fn listen(address: SocketAddr, what: &str) -> Result<TcpListener> {
    let socket = match open(address) {
        Err(error) => match without_ipv6(address, &error) {
            Some(instead) => {
                info!(%address, %instead, %error, "IPv6 is not available");
                open(instead)
            }
            None => Err(error),
        },
        socket => socket,
    };
    socket
        .and_then(TcpListener::from_std)
        .with_context(|| format!("cannot listen for {what} on {address}"))
}

fn open(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // Set explicitly, because the default differs between machines.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(QUEUE)?;
    Ok(socket.into())
}

/// The address to listen on instead where every address was asked for and the machine has no IPv6.
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let absent = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|errno| Some(errno as i32));
    let every = address.is_ipv6() && address.ip().is_unspecified();
    (every && absent.contains(&error.raw_os_error()))
        .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn one_socket_answers_both_families() {
        let listener = listen("[::]:0".parse().unwrap(), "a test").unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        // On a machine without IPv6 the listener has fallen back, and there is nothing to connect
        // to.
        if listener.local_addr().unwrap().is_ipv6() {
            let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
            TcpStream::connect(six).await.unwrap();
        }
    }

    #[test]
    fn only_where_there_is_no_ipv6_every_address_means_every_one_of_ipv4() {
        let every = "[::]:8443".parse().unwrap();
        let failed = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        let instead = Some("0.0.0.0:8443".parse().unwrap());
        assert_eq!(without_ipv6(every, &failed(Errno::EAFNOSUPPORT)), instead);
        assert_eq!(without_ipv6(every, &failed(Errno::EADDRNOTAVAIL)), instead);
        assert_eq!(without_ipv6(every, &failed(Errno::EADDRINUSE)), None);
        let one = "[fd00::7]:8443".parse().unwrap();
        assert_eq!(without_ipv6(one, &failed(Errno::EADDRNOTAVAIL)), None);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = listen("127.0.0.1:0".parse().unwrap(), "a test").unwrap();
        let address = taken.local_addr().unwrap();
        let said = format!("{:#}", listen(address, "webhooks").unwrap_err());
        assert!(
            said.starts_with(&format!("cannot listen for webhooks on {address}: ")),
            "{said}"
        );
    }
}
