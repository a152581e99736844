//! By what a tunnel knows the packets that come out of it.

use std::net::{IpAddr, Ipv6Addr};

use segue_ip::{Form, Tunnel};

/// The ends of a packet's way, and what stands in front of the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) front: Front,
}

/// What stands behind the outer IP header, seen from the end that receives it.
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
