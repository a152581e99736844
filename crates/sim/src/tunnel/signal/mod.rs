//! The signalling connection over a lossy network. The daemons use QUIC (quinn); this stand-in carries the real
//! encoded messages on one reliable, ordered stream per direction, with QUIC's timers (RFC 9000, RFC 9002) and
//! the daemons' settings. It does not encrypt; a certificate is just a name.
//!
//! ```text
//!   HostSignal ── Conn ── Datagram ──► packets ──► Conn ── AnchorSignal
//! ```
//!
//! | | here | QUIC |
//! | --- | --- | --- |
//! | handshake | one datagram each way, of 1200 bytes | one flight each way, the anchor's of about three datagrams |
//! | acknowledgement | of the newest packet and of the stream so far, at once | of ranges, within 25 ms |
//! | loss | a newer packet is acknowledged 9/8 RTT after, or probe timeout | also three newer packets |
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

/// Idle timeout of a connection (`crates/daemon`, `signalling`).
pub const IDLE: Span = Span::from_secs(10);
/// Keep-alive interval of an idle connection (`crates/daemon`, `signalling`).
pub const KEEP_ALIVE: Span = Span::from_secs(1);
/// Maximum stream bytes per datagram: what fits into 1200 bytes of QUIC.
const CHUNK: usize = 1_150;
/// UDP payload of a handshake datagram, in bytes (RFC 9000, section 14.1).
const HANDSHAKE_BYTES: usize = 1_200;
/// Short header with connection ID and packet number, plus the authenticator, in bytes.
const PACKET_BYTES: usize = 1 + 8 + 2 + 16;
/// Header fields of a frame, or an acknowledgement, in bytes.
const FRAME_BYTES: usize = 6;

/// The signalling of either side. After each call, call [`poll`](Signalling::poll) until it returns `None`.
pub trait Signalling: 'static {
    /// Requests and reports.
    type Output;

    /// Handles a datagram from `from` to the local address `to`.
    fn receive(&mut self, now: Time, from: SocketAddr, to: SocketAddr, datagram: Datagram);
    /// Handles timers that have expired.
    fn tick(&mut self, now: Time);
    /// When to call [`tick`](Signalling::tick).
    fn deadline(&self) -> Option<Time>;
    /// Returns the next output.
    fn poll(&mut self) -> Option<Self::Output>;
}

/// One UDP datagram of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Connection ID, chosen by the host.
    pub conn: u64,
    /// Packet number, counted from 0 in each direction and never reused.
    pub number: u64,
    /// Acknowledgement of received packets.
    pub ack: Option<Ack>,
    /// The content.
    pub frame: Frame,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The newest packet received.
    pub largest: u64,
    /// Contiguous stream bytes received.
    pub stream: u64,
}

/// Content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First datagram of the host: identifies it.
    Hello {
        /// The name in its certificate.
        name: String,
    },
    /// First datagram of the anchor.
    Accept,
    /// A part of the stream.
    Stream {
        /// Offset in the stream.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A keep-alive that must be acknowledged.
    Ping,
    /// An acknowledgement only.
    Ack,
    /// Closes the connection.
    Close,
    /// Unknown connection (stateless reset, RFC 9000, section 10.3).
    Reset,
}

impl Frame {
    /// Returns true if the peer must acknowledge it.
    fn elicits(&self) -> bool {
        matches!(self, Frame::Hello { .. } | Frame::Stream { .. } | Frame::Ping)
    }
}
