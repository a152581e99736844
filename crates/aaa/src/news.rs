//! What a client tells: news, and why what came was passed over.

use alloc::string::String;
use core::fmt;
use core::net::SocketAddr;

/// News of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaReport {
    /// A host may not be served.
    Refused {
        /// Its User-Name.
        user: String,
        /// Says this server.
        server: SocketAddr,
    },
    /// A host may be served, and the server does not say who it is.
    Nameless {
        /// Its User-Name.
        user: String,
        /// Says this server.
        server: SocketAddr,
    },
    /// The first answer of a server that is not made with the secret.
    Secret {
        /// Which.
        server: SocketAddr,
    },
    /// A server does not answer.
    Silent {
        /// Which.
        server: SocketAddr,
    },
    /// It answers again.
    Answers {
        /// Which.
        server: SocketAddr,
    },
    /// The first answer of a server that was refused because it is not signed.
    Unsigned {
        /// Which.
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

/// Why something that came was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// It is no packet.
    Malformed,
    /// It is from nobody that is asked.
    Stranger,
    /// It is no answer.
    NoAnswer,
    /// It is not made with the secret: it is forged, or the secret is wrong.
    Authenticator,
    /// Its Message-Authenticator is wrong.
    MessageAuthenticator,
    /// It has no Message-Authenticator, and must have one.
    NoMessageAuthenticator,
    /// It has no Message-Authenticator, and a Proxy-State that its request did not have.
    ProxyState,
    /// It is right, and the request has had an answer, or is given up.
    Late,
    /// It answers nothing that was asked.
    Unasked,
    /// It accepts a host and does not say who it is.
    NoIdentity,
}

impl Unfit {
    /// Its name in counts.
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
