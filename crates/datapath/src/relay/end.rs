//! The key by which a tunnel recognises its arriving packets.

use std::net::{IpAddr, Ipv6Addr};

use segue_ip::{Form, Tunnel};

/// The outer addresses of a packet, and the headers in front of the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) front: Front,
}

/// The headers after the outer IP header, as the receiving end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Front {
    Ip,
    Gre { key: Option<u32> },
    Udp { local: u16, remote: u16 },
    Homes { home: Option<Ipv6Addr>, peer: Option<Ipv6Addr> },
}

impl End {
    pub(super) fn of(tunnel: &Tunnel) -> End {
        let front = match tunnel.form {
            Form::Ip => Front::Ip,
            Form::Gre { receive, .. } => Front::Gre { key: receive },
            Form::Udp { local, remote } => Front::Udp { local, remote },
            Form::Optimized { home, peer } => Front::Homes { home, peer },
        };
        End { local: tunnel.local, remote: tunnel.remote, front }
    }
}
