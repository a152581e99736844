//! Numbered packets at a steady pace.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use segue_bench::passage::payload;
use segue_linux::netns::Netns;

use crate::experiment::Stage;

/// The headers of IPv6 and UDP, in bytes.
const HEADERS: usize = 48;

/// A stream of equally sized packets at fixed intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time between two packets.
    pub period: Duration,
    /// Length of a packet including its IPv6 header.
    pub bytes: usize,
}

impl Pace {
    /// A rate in kbit/s with this packet interval.
    pub(crate) fn of(kbit_s: u32, period: Duration) -> Pace {
        let bytes = f64::from(kbit_s) * 1e3 / 8.0 * period.as_secs_f64();
        Pace { period, bytes: bytes.round() as usize }
    }
}

/// The sender of one flow.
#[derive(Debug)]
pub(crate) struct Flow {
    socket: UdpSocket,
    bytes: usize,
}

impl Flow {
    /// Opens a flow in a node from a local address and port to a remote one.
    ///
    /// # Errors
    /// The system refuses the socket.
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

    /// Sends the packet with this number. Ignores errors: the receiver may have no socket.
    pub(crate) fn send(&self, number: u32) {
        let _ = self.socket.send(&payload(number, self.bytes));
    }
}

/// Waits until an instant.
pub(crate) fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// A planned packet: its time from the start, and its flow. Its number is its index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Planned {
    pub at: Duration,
    pub flow: usize,
    /// Its position in its flow, from zero.
    pub place: u32,
}

/// Plans the packets of several flows that begin one after another, in order of departure.
pub(crate) fn plan(
    begins: impl Iterator<Item = Duration>,
    period: Duration,
    end: Duration,
) -> Vec<Planned> {
    let of = |(flow, begin): (usize, Duration)| {
        let times = (0..).map(move |place| (place, begin + period * place));
        let own = times.take_while(move |(_, at)| *at < end);
        own.map(move |(place, at)| Planned { at, flow, place })
    };
    let mut plan: Vec<Planned> = begins.enumerate().flat_map(of).collect();
    plan.sort();
    plan
}

/// Sends a plan. A late packet does not delay the others.
///
/// # Errors
/// The user wants to stop.
pub(crate) fn send(stage: &Stage, flows: &[Flow], plan: &[Planned]) -> anyhow::Result<()> {
    let begin = Instant::now();
    for (number, packet) in plan.iter().enumerate() {
        if packet.at > begin.elapsed() {
            stage.check()?;
            wait_until(begin + packet.at);
        }
        flows[packet.flow].send(number as u32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_the_packets_of_all_flows_in_order() {
        let ms = Duration::from_millis;
        let plan = plan([0, 15].map(ms).into_iter(), ms(10), ms(30));
        let told: Vec<_> = plan.iter().map(|p| (p.at.as_millis(), p.flow, p.place)).collect();
        assert_eq!(told, [(0, 0, 0), (10, 0, 1), (15, 1, 0), (20, 0, 2), (25, 1, 1)]);
        assert_eq!(Pace::of(100, ms(10)).bytes, 125);
    }
}
