//! The signalling connection over packets that can be lost. In the daemons it is QUIC (quinn); this stands in
//! for it: the real messages, encoded, on one stream in each direction, reliable and in order, with QUIC's
//! timers (RFC 9000, RFC 9002) and the daemons' settings. Nothing is encrypted; a certificate is a name.
//!
//! ```text
//!   HostSignal ── Conn ── Datagram ──► packets ──► Conn ── AnchorSignal
//! ```
//!
//! | | here | QUIC |
//! | --- | --- | --- |
//! | handshake | one datagram each way, of 1200 bytes | one flight each way, the anchor's of about three datagrams |
//! | acknowledgement | of the newest packet and of the stream so far, at once | of ranges, within 25 ms |
//! | loss | a newer packet is acknowledged 9/8 RTT after, or probe time-out | also three newer packets |
//! | congestion control, flow control, path validation | none | as in RFC 9000 and RFC 9002 |

mod anchor;
mod codec;
mod conn;
mod host;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Span, Time};

pub use anchor::{AnchorSignal, AnchorSignalOutput};
pub use conn::{Conn, Transition};
pub use host::{HostSignal, HostSignalOutput};
pub use segue_wire::SIGNAL_PORT;

/// A connection without any packet for this long is dead (`crates/daemon`, `signalling`).
pub const IDLE: Span = Span::from_secs(10);
/// How often an idle connection sends a sign of life (`crates/daemon`, `signalling`).
pub const KEEP_ALIVE: Span = Span::from_secs(1);
/// Most bytes of the stream in a datagram: what fits into 1200 bytes of QUIC.
const CHUNK: usize = 1_150;
/// UDP payload of a datagram of a handshake (RFC 9000, section 14.1).
const HANDSHAKE_BYTES: usize = 1_200;
/// Short header with connection number and packet number, and the authenticator, in bytes.
const PACKET_BYTES: usize = 1 + 8 + 2 + 16;
/// A frame's own fields, and those of an acknowledgement, in bytes.
const FRAME_BYTES: usize = 6;

/// The signalling of either side. After each call, call [`poll`](Signalling::poll) until it returns nothing.
pub trait Signalling: 'static {
    /// What it orders or reports.
    type Output;

    /// Takes a datagram that came from `from` to the own address `to`.
    fn receive(&mut self, now: Time, from: SocketAddr, to: SocketAddr, datagram: Datagram);
    /// Something may be due.
    fn tick(&mut self, now: Time);
    /// When to call [`tick`](Signalling::tick).
    fn deadline(&self) -> Option<Time>;
    /// The next thing to do.
    fn poll(&mut self) -> Option<Self::Output>;
}

/// One UDP datagram of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The connection, named by its host.
    pub conn: u64,
    /// Number of the packet, from 0 in each direction; none is reused.
    pub number: u64,
    /// What the sender has received.
    pub ack: Option<Ack>,
    /// What it carries.
    pub frame: Frame,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The newest packet.
    pub largest: u64,
    /// Bytes of the stream without a gap.
    pub stream: u64,
}

/// What a datagram carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The host's first: who it is.
    Hello {
        /// The name in its certificate.
        name: String,
    },
    /// The anchor's first.
    Accept,
    /// A part of the stream.
    Stream {
        /// Where it begins.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A sign of life that requires an answer.
    Ping,
    /// Only the acknowledgement.
    Ack,
    /// The connection ends.
    Close,
    /// There is no such connection (stateless reset, RFC 9000, section 10.3).
    Reset,
}

impl Frame {
    /// Whether the other end must acknowledge it.
    fn elicits(&self) -> bool {
        matches!(self, Frame::Hello { .. } | Frame::Stream { .. } | Frame::Ping)
    }
}
