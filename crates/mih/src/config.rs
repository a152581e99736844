//! Configuration of a function.

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Span;
use segue_ip::Prefix;
use segue_wire::mih::codes::{CommandList, EventList, LinkType};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::{PORT, Profile};

use crate::Name;

/// Configuration of a function.
#[derive(Clone, Debug)]
pub struct MihfConfig {
    /// Its MIHF ID; must be unique.
    pub name: Name,
    /// Source port; 0: chosen by the driver.
    pub port: u16,
    /// Links of this node, for which the function acts as link service access point.
    pub links: Vec<LinkConfig>,
    /// Functions to register at.
    pub functions: Vec<Remote>,
    /// Events to subscribe to at those functions.
    pub interests: Vec<Interest>,
    /// Prefixes from which peers may register here.
    pub peers: Vec<Prefix>,
    /// Validity of registrations.
    pub validity: Span,
    /// Deviations from the standard that peers need.
    pub profile: Profile,
    /// Seed of the first transaction ID; should differ at each start.
    pub seed: u64,
}

impl MihfConfig {
    /// The default settings: no links, and no peer may register.
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

/// A link of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Type and address of the link; for an access point, the address of the access point.
    pub id: LinkId,
    /// The supported commands. Link_Get_Parameters and Link_Configure_Thresholds always work.
    pub commands: CommandList,
    /// When to announce Link_Going_Down; `None`: never.
    pub forecasting: Option<Forecasting>,
}

impl LinkConfig {
    /// A link with the default commands and forecast.
    #[must_use]
    pub fn new(link_type: LinkType, address: LinkAddress) -> LinkConfig {
        LinkConfig {
            id: LinkId { link_type, address },
            commands: CommandList::LINK_GET_PARAMETERS | CommandList::LINK_CONFIGURE_THRESHOLDS,
            forecasting: Some(Forecasting::USUAL),
        }
    }
}

/// When Link_Going_Down is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecasting {
    /// Signal below which an attachment is lost, in dBm.
    pub lost_dbm: i16,
    /// How far back the signal is considered.
    pub window: Span,
    /// Announce when the signal is expected to be lost within this time.
    pub ahead: Span,
}

impl Forecasting {
    /// -85 dBm, where 802.11 cards begin to roam or lose frames; looks back 2 s and ahead 0.5 s.
    pub const USUAL: Forecasting =
        Forecasting { lost_dbm: -85, window: Span::from_secs(2), ahead: Span::from_millis(500) };
}

/// Transport of frames (RFC 5677, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// UDP: each frame is acknowledged.
    Udp,
    /// TCP: no frame is acknowledged. The driver reports the end of a stream as an empty datagram.
    Tcp,
}

impl Transport {
    /// The IP protocol number.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    /// The transport with this IP protocol number.
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
    /// Its transport.
    pub transport: Transport,
}

impl Remote {
    /// The function at the default port (4551).
    #[must_use]
    pub fn new(address: IpAddr, transport: Transport) -> Remote {
        Remote { address, port: PORT, transport }
    }
}

/// Events to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The link's address; `None`: all links.
    pub link: Option<LinkAddress>,
    /// The events.
    pub events: EventList,
}
