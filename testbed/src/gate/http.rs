//! A minimal HTTP client for the plain-text endpoints of a replica.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status code and the body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: String,
}

/// Makes a `GET` request. With HTTP/1.0 the body is not chunked, and no other answer follows it.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout(PATIENCE, exchange)
        .await
        .context("no answer in time")??;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without body")?;
    let code = head
        .split(' ')
        .nth(1)
        .context("an answer without status")?
        .parse()?;
    Ok(Answer {
        code,
        body: body.to_owned(),
    })
}
