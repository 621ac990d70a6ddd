//! The evidence in a failed connection or a failed call.

use std::error::Error as StdError;
use std::io;

use etcd_client::Error;

use super::obstacle::Obstacle;
use crate::causes::causes;
use crate::quorum::evidence::Unanswered;

/// Messages of etcd, the same from 3.4 to 3.7. Its gRPC codes do not tell these cases apart.
const PERMISSION: [&str; 5] = [
    "etcdserver: permission denied",
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
];
/// Messages of etcd to a user who cannot log in. They prove nothing about the member, unlike
/// "permission denied" to a user who is logged in.
const NOT_ADMITTED: [&str; 3] = [
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: authentication failed, password auth disabled",
    "etcdserver: authentication is not enabled",
];
const NO_LEADER: &str = "etcdserver: no leader";
const LEADER_CHANGED: &str = "etcdserver: leader changed";
const FOR_LEARNER: &str = "etcdserver: rpc not supported for learner";

/// How a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// The connection broke or could not carry the call: the member may not have seen it.
    Transport(String),
    /// etcd refused the call because of the user.
    Permission(String),
    /// etcd did not accept the user and password.
    NotAdmitted(String),
    /// etcd answered that it has no leader.
    NoLeader,
    /// The leader changed while etcd was answering: a second call helps.
    LeaderChanged,
    /// The member is a learner, which does not answer this call.
    Learner,
    /// etcd answered with another error message.
    Answered(String),
}

impl CallFailure {
    pub(super) fn from_error(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else {
            return Self::Transport(causes(error));
        };
        // A status with a source was made on this side, of a broken connection. An answer of etcd
        // has only a code and a message.
        if let Some(source) = StdError::source(status) {
            return Self::Transport(causes(source));
        }
        match status.message() {
            message if PERMISSION.contains(&message) => Self::Permission(message.to_owned()),
            message if NOT_ADMITTED.contains(&message) => Self::NotAdmitted(message.to_owned()),
            NO_LEADER => Self::NoLeader,
            LEADER_CHANGED => Self::LeaderChanged,
            FOR_LEARNER => Self::Learner,
            "" => Self::Answered(format!("gRPC code {:?}", status.code())),
            message => Self::Answered(message.to_owned()),
        }
    }
}

impl From<CallFailure> for Unanswered {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Transport(text) | CallFailure::Answered(text) => Self::Other(text),
            CallFailure::Permission(text) | CallFailure::NotAdmitted(text) => Self::Denied(text),
            CallFailure::NoLeader => Self::NoLeader,
            CallFailure::LeaderChanged => Self::Other(LEADER_CHANGED.to_owned()),
            CallFailure::Learner => Self::Learner,
        }
    }
}

/// Why a connection came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// TLS got in the way.
    Tls(Obstacle),
    /// Anything else.
    Other(Unanswered),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Tls(obstacle) => Self::Tls(obstacle.to_string()),
            Failure::Other(why) => why,
        }
    }
}

impl From<Unanswered> for Failure {
    fn from(why: Unanswered) -> Self {
        Self::Other(why)
    }
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        Self::Tls(obstacle)
    }
}

/// The evidence in a failed connection attempt, or in a failed read or write on a connection.
pub(super) fn from_io(error: &io::Error) -> Failure {
    if let Some(tls) = tls_error(error) {
        return Obstacle::from_tls(tls).into();
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Unanswered::Refused,
        // The kernel gave up on a silent peer, which proves as little as our own deadline.
        io::ErrorKind::TimedOut => Unanswered::Deadline,
        _ => Unanswered::Other(error.to_string()),
    }
    .into()
}

/// The evidence in a failed TLS handshake. A peer that expects no TLS hangs up; that shows as an
/// end of file or as a reset, depending on whether the peer had read everything.
pub(super) fn from_handshake(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => {
            // A server of TLS says by an alert what it does not like.
            Obstacle::ServesPlaintext.into()
        }
        _ => from_io(error),
    }
}

/// The TLS error within an IO error, if there is one.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>()
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    fn answered(code: Code, message: &str) -> CallFailure {
        CallFailure::from_error(&Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn a_peer_that_hangs_up_in_the_handshake_serves_plaintext() {
        for kind in [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ] {
            let said = from_handshake(&kind.into());
            assert_eq!(said, Failure::Tls(Obstacle::ServesPlaintext), "{kind:?}");
        }
        assert_eq!(
            from_handshake(&io::ErrorKind::TimedOut.into()),
            Failure::Other(Unanswered::Deadline)
        );
    }

    #[test]
    fn refusals_for_who_we_are_are_told_by_their_words() {
        for message in PERMISSION {
            // Some of these messages come with the code of a malformed request.
            let failure = answered(Code::InvalidArgument, message);
            assert_eq!(failure, CallFailure::Permission(message.to_owned()));
        }
        let other = "etcdserver: not capable";
        let failure = answered(Code::PermissionDenied, other);
        assert_eq!(failure, CallFailure::Answered(other.to_owned()));
    }

    #[test]
    fn a_user_who_is_not_let_in_is_no_proof_of_a_read() {
        for message in NOT_ADMITTED {
            let failure = answered(Code::InvalidArgument, message);
            assert_eq!(failure, CallFailure::NotAdmitted(message.to_owned()));
            assert_eq!(
                Unanswered::from(failure),
                Unanswered::Denied(message.to_owned())
            );
        }
    }

    #[test]
    fn what_a_broken_connection_says_is_never_taken_for_an_answer() {
        let broken = io::Error::other("etcdserver: permission denied");
        let failure =
            CallFailure::from_error(&Error::GRpcStatus(Status::from_error(broken.into())));
        assert!(matches!(failure, CallFailure::Transport(_)), "{failure:?}");
    }

    #[test]
    fn a_silent_answer_is_named_by_its_code() {
        let failure = answered(Code::Unimplemented, "");
        assert_eq!(
            failure,
            CallFailure::Answered("gRPC code Unimplemented".to_owned())
        );
    }

    #[test]
    fn only_a_refused_connection_is_refused() {
        let of = |kind| Unanswered::from(from_io(&io::Error::from(kind)));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Unanswered::Refused);
        assert_eq!(of(io::ErrorKind::TimedOut), Unanswered::Deadline);
        for kind in [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::HostUnreachable,
        ] {
            assert!(matches!(of(kind), Unanswered::Other(_)), "{kind}");
        }
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let expired = from_io(&io::Error::new(io::ErrorKind::InvalidData, expired));
        assert!(matches!(expired, Failure::Tls(_)), "{expired:?}");
    }
}
