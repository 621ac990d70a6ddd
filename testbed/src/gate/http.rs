//! The little HTTP that it takes to ask a replica's plain-text endpoints.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Status code and body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: String,
}

/// `GET path`. Speaks HTTP/1.0, so that the body is neither chunked nor followed by another answer.
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
