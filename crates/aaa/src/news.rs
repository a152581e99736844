//! Reports of the client, and the reasons for discarding a datagram.

use alloc::string::String;
use core::fmt;
use core::net::SocketAddr;

/// A report for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaReport {
    /// The server refused a host.
    Refused {
        /// The host's User-Name.
        user: String,
        /// The server.
        server: SocketAddr,
    },
    /// The server accepted a host, but did not identify it.
    Nameless {
        /// The host's User-Name.
        user: String,
        /// The server.
        server: SocketAddr,
    },
    /// First reply of a server that fails authentication: the secrets differ, or the reply is forged.
    Secret {
        /// The server.
        server: SocketAddr,
    },
    /// A server stopped answering.
    Silent {
        /// The server.
        server: SocketAddr,
    },
    /// A server answers again.
    Answers {
        /// The server.
        server: SocketAddr,
    },
    /// First reply of a server that was discarded for lack of a Message-Authenticator.
    Unsigned {
        /// The server.
        server: SocketAddr,
    },
}

impl fmt::Display for AaaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AaaReport::Refused { user, server } => {
                write!(f, "{user} may not be served, says {server}")
            }
            AaaReport::Nameless { user, server } => write!(
                f,
                "RADIUS: {server} accepted {user}, but named no host: have it send Mobile-Node-Identifier"
            ),
            AaaReport::Secret { server } => write!(
                f,
                "RADIUS: an answer of {server} is not made with this daemon's secret and is refused: secret_file has another secret \
                 than the server, or the answer is forged"
            ),
            AaaReport::Silent { server } => write!(
                f,
                "RADIUS: {server} does not answer: it is away, or does not know this client, or has another secret"
            ),
            AaaReport::Answers { server } => write!(f, "RADIUS: {server} answers again"),
            AaaReport::Unsigned { server } => write!(
                f,
                "RADIUS: an answer of {server} has no Message-Authenticator and is refused: it is forged, or the server must be \
                 set up to sign"
            ),
        }
    }
}

/// Why a datagram was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// Not a RADIUS packet.
    Malformed,
    /// The sender is not a configured server.
    Stranger,
    /// Its code is not that of a reply from this kind of server.
    NoAnswer,
    /// The Response Authenticator is wrong: a forgery, or a wrong secret.
    Authenticator,
    /// The Message-Authenticator is wrong.
    MessageAuthenticator,
    /// A Message-Authenticator is required and missing.
    NoMessageAuthenticator,
    /// No Message-Authenticator, and a Proxy-State that the request did not contain.
    ProxyState,
    /// Authentic, but the request is already answered or given up.
    Late,
    /// No request with this identifier is pending.
    Unasked,
    /// An Access-Accept that does not identify the host.
    NoIdentity,
}

impl Unfit {
    /// Its name in metrics and status output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unfit::Malformed => "malformed",
            Unfit::Stranger => "stranger",
            Unfit::NoAnswer => "no_answer",
            Unfit::Authenticator => "authenticator",
            Unfit::MessageAuthenticator => "message_authenticator",
            Unfit::NoMessageAuthenticator => "no_message_authenticator",
            Unfit::ProxyState => "proxy_state",
            Unfit::Late => "late",
            Unfit::Unasked => "unasked",
            Unfit::NoIdentity => "no_identity",
        }
    }
}
