//! Where the other end is: its address, and how messages reach it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Datagram;

use crate::{MOBILITY, Refusal};

/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// The UDP port of messages over IPv4 (RFC 5844).
pub const SIGNALLING_PORT: u16 = 5_436;
/// The UDP port of hosts' packets over IPv4, where they are in UDP.
pub const DATA_PORT: u16 = 5_437;

/// The address of a gateway or an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// Where its packets come from. Behind a NAT this is the NAT's.
    pub address: IpAddr,
    /// Behind a NAT: the address that it has itself.
    pub behind: Option<Ipv4Addr>,
}

impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> PeerAddress {
        PeerAddress { address, behind: None }
    }
}

impl From<Ipv6Addr> for PeerAddress {
    fn from(address: Ipv6Addr) -> PeerAddress {
        IpAddr::from(address).into()
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        self.behind.map_or(Ok(()), |own| write!(f, " ({own})"))
    }
}

/// The two ends of a message, with their UDP ports over IPv4; over IPv6, where nothing is around a message, these are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) own: (IpAddr, u16),
    pub(crate) peer: (IpAddr, u16),
}

impl Ends {
    /// With the usual ports.
    pub(crate) fn between(own: IpAddr, peer: IpAddr) -> Ends {
        let port = |address: IpAddr| if address.is_ipv4() { SIGNALLING_PORT } else { 0 };
        Ends { own: (own, port(own)), peer: (peer, port(peer)) }
    }

    /// Of a message that came.
    pub(crate) fn of(came: &Datagram) -> Result<Ends, Refusal> {
        let Datagram { from: peer, to: own, protocol, .. } = *came;
        match (peer.0, own.0, protocol) {
            (IpAddr::V6(_), IpAddr::V6(_), MOBILITY) | (IpAddr::V4(_), IpAddr::V4(_), UDP) => {
                Ok(Ends { own, peer })
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// This end's address of IPv4, if that is what is between the two.
    pub(crate) fn own_v4(&self) -> Option<Ipv4Addr> {
        match self.own.0 {
            IpAddr::V4(own) => Some(own),
            IpAddr::V6(_) => None,
        }
    }
}
