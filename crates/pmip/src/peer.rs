//! Addresses of peers, and the address pairs of messages.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Datagram;

use crate::{MOBILITY, Refusal};

/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// UDP port of signalling over IPv4 (RFC 5844).
pub const SIGNALLING_PORT: u16 = 5_436;
/// UDP port of tunnelled packets over IPv4 with UDP encapsulation.
pub const DATA_PORT: u16 = 5_437;

/// The address of a gateway or an anchor, with its private address if it is behind a NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// Source address of its packets; behind a NAT, the NAT's address.
    pub address: IpAddr,
    /// Behind a NAT: the peer's own (private) address.
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

/// The local and remote address of a message. Over IPv4 with UDP ports; over IPv6 there is no UDP header and the ports
/// are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) own: (IpAddr, u16),
    pub(crate) peer: (IpAddr, u16),
}

impl Ends {
    /// Uses the signalling port over IPv4.
    pub(crate) fn between(own: IpAddr, peer: IpAddr) -> Ends {
        let port = |address: IpAddr| if address.is_ipv4() { SIGNALLING_PORT } else { 0 };
        Ends { own: (own, port(own)), peer: (peer, port(peer)) }
    }

    /// The ends of a received message. `Malformed` if the families or the protocol do not match.
    pub(crate) fn of(came: &Datagram) -> Result<Ends, Refusal> {
        let Datagram { from: peer, to: own, protocol, .. } = *came;
        match (peer.0, own.0, protocol) {
            (IpAddr::V6(_), IpAddr::V6(_), MOBILITY) | (IpAddr::V4(_), IpAddr::V4(_), UDP) => {
                Ok(Ends { own, peer })
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// The local IPv4 address; `None` over IPv6.
    pub(crate) fn own_v4(&self) -> Option<Ipv4Addr> {
        match self.own.0 {
            IpAddr::V4(own) => Some(own),
            IpAddr::V6(_) => None,
        }
    }
}
