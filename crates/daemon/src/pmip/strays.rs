//! Hosts' packets in tunnels that an anchor does not have. Its relay passes such packets on, and they reveal gateways
//! that consider it the anchor of hosts unknown to it, as after a start without its state.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_ip::Datagram;
use segue_linux::raw::RawSocket;

/// IPv4 in IPv6, IPv6 in IPv6, and GRE.
const PROTOCOLS: [u8; 3] = [4, 41, 47];
/// Most packets read in a turn; a socket has room for about as many.
const A_TURN: usize = 256;

/// Sockets that receive such packets, over IPv6.
pub(super) struct Strays([RawSocket; 3]);

impl Strays {
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
    pub(super) fn open() -> anyhow::Result<Strays> {
        let [ipv4, ipv6, gre] = PROTOCOLS.map(RawSocket::strays);
        Ok(Strays([ipv4?, ipv6?, gre?]))
    }

    /// One packet of each sender whose packets arrived since the last turn.
    pub(super) fn turn(&self) -> Vec<Datagram> {
        let (mut buffer, mut all) = ([0; 64], BTreeMap::<IpAddr, Datagram>::new());
        for socket in &self.0 {
            let next = |_| socket.receive(&mut buffer).ok().flatten();
            for datagram in (0..A_TURN).map_while(next) {
                all.entry(datagram.from.0).or_insert(datagram);
            }
        }
        all.into_values().collect()
    }
}
