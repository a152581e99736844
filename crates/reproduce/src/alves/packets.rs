//! Numbered packets at a steady pace.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use segue_bench::passage::payload;
use segue_linux::netns::Netns;

/// The headers of IPv6 and UDP, in bytes.
const HEADERS: usize = 48;

/// A stream of packets of one size, a fixed time apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between two packets.
    pub period: Duration,
    /// Of a packet with its IPv6 header.
    pub bytes: usize,
}

impl Pace {
    /// A rate in kbit/s, in packets this far apart.
    pub(crate) fn of(kbit_s: u32, period: Duration) -> Pace {
        let bytes = f64::from(kbit_s) * 1e3 / 8.0 * period.as_secs_f64();
        Pace { period, bytes: bytes.round() as usize }
    }
}

/// One flow's sender.
#[derive(Debug)]
pub(crate) struct Flow {
    socket: UdpSocket,
    bytes: usize,
}

impl Flow {
    /// In a node, from a port of its own to an address and port.
    ///
    /// # Errors
    /// When the system refuses the socket.
    pub(crate) fn new(
        node: &Netns,
        from: (Ipv6Addr, u16),
        to: (Ipv6Addr, u16),
        pace: Pace,
    ) -> anyhow::Result<Flow> {
        let open = || -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::from(from))?;
            socket.connect(SocketAddr::from(to))?;
            Ok(socket)
        };
        let socket = node.run(open)?.context("a sender's socket")?;
        Ok(Flow { socket, bytes: pace.bytes.saturating_sub(HEADERS) })
    }

    /// Sends the packet with this number. A receiver without a socket is no fault.
    pub(crate) fn send(&self, number: u32) {
        let _ = self.socket.send(&payload(number, self.bytes));
    }
}

/// Waits until an instant of a pace.
pub(crate) fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}
