//! What a client needs to know.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{DayClock, Span};
use segue_mobility::Backoff;
use segue_wire::radius::Secret;

/// What a client needs to know.
#[derive(Clone, Debug)]
pub struct AaaConfig {
    /// Who is asked about hosts, the first one that answers.
    pub authentication: Vec<Server>,
    /// Who is told what hosts were served, likewise; nobody if it is empty.
    pub accounting: Vec<Server>,
    /// How requests are worded, and what is read in answers.
    pub profile: AaaProfile,
    /// For whom it asks.
    pub side: Side,
    /// A gateway's User-Name is the interface identifier of the link-layer address (EUI-64).
    pub eui64: bool,
    /// The User-Password of a gateway's requests; `None`: the profile's.
    pub password: Option<Vec<u8>>,
    /// NAS-Identifier, if there is one.
    pub identifier: Option<String>,
    /// How long a server has for an answer before it is asked again, and how often it is asked.
    pub patience: Backoff,
    /// How long a server that was silent is passed over.
    pub dead_time: Span,
    /// How long nobody is asked about a host again that was refused, or about which no server has answered.
    pub hold_off: Span,
    /// Which answers must have a Message-Authenticator.
    pub require_message_authenticator: Signed,
    /// Time between interim updates, if the server does not say so; `None`: none.
    pub interim: Option<Span>,
    /// Ask the driver what sessions have carried, and tell accounting servers.
    pub counts: bool,
    /// Most hosts that are served at a time.
    pub capacity: usize,
    /// From the system's generator: nobody may foresee authenticators.
    pub seed: [u8; 32],
    /// The time of day.
    pub clock: DayClock,
}

impl AaaConfig {
    /// With usual values.
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

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address.
    pub address: IpAddr,
    /// Its UDP port.
    pub port: u16,
    /// What it shares with this client.
    pub secret: Secret,
}

/// Which answers must have a Message-Authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// All.
    Always,
    /// Those of a server that has signed before.
    Auto,
    /// None.
    Never,
}

/// How requests are worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AaaProfile {
    /// As RFC 6572 has it.
    Rfc6572,
    /// As paper 3's gateway does: the link-layer address as 16 digits for a name, a fixed password, Authenticate-Only; the
    /// prefix is in Framed-IPv6-Prefix.
    Paper,
}

/// For whom a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A gateway, which must be told who a host is. What a session's end means is in the answer (Termination-Action).
    Gateway,
    /// An anchor, which knows that. It asks again when a session ends.
    Anchor,
}
