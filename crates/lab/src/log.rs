//! What an emulator records about each packet.

use std::io::{self, Write};

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

/// Writes records, but for their payload, as CSV with a header line: `direction,arrival_ns,due_ns,
/// departure_ns,dropped,bytes,protocol,source_port,destination_port`. What a packet has not stays empty.
///
/// # Errors
/// Those of `out`.
pub fn write_csv(records: &[Record], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "direction,arrival_ns,due_ns,departure_ns,dropped,bytes,protocol,source_port,destination_port"
    )?;
    for r in records {
        let (due, departure, dropped) = match r.fate {
            Fate::Delivered { due, departure } => (due.0.to_string(), departure.0.to_string(), ""),
            Fate::Dropped(DropCause::Loss) => (String::new(), String::new(), "loss"),
            Fate::Dropped(DropCause::Queue) => (String::new(), String::new(), "queue"),
            Fate::Dropped(DropCause::Silent) => (String::new(), String::new(), "silent"),
            Fate::SendFailed => (String::new(), String::new(), "send_failed"),
        };
        let ports = r
            .ports
            .map_or(",,".to_owned(), |p| format!("{},{},{}", p.protocol, p.source, p.destination));
        let (direction, arrival, bytes) = (r.direction.name(), r.arrival.0, r.bytes);
        writeln!(out, "{direction},{arrival},{due},{departure},{dropped},{bytes},{ports}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_field_for_every_column() {
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
        assert_eq!(record.delay(), Some(Span(5)));
        assert!(record.is_udp(5005) && record.is_udp(9) && !record.is_udp(10) && !lost.is_udp(9));
        let mut out = Vec::new();
        write_csv(&[record, lost], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..], ["up,1,5,6,,60,17,5005,9", "up,1,,,loss,60,,,"]);
        assert!(lines.iter().all(|l| l.matches(',').count() == 8));
    }
}
