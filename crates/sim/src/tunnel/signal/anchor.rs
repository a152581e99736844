//! The anchor's side of signalling: any number of connections. Corresponds to QUIC in
//! `crates/daemon/src/anchor/signal.rs`, without the limits on concurrent handshakes and on the message rate.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::Time;
use segue_tunnel::ConnId;
use segue_wire::signal::{FromAnchor, FromHost, decode, encode};

use super::{Conn, Datagram, Frame, Signalling, Transition};

/// Maximum number of connections per host; one more closes its oldest.
const CONNECTIONS: usize = 4;

/// Requests and reports of an anchor's signalling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorSignalOutput {
    /// Send from a local address to a host.
    Transmit {
        /// Local address.
        from: SocketAddr,
        /// Host address.
        to: SocketAddr,
        /// The datagram.
        datagram: Datagram,
    },
    /// A host has connected.
    Connected {
        /// The connection.
        conn: ConnId,
        /// The host's name.
        host: String,
    },
    /// A message was received.
    Message {
        /// The connection.
        conn: ConnId,
        /// The message.
        message: FromHost,
    },
    /// A connection was closed.
    Closed {
        /// The connection.
        conn: ConnId,
    },
}

struct Served {
    conn: Conn,
    number: ConnId,
    name: String,
    /// The machine has been notified.
    told: bool,
    peer: SocketAddr,
    local: SocketAddr,
    /// Its entry in the list of deadlines.
    due: Option<Time>,
}

/// An anchor's signalling, driven through [`Signalling`].
#[derive(Default)]
pub struct AnchorSignal {
    conns: BTreeMap<u64, Served>,
    by_number: BTreeMap<ConnId, u64>,
    deadlines: BTreeSet<(Time, u64)>,
    next: u64,
    out: VecDeque<AnchorSignalOutput>,
}

impl AnchorSignal {
    /// An anchor without connections.
    #[must_use]
    pub fn new() -> AnchorSignal {
        AnchorSignal::default()
    }

    /// An open connection.
    #[must_use]
    pub fn conn(&self, number: ConnId) -> Option<&Conn> {
        self.by_number.get(&number).and_then(|id| self.conns.get(id)).map(|served| &served.conn)
    }

    /// Number of connections of this host.
    #[must_use]
    pub fn count_of(&self, name: &str) -> usize {
        self.conns.values().filter(|served| served.told && served.name == name).count()
    }

    /// Number of all connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Returns true if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    fn admit(&mut self, now: Time, id: u64, name: String, ends: (SocketAddr, SocketAddr)) {
        let (peer, local) = ends;
        let number = ConnId(self.next);
        self.next += 1;
        self.by_number.insert(number, id);
        let conn = Conn::server(now, id);
        self.conns.insert(id, Served { conn, number, name, told: false, peer, local, due: None });
    }

    fn follow(&mut self, id: u64, transition: Option<Transition>) {
        let Some(served) = self.conns.get_mut(&id) else { return };
        if transition == Some(Transition::Opened) {
            served.told = true;
            let (conn, host) = (served.number, served.name.clone());
            self.out.push_back(AnchorSignalOutput::Connected { conn, host });
        }
        while served.told {
            match decode(served.conn.incoming()) {
                Ok(Some(message)) => {
                    let conn = served.number;
                    self.out.push_back(AnchorSignalOutput::Message { conn, message });
                }
                Ok(None) => break,
                Err(_) => {
                    served.conn.close();
                    break;
                }
            }
        }
    }

    /// Closes the oldest connections of the host of `newest` if it has too many.
    pub fn limit(&mut self, now: Time, newest: ConnId) {
        let Some(name) = self.by_number.get(&newest).and_then(|id| self.conns.get(id)) else {
            return;
        };
        let own = self.conns.values().filter(|s| s.told && s.name == name.name);
        let mut own: Vec<ConnId> = own.map(|served| served.number).collect();
        own.sort_unstable();
        let surplus = own.len().saturating_sub(CONNECTIONS);
        for number in &own[..surplus] {
            self.close(now, *number);
        }
    }

    /// Sends a message.
    pub fn send(&mut self, now: Time, number: ConnId, message: &FromAnchor) {
        let Some(id) = self.by_number.get(&number).copied() else { return };
        if let (Some(served), Ok(bytes)) = (self.conns.get_mut(&id), encode(message)) {
            served.conn.write(&bytes);
        }
        self.settle(now, id);
    }

    /// Closes a connection after everything has been sent.
    pub fn finish(&mut self, now: Time, number: ConnId) {
        let Some(id) = self.by_number.get(&number).copied() else { return };
        if let Some(served) = self.conns.get_mut(&id) {
            served.conn.finish(now);
        }
        self.settle(now, id);
    }

    /// Closes a connection at once.
    pub fn close(&mut self, now: Time, number: ConnId) {
        let Some(id) = self.by_number.get(&number).copied() else { return };
        if let Some(served) = self.conns.get_mut(&id) {
            served.conn.close();
        }
        self.settle(now, id);
    }

    /// Sends the pending datagrams of a connection, and removes it if it has ended.
    fn settle(&mut self, now: Time, id: u64) {
        let Some(served) = self.conns.get_mut(&id) else { return };
        while let Some(datagram) = served.conn.poll(now) {
            let (from, to) = (served.local, served.peer);
            self.out.push_back(AnchorSignalOutput::Transmit { from, to, datagram });
        }
        let due = served.conn.deadline();
        if served.due != due {
            if let Some(old) = served.due {
                self.deadlines.remove(&(old, id));
            }
            served.due = due;
            self.deadlines.extend(due.map(|at| (at, id)));
        }
        if served.conn.has_ended()
            && let Some(ended) = self.conns.remove(&id)
        {
            self.by_number.remove(&ended.number);
            if ended.told {
                self.out.push_back(AnchorSignalOutput::Closed { conn: ended.number });
            }
        }
    }
}

impl Signalling for AnchorSignal {
    type Output = AnchorSignalOutput;

    fn receive(&mut self, now: Time, from: SocketAddr, to: SocketAddr, datagram: Datagram) {
        let id = datagram.conn;
        if !self.conns.contains_key(&id) {
            match &datagram.frame {
                Frame::Hello { name } => self.admit(now, id, name.clone(), (from, to)),
                // A reset must not be answered, or the answers would continue forever.
                Frame::Reset | Frame::Close => return,
                _ => {
                    let reset = Datagram { number: 0, ack: None, frame: Frame::Reset, ..datagram };
                    let (from, to) = (to, from);
                    self.out.push_back(AnchorSignalOutput::Transmit { from, to, datagram: reset });
                    return;
                }
            }
        }
        let Some(served) = self.conns.get_mut(&id) else { return };
        // RFC 9000, section 9.3: the newest packet determines the host's address.
        if served.conn.largest().is_none_or(|largest| datagram.number > largest) {
            (served.peer, served.local) = (from, to);
        }
        let transition = served.conn.receive(now, datagram);
        self.follow(id, transition);
        self.settle(now, id);
    }

    fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn tick(&mut self, now: Time) {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_first();
            let Some(served) = self.conns.get_mut(&id) else { continue };
            served.due = None;
            let transition = served.conn.tick(now);
            self.follow(id, transition);
            self.settle(now, id);
        }
    }

    fn poll(&mut self) -> Option<AnchorSignalOutput> {
        self.out.pop_front()
    }
}
