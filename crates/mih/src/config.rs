//! What a function needs to know.

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Span;
use segue_ip::Prefix;
use segue_wire::mih::codes::{CommandList, EventList, LinkType};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::{PORT, Profile};

use crate::Name;

/// What a function needs to know.
#[derive(Clone, Debug)]
pub struct MihfConfig {
    /// Its name (MIHF ID), unlike any other's.
    pub name: Name,
    /// The port that it sends from; 0: any, which its driver chooses.
    pub port: u16,
    /// Links of its own: it is their service access point.
    pub links: Vec<LinkConfig>,
    /// Functions that it registers at.
    pub functions: Vec<Remote>,
    /// Events that it wants to hear from them.
    pub interests: Vec<Interest>,
    /// Who may register here.
    pub peers: Vec<Prefix>,
    /// For how long a registration counts.
    pub validity: Span,
    /// Where peers depart from the standard.
    pub profile: Profile,
    /// Any number, another at each start: transactions are numbered from there.
    pub seed: u64,
}

impl MihfConfig {
    /// With usual values; it has no links and nobody may register.
    #[must_use]
    pub fn new(name: Name) -> MihfConfig {
        MihfConfig {
            name,
            port: PORT,
            links: Vec::new(),
            functions: Vec::new(),
            interests: Vec::new(),
            peers: Vec::new(),
            validity: Span::from_secs(20),
            profile: Profile::LENIENT,
            seed: 0,
        }
    }
}

/// A link of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Its kind and its address; an access point's is that of the access point.
    pub id: LinkId,
    /// What can be ordered of it, beside parameters and thresholds.
    pub commands: CommandList,
    /// When the end of an attachment is foretold; `None`: never.
    pub forecasting: Option<Forecasting>,
}

impl LinkConfig {
    /// A link of this kind.
    #[must_use]
    pub fn new(link_type: LinkType, address: LinkAddress) -> LinkConfig {
        LinkConfig {
            id: LinkId { link_type, address },
            commands: CommandList::LINK_GET_PARAMETERS | CommandList::LINK_CONFIGURE_THRESHOLDS,
            forecasting: Some(Forecasting::USUAL),
        }
    }
}

/// When Link_Going_Down is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecasting {
    /// The signal below which an attachment ends, in dBm.
    pub lost_dbm: i16,
    /// What is looked at.
    pub window: Span,
    /// It is told when the signal is expected to be lost within this.
    pub ahead: Span,
}

impl Forecasting {
    /// Lost at -85 dBm, as 802.11 cards roam or lose frames about there; the last 2 s, half a second ahead.
    pub const USUAL: Forecasting =
        Forecasting { lost_dbm: -85, window: Span::from_secs(2), ahead: Span::from_millis(500) };
}

/// How frames travel (RFC 5677, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// UDP: each is acknowledged.
    Udp,
    /// TCP: none is. The driver says that a stream has ended by an empty frame from there.
    Tcp,
}

impl Transport {
    /// IANA's protocol number.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    /// The transport with this protocol number.
    #[must_use]
    pub const fn of(protocol: u8) -> Option<Transport> {
        match protocol {
            6 => Some(Transport::Tcp),
            17 => Some(Transport::Udp),
            _ => None,
        }
    }
}

/// A function to register at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// How frames travel.
    pub transport: Transport,
}

impl Remote {
    /// At the usual port.
    #[must_use]
    pub fn new(address: IpAddr, transport: Transport) -> Remote {
        Remote { address, port: PORT, transport }
    }
}

/// Events that a user wants to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Of the link with this address; `None`: of all links.
    pub link: Option<LinkAddress>,
    /// Which.
    pub events: EventList,
}
