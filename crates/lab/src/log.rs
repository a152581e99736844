//! What an emulator records about each packet.

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
    /// Both.
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
    /// Its direction.
    pub direction: Direction,
    /// When the kernel received it from the sender's device.
    pub arrival: Time,
    /// Its fate.
    pub fate: Fate,
    /// Length of the IP packet in bytes.
    pub bytes: u32,
    /// Its ports, if it has any.
    pub ports: Option<Ports>,
    /// The first bytes of its payload, if it is UDP; missing bytes are zero.
    pub payload: [u8; Record::PAYLOAD_BYTES],
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was sent on.
    Delivered {
        /// When the model wanted it sent.
        due: Time,
        /// When it was sent.
        departure: Time,
    },
    /// The model dropped it.
    Dropped(DropCause),
    /// The emulator itself failed to send it (device queue full or device down).
    SendFailed,
}

impl Record {
    /// How much of a payload is kept: enough to recognise a probe (header, sequence number, t_Sc, t_Ss).
    pub const PAYLOAD_BYTES: usize = 28;

    /// The packet's actual delay, from arrival to departure.
    #[must_use]
    pub fn delay(&self) -> Option<Span> {
        match self.fate {
            Fate::Delivered { departure, .. } => Some(departure.since(self.arrival)),
            _ => None,
        }
    }

    /// Whether it is UDP to or from this port.
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
