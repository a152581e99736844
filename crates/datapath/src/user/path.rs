//! One path: its parameters, its counters, and sending on it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_clock::Time;
use segue_wire::{DropReason, Header, PacketType};

use super::Drops;
use super::socket::{Endpoint, Socket};
use crate::{PathConfig, PathCounters};

/// Transmit stamps kept for responses that have not come yet.
const STAMPS: usize = 256;

/// A path as configured, with the state that outlives a change of configuration. Locks are taken in
/// the order `rx`, `endpoint` or `tx`, `endpoint`, and none while another thread's table is waited for.
pub struct Path {
    pub slot: u32,
    pub config: PathConfig,
    /// A host: the path's own. An anchor: one for each family.
    pub sockets: Vec<Arc<Socket>>,
    pub state: Arc<State>,
}

/// What changes with every packet.
#[derive(Default)]
pub struct State {
    pub tx: Mutex<Tx>,
    pub rx: Mutex<Rx>,
    pub endpoint: Mutex<Endpoint>,
}

/// Held while packets are sent, so that a probe counts exactly what left before it.
#[derive(Default)]
pub struct Tx {
    pub packets: u32,
    pub bytes: u64,
    /// The `heard` word of responses, once the daemon has said one.
    pub heard: Option<u16>,
}

/// The receiving side.
#[derive(Default)]
pub struct Rx {
    pub packets: u32,
    pub bytes: u64,
    /// Sequence number of the last valid request (anchor) or unsolicited response (host).
    pub last_seq: Option<u32>,
    /// When requests really left, by sequence number.
    pub stamps: VecDeque<(u32, Time)>,
}

impl Rx {
    /// Takes note of a sequence number that must be newer than the last: ahead of it by less than half
    /// of the numbers (RFC 1982, section 3.2).
    pub fn expect_newer(&mut self, seq: u32) -> Result<(), DropReason> {
        if self.last_seq.is_some_and(|last| seq.wrapping_sub(last) as i32 <= 0) {
            return Err(DropReason::Replay);
        }
        self.last_seq = Some(seq);
        Ok(())
    }

    /// Notes when a request left.
    pub fn stamped(&mut self, seq: u32, at: Time) {
        if self.stamps.len() >= STAMPS {
            self.stamps.pop_front();
        }
        self.stamps.push_back((seq, at));
    }

    /// When the request `seq` left, if the kernel has said so.
    pub fn sent_at(&self, seq: u32) -> Option<Time> {
        self.stamps.iter().rev().find(|(s, _)| *s == seq).map(|(_, at)| *at)
    }
}

/// Datagrams of one size (the last may be shorter) that leave together.
pub struct Burst<'a> {
    /// Header and body of each datagram.
    pub pieces: &'a [(&'a [u8], &'a [u8])],
    /// Bytes of each datagram but the last.
    pub size: usize,
}

impl Path {
    /// The header of data on this path.
    pub fn data_header(&self, flags: u8) -> Header {
        Header {
            packet_type: PacketType::Data,
            flags,
            k: 0,
            index: self.config.tx_index,
            cookie: self.config.tx_cookie,
        }
    }

    /// Where to send, and with which socket.
    pub fn route(&self) -> Option<(&Socket, Endpoint)> {
        let endpoint = *lock(&self.state.endpoint);
        let remote: SocketAddr = endpoint.remote?;
        let socket = self.sockets.iter().find(|socket| socket.same_family(remote))?;
        Some((socket, endpoint))
    }

    /// Sends data and counts what left; what did not is counted in `drops`.
    pub fn send_data(&self, burst: &Burst<'_>, drops: &Drops) {
        let count = burst.pieces.len() as u64;
        let Some((socket, endpoint)) = self.route() else {
            drops.add(DropReason::NoRemote, count);
            return;
        };
        let mut tx = lock(&self.state.tx);
        let mut left = burst.pieces;
        if left.len() > 1 && socket.gso() {
            let mut iov = vectors(left);
            match socket.send(&endpoint, &mut iov, u16::try_from(burst.size).ok(), false) {
                Ok(()) => {
                    tx.count(left);
                    left = &[];
                }
                Err(error) if gso_refused(&error) => {
                    // Refused for its size alone, or is there no segmentation here at all?
                    let alone = send_one(socket, &endpoint, left[0], &mut tx, drops);
                    left = &left[1..];
                    if alone {
                        socket.refuse_gso();
                    }
                }
                Err(error) => {
                    drops.add(reason(&error), count);
                    left = &[];
                }
            }
        }
        for piece in left {
            send_one(socket, &endpoint, *piece, &mut tx, drops);
        }
    }

    /// Counters as the trait reports them.
    pub fn counters(&self) -> PathCounters {
        let remote = lock(&self.state.endpoint).remote;
        let (tx_packets, tx_bytes) = {
            let tx = lock(&self.state.tx);
            (tx.packets, tx.bytes)
        };
        let rx = lock(&self.state.rx);
        PathCounters { tx_packets, rx_packets: rx.packets, tx_bytes, rx_bytes: rx.bytes, remote }
    }
}

impl Tx {
    fn count(&mut self, pieces: &[(&[u8], &[u8])]) {
        self.packets = self.packets.wrapping_add(pieces.len() as u32);
        let bytes: usize = pieces.iter().map(|(h, b)| h.len() + b.len() - Header::LEN).sum();
        self.bytes += bytes as u64;
    }
}

fn send_one(
    socket: &Socket,
    endpoint: &Endpoint,
    piece: (&[u8], &[u8]),
    tx: &mut Tx,
    drops: &Drops,
) -> bool {
    match socket.send(endpoint, &mut vectors(&[piece]), None, false) {
        Ok(()) => tx.count(&[piece]),
        Err(error) => {
            tracing::trace!(%error, "not sent");
            drops.add(reason(&error), 1);
            return false;
        }
    }
    true
}

fn vectors(pieces: &[(&[u8], &[u8])]) -> Vec<libc::iovec> {
    let vector =
        |b: &[u8]| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() };
    pieces.iter().flat_map(|(header, body)| [vector(header), vector(body)]).collect()
}

/// Errors with which kernels refuse to segment: a device without checksum offload (EIO), segments over
/// the MTU or an unknown control message (EINVAL).
fn gso_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
    )
}

/// Why the kernel did not send.
pub fn reason(error: &io::Error) -> DropReason {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => DropReason::QueueFull,
        _ => DropReason::Encapsulation,
    }
}

/// Takes a lock. A thread that panicked left plain numbers behind, which stay usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
