//! The emulator's record of each packet.

use segue_clock::{Span, Time};
use segue_netem::DropCause;

use crate::frame::Ports;

/// A direction of an emulated link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the first end (the host's) to the second (the network's).
    Up,
    /// From the second end to the first.
    Down,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Up, Direction::Down];

    /// `up` or `down`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// One packet on an emulated link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Direction of the packet.
    pub direction: Direction,
    /// When the kernel received it from the sender's device.
    pub arrival: Time,
    /// Fate of the packet.
    pub fate: Fate,
    /// Length of the IP packet in bytes.
    pub bytes: u32,
    /// Ports, if the packet has any.
    pub ports: Option<Ports>,
    /// The first bytes of the payload for UDP; missing bytes are zero.
    pub payload: [u8; Record::PAYLOAD_BYTES],
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet was sent.
    Delivered {
        /// Sending time according to the model.
        due: Time,
        /// Actual sending time.
        departure: Time,
    },
    /// The model dropped the packet.
    Dropped(DropCause),
    /// The emulator failed to send the packet (device queue full or device down).
    SendFailed,
}

impl Record {
    /// Recorded bytes of the payload: enough to identify a probe (header, sequence number, t_Sc, t_Ss).
    pub const PAYLOAD_BYTES: usize = 28;

    /// The packet's actual delay, from arrival to departure.
    #[must_use]
    pub fn delay(&self) -> Option<Span> {
        match self.fate {
            Fate::Delivered { departure, .. } => Some(departure.since(self.arrival)),
            _ => None,
        }
    }

    /// Whether the packet is UDP to or from this port.
    #[must_use]
    pub fn is_udp(&self, port: u16) -> bool {
        self.ports.is_some_and(|p| p.protocol == 17 && (p.source == port || p.destination == port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_delivered_packet_has_a_delay_and_only_one_with_ports_has_a_port() {
        let ports = Some(Ports { protocol: 17, source: 5005, destination: 9 });
        let delivered = Fate::Delivered { due: Time(5), departure: Time(6) };
        let record = Record {
            direction: Direction::Up,
            arrival: Time(1),
            fate: delivered,
            bytes: 60,
            ports,
            payload: [0; Record::PAYLOAD_BYTES],
        };
        let lost = Record { fate: Fate::Dropped(DropCause::Loss), ports: None, ..record };
        assert_eq!((record.delay(), lost.delay()), (Some(Span(5)), None));
        assert!(record.is_udp(5005) && record.is_udp(9) && !record.is_udp(10) && !lost.is_udp(9));
    }
}
