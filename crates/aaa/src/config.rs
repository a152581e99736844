//! Configuration of a RADIUS client.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{DayClock, Span};
use segue_mobility::Backoff;
use segue_wire::radius::Secret;

/// Configuration of a RADIUS client.
#[derive(Clone, Debug)]
pub struct AaaConfig {
    /// Authentication servers, in order of preference.
    pub authentication: Vec<Server>,
    /// Accounting servers, in order of preference; empty disables accounting.
    pub accounting: Vec<Server>,
    /// Attributes of requests, and attributes read from replies.
    pub profile: AaaProfile,
    /// The role that the client serves.
    pub side: Side,
    /// On a gateway, send the interface identifier of the link-layer address (modified EUI-64) as User-Name.
    pub eui64: bool,
    /// User-Password of a gateway's requests; `None` selects the profile's.
    pub password: Option<Vec<u8>>,
    /// NAS-Identifier. `None`: omitted, or `segue` if the request has no NAS-IPv6-Address either.
    pub identifier: Option<String>,
    /// Retransmission timeout and number of attempts per server.
    pub patience: Backoff,
    /// How long a server that did not answer is skipped.
    pub dead_time: Span,
    /// How long a host that was refused, or for which no server answered, is not asked about again. Also the delay
    /// before servers are asked again about a host in service.
    pub hold_off: Span,
    /// Which replies must carry a Message-Authenticator.
    pub require_message_authenticator: Signed,
    /// Interval of interim updates if the server sends no Acct-Interim-Interval; `None`: no updates.
    pub interim: Option<Span>,
    /// Read traffic counters from the driver and include them in accounting.
    pub counts: bool,
    /// Maximum number of concurrent sessions.
    pub capacity: usize,
    /// Seed of authenticators and session names. Take it from the system's random generator: authenticators must be
    /// unpredictable.
    pub seed: [u8; 32],
    /// Converts machine time to time of day.
    pub clock: DayClock,
}

impl AaaConfig {
    /// The default settings.
    #[must_use]
    pub fn new(authentication: Vec<Server>, side: Side, clock: DayClock) -> AaaConfig {
        AaaConfig {
            authentication,
            accounting: Vec::new(),
            profile: AaaProfile::Rfc6572,
            side,
            eui64: false,
            password: None,
            identifier: None,
            patience: Backoff::from_secs(1, 4, Some(3)),
            dead_time: Span::from_secs(60),
            hold_off: Span::from_secs(10),
            require_message_authenticator: Signed::Auto,
            interim: None,
            counts: false,
            capacity: 1 << 15,
            seed: [0; 32],
            clock,
        }
    }
}

/// A RADIUS server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address.
    pub address: IpAddr,
    /// Its UDP port.
    pub port: u16,
    /// The shared secret.
    pub secret: Secret,
}

/// Which replies must carry a Message-Authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// All replies of authentication servers.
    Always,
    /// Acceptances from a server that has signed any reply, and refusals from one that has signed a refusal.
    Auto,
    /// None.
    Never,
}

/// Which attributes requests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AaaProfile {
    /// The attributes of RFC 6572.
    Rfc6572,
    /// Those of paper 3's gateway: the link-layer address as 16 digits for a User-Name, a fixed password,
    /// Authenticate-Only, and Framed-IPv6-Prefix for the prefix.
    Paper,
}

/// The role that the client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A gateway, which needs the host's identity. Termination-Action decides whether it asks again when a session
    /// times out.
    Gateway,
    /// An anchor, which already knows the identity. It always asks again when a session times out.
    Anchor,
}
