//! Reserves the UDP ports of tunnels against other programs.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use segue_ip::{Form, Tunnel};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::option;

/// A socket for each port, from which nothing can be read, with the number of tunnels that use it.
pub(super) struct Ports {
    taken: BTreeMap<SocketAddr, (Option<Socket>, usize)>,
    /// Ports at which the driver has sockets.
    held: Vec<u16>,
}

impl Ports {
    /// Starts without any reserved port. `held` are the ports of the driver's sockets.
    pub(super) fn new(held: Vec<u16>) -> Ports {
        Ports { taken: BTreeMap::new(), held }
    }

    /// Reserves a tunnel's port, if it uses UDP.
    ///
    /// # Errors
    /// When another program uses the port.
    pub(super) fn add(&mut self, tunnel: &Tunnel) -> io::Result<()> {
        let Some(at) = port_of(tunnel) else { return Ok(()) };
        match self.taken.get_mut(&at) {
            Some((_, tunnels)) => *tunnels += 1,
            None => {
                let socket = if self.held.contains(&at.port()) { None } else { Some(open(at)?) };
                self.taken.insert(at, (socket, 1));
            }
        }
        Ok(())
    }

    /// Releases a tunnel's port.
    pub(super) fn remove(&mut self, tunnel: &Tunnel) {
        let Some(at) = port_of(tunnel) else { return };
        match self.taken.get_mut(&at) {
            Some((_, tunnels)) if *tunnels > 1 => *tunnels -= 1,
            _ => drop(self.taken.remove(&at)),
        }
    }

    /// All reserved ports, sorted and without duplicates.
    pub(super) fn all(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.taken.keys().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn port_of(tunnel: &Tunnel) -> Option<SocketAddr> {
    match tunnel.form {
        Form::Udp { local, .. } => Some(SocketAddr::new(tunnel.local, local)),
        _ => None,
    }
}

fn open(at: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::UDP))?;
    let nothing = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
    socket.attach_filter(&[nothing])?;
    // The address may be configured later.
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
        option::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1)?;
    } else {
        option::set(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1)?;
    }
    socket.bind(&at.into())?;
    Ok(socket)
}
