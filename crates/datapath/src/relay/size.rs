//! The largest packet that fits each tunnel, from the kernel's path MTU to the remote end and from Packet Too Big
//! errors of routers. An error is believed only if it quotes a packet of the tunnel.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{Form, Tunnel};
use segue_linux::udp::path_mtu;
use segue_wire::OuterTooBig;

use super::user::head::{GRE, IPV4, IPV6, UDP};

/// How long a router's report is believed: a path MTU can also grow, and no message reports that (RFC 8201, section 4,
/// recommends ten minutes).
const BELIEVED: Span = Span::from_secs(600);
/// Lower bounds for reported MTUs: the smallest IPv4 MTU in use, and the IPv6 minimum (RFC 8201, section 4). They limit
/// the harm of a forged report.
const LEAST: [u32; 2] = [576, 1_280];
/// Bytes of a home address in an extension header (RFC 6275, 6.3 and 6.4).
const HOME_ADDRESS: u32 = 24;
/// Protocol numbers of the extension headers that carry home addresses.
const HOMES: [u8; 2] = [43, 60];

/// Path MTUs in bytes that routers have reported between two addresses, with the time at which each expires.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<(IpAddr, IpAddr), (u32, Time)>);

impl Said {
    /// Records a Packet Too Big error for the path of a tunnel.
    pub(super) fn note(&mut self, now: Time, said: &OuterTooBig) {
        let least = LEAST[usize::from(said.remote.is_ipv6())];
        let bytes = said.mtu.map_or(least, u32::from).max(least);
        let of = (said.local, said.remote);
        // Several routers on the path may each take less than the previous one.
        let known = self.0.get(&of).map_or(bytes, |(known, _)| bytes.min(*known));
        self.0.insert(of, (known, now + BELIEVED));
    }

    /// Removes expired reports. True if there were any.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (_, until)| *until > now);
        self.0.len() < before
    }

    /// The largest inner packet of a tunnel in bytes; `way` is the kernel's path MTU, if it knows one.
    pub(super) fn inner(&self, tunnel: &Tunnel, way: Option<u32>) -> Option<u32> {
        let said = self.0.get(&(tunnel.local, tunnel.remote)).map(|(bytes, _)| *bytes);
        let outer = way.into_iter().chain(said).min()?;
        Some(outer.saturating_sub(overhead(tunnel)))
    }
}

/// The kernel's path MTU to a tunnel's remote end, in bytes; `None` without a route.
pub(super) fn way(tunnel: &Tunnel) -> Option<u32> {
    path_mtu((tunnel.remote, 9).into()).ok()
}

/// Bytes that a tunnel adds to a packet.
fn overhead(tunnel: &Tunnel) -> u32 {
    let ip = if tunnel.remote.is_ipv6() { 40 } else { 20 };
    match tunnel.form {
        Form::Ip => ip,
        Form::Gre { send, .. } => ip + if send.is_some() { 8 } else { 4 },
        Form::Udp { .. } => ip + 8,
        Form::Optimized { home, peer } => {
            [home, peer].into_iter().flatten().map(|_| HOME_ADDRESS).sum()
        }
    }
}

/// True if the packet quoted by an error, as far as it is quoted, was sent through this tunnel.
pub(super) fn is_of(said: &OuterTooBig, tunnel: &Tunnel) -> bool {
    if (said.local, said.remote) != (tunnel.local, tunnel.remote) {
        return false;
    }
    let [f0, f1, f2, f3, key @ ..] = said.front;
    match tunnel.form {
        Form::Ip => matches!((said.protocol, f0 >> 4), (IPV4, 4) | (IPV6, 6)),
        Form::Gre { send: None, .. } => said.protocol == GRE && [f0, f1] == [0, 0],
        Form::Gre { send: Some(send), .. } => {
            said.protocol == GRE && [f0, f1] == [0x20, 0] && key == send.to_be_bytes()
        }
        Form::Udp { local, remote } => {
            let ports = [u16::from_be_bytes([f0, f1]), u16::from_be_bytes([f2, f3])];
            said.protocol == UDP && ports == [local, remote]
        }
        Form::Optimized { .. } => HOMES.contains(&said.protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(form: Form) -> Tunnel {
        let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|a| a.parse().unwrap());
        Tunnel { number: 1, local, remote, interface: None, form }
    }

    fn said(protocol: u8, front: [u8; 8], mtu: Option<u16>) -> OuterTooBig {
        let Tunnel { local, remote, .. } = tunnel(Form::Ip);
        OuterTooBig { local, remote, protocol, front, mtu }
    }

    const V6: [u8; 8] = [0x60, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_message_counts_for_the_tunnel_whose_packet_it_quotes_and_for_no_other() {
        let keyed = |send| Form::Gre { send: Some(send), receive: Some(9) };
        let plain = Form::Gre { send: None, receive: None };
        let udp = Form::Udp { local: 5_436, remote: 1_024 };
        let with_key = |key: u8| said(GRE, [0x20, 0, 0x86, 0xdd, 0, 0, 0, key], None);
        let no_key = said(GRE, [0, 0, 0x86, 0xdd, 0x60, 0, 0, 0], None);
        let ports = |to: u8| said(UDP, [0x15, 0x3c, to, 0, 0, 0, 0, 0], None);
        let all = [Form::Ip, plain, keyed(7), keyed(8), udp].map(tunnel);
        for (message, of) in [
            (said(IPV6, V6, None), Some(0)),
            (said(IPV4, [0x45; 8], None), Some(0)),
            (said(IPV6, [0x45; 8], None), None),
            (no_key, Some(1)),
            (with_key(7), Some(2)),
            (with_key(8), Some(3)),
            (with_key(9), None),
            (ports(4), Some(4)),
            (ports(5), None),
        ] {
            let quoted = all.iter().position(|tunnel| is_of(&message, tunnel));
            assert_eq!(quoted, of, "{message:?}");
            let other = OuterTooBig { remote: message.local, ..message };
            assert!(!all.iter().any(|tunnel| is_of(&other, tunnel)));
        }
    }

    #[test]
    fn the_smallest_size_said_counts_for_ten_minutes_and_no_size_below_the_least() {
        let (mut all, begin, tunnel) = (Said::default(), Time::ZERO, tunnel(Form::Ip));
        assert_eq!(all.inner(&tunnel, None), None);
        assert_eq!(all.inner(&tunnel, Some(1_500)), Some(1_460));
        for (mtu, inner) in [(Some(1_400), 1_360), (Some(1_450), 1_360), (Some(1_300), 1_260)] {
            all.note(begin, &said(IPV6, V6, mtu));
            assert_eq!(all.inner(&tunnel, Some(1_500)), Some(inner));
        }
        for mtu in [Some(68), None] {
            all.note(begin, &said(IPV6, V6, mtu));
            assert_eq!(all.inner(&tunnel, Some(1_500)), Some(1_240));
        }
        assert!(!all.expire(begin + Span::from_secs(599)));
        assert!(all.expire(begin + BELIEVED));
        assert_eq!(all.inner(&tunnel, Some(1_500)), Some(1_460));
    }
}
