//! Paper etcd members: one listener answers for all of them as etcd does on the wire, depending on
//! the address that was called. Each member answers for a healthy cluster of three whose first
//! member leads.

use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use axum::body::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::paper_member::{FIRST_ADDRESS, MEMBERS, Member, cluster_name};

/// All paper members.
#[derive(Clone)]
pub(crate) struct PaperEtcd {
    /// The port of the listener.
    pub(crate) port: u16,
    /// The number of clusters that hang, counted from the first.
    pub(crate) hung: Arc<AtomicU32>,
}

impl Member {
    fn at(address: IpAddr) -> Self {
        let number = match address {
            IpAddr::V4(address) => address.to_bits().saturating_sub(FIRST_ADDRESS),
            IpAddr::V6(_) => 0,
        };
        Self {
            cluster: number / 4,
            ordinal: number % 4,
        }
    }

    fn id(self) -> u64 {
        0x1000_0000 + u64::from(self.cluster * 4 + self.ordinal)
    }

    fn name(self) -> String {
        format!("{}-{}", cluster_name(self.cluster), self.ordinal)
    }

    fn fellows(self) -> impl Iterator<Item = Self> {
        let cluster = self.cluster;
        (0..MEMBERS).map(move |ordinal| Self { cluster, ordinal })
    }

    fn leader(self) -> Self {
        Self { ordinal: 0, ..self }
    }
}

impl PaperEtcd {
    /// Answers for as long as the runtime lives.
    pub(crate) async fn listen() -> Result<Self> {
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let etcd = Self {
            port: listener.local_addr()?.port(),
            hung: Arc::default(),
        };
        let serving = etcd.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        Ok(etcd)
    }

    async fn serve(self, stream: TcpStream) {
        let Ok(address) = stream.local_addr() else {
            return;
        };
        let member = Member::at(address.ip());
        let service = service_fn(move |request: Request<Incoming>| {
            let hung = Arc::clone(&self.hung);
            async move {
                if member.cluster < hung.load(Ordering::Relaxed) {
                    pending::<()>().await;
                }
                Ok::<_, Infallible>(answer(member, request.uri().path()))
            }
        });
        // A client may close its connection at any time.
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }
}

type Framed = StreamBody<stream::Iter<std::array::IntoIter<Result<Frame<Bytes>, Infallible>, 2>>>;

fn answer(member: Member, path: &str) -> Response<Framed> {
    let message = match path {
        "/etcdserverpb.Maintenance/Status" => status(member),
        "/etcdserverpb.Cluster/MemberList" => members(member),
        _ => header(member),
    };
    let length = u32::try_from(message.len()).unwrap_or_default();
    let message = [&[0][..], &length.to_be_bytes(), &message].concat();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [
        Ok(Frame::data(Bytes::from(message))),
        Ok(Frame::trailers(trailers)),
    ];
    let mut answer = Response::new(StreamBody::new(stream::iter(frames)));
    let kind = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert("content-type", kind);
    answer
}

/// Field 1 of every answer, the header: cluster, member, revision, term.
fn header(member: Member) -> Vec<u8> {
    let cluster = number(1, 1 + u64::from(member.cluster));
    let header = [cluster, number(2, member.id()), number(3, 9), number(4, 5)];
    part(1, &header.concat())
}

fn status(member: Member) -> Vec<u8> {
    let fields = [
        header(member),
        part(2, b"3.7.3"),
        number(3, 25_000_000),
        number(4, member.leader().id()),
        number(5, 100),
        number(6, 5),
        number(7, 100),
        number(9, 20_000_000),
    ];
    fields.concat()
}

fn members(member: Member) -> Vec<u8> {
    let listed = member.fellows().map(|fellow| {
        let name = fellow.name();
        let fields = [
            number(1, fellow.id()),
            part(2, name.as_bytes()),
            part(3, format!("http://{name}:2380").as_bytes()),
            part(4, format!("http://{name}:2379").as_bytes()),
        ];
        part(2, &fields.concat())
    });
    header(member).into_iter().chain(listed.flatten()).collect()
}

/// A numeric field of a protobuf message.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field of a protobuf message that is text, bytes or a message.
fn part(field: u64, bytes: &[u8]) -> Vec<u8> {
    let length = varint(u64::try_from(bytes.len()).unwrap_or_default());
    [varint(field << 3 | 2), length, bytes.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
