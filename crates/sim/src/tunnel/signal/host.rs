//! The host's side of signalling: attempts over all interfaces at once, of which one wins; the connection moves
//! when its interface dies. Corresponds to QUIC in `crates/daemon/src/host/signal.rs`.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Rng, Span, Time};
use segue_wire::signal::{FromAnchor, FromHost, decode, encode};

use super::{Conn, Datagram, Signalling, Transition};

/// Head start of each anchor address over the next.
const STAGGER: Span = Span::from_millis(150);

/// Requests and reports of a host's signalling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSignalOutput {
    /// Send over an interface to an anchor address.
    Transmit {
        /// The interface.
        interface: String,
        /// The anchor.
        to: SocketAddr,
        /// The datagram.
        datagram: Datagram,
    },
    /// The connection is up.
    Up {
        /// The interface that carried the handshake.
        interface: String,
        /// The address that answered.
        anchor: SocketAddr,
    },
    /// A message was received.
    Message(FromAnchor),
    /// The connection failed, or all attempts did.
    Down,
}

/// A connection attempt, or the established connection.
struct Attempt {
    conn: Conn,
    interface: String,
    to: SocketAddr,
}

/// A host's signalling, driven through [`Signalling`].
pub struct HostSignal {
    name: String,
    anchors: Vec<SocketAddr>,
    ids: Rng,
    /// Attempts that start later.
    waiting: VecDeque<(Time, String, SocketAddr)>,
    attempts: Vec<Attempt>,
    current: Option<Attempt>,
    out: VecDeque<HostSignalOutput>,
}

impl HostSignal {
    /// A host without a connection. `anchors` are the signalling addresses of the anchor, best first. `seed`
    /// determines the connection IDs; it must differ between hosts and between starts.
    #[must_use]
    pub fn new(name: String, anchors: Vec<SocketAddr>, seed: u64) -> HostSignal {
        HostSignal {
            name,
            anchors,
            ids: Rng::new(seed),
            waiting: VecDeque::new(),
            attempts: Vec::new(),
            current: None,
            out: VecDeque::new(),
        }
    }

    /// Tries to connect over all of these interfaces at once. If the anchor has several addresses, attempts to
    /// each start a little after those to the previous one.
    pub fn connect(&mut self, now: Time, interfaces: &[String]) {
        self.abandon(now);
        let delays = (0..).map(|n| now + STAGGER * n);
        for (anchor, at) in self.anchors.iter().zip(delays) {
            self.waiting.extend(interfaces.iter().map(|name| (at, name.clone(), *anchor)));
        }
        self.begin(now);
    }

    fn begin(&mut self, now: Time) {
        while self.waiting.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, interface, to)) = self.waiting.pop_front() else { return };
            let conn = Conn::client(now, self.ids.next_u64(), self.name.clone());
            self.attempts.push(Attempt { conn, interface, to });
            self.flush(now);
        }
    }

    /// Moves the connection to another interface.
    pub fn move_to(&mut self, now: Time, interface: &str) {
        let Some(current) = &mut self.current else { return };
        interface.clone_into(&mut current.interface);
        current.conn.ping();
        self.flush(now);
    }

    /// Sends a message on the connection.
    pub fn send(&mut self, now: Time, message: &FromHost) {
        if let (Some(current), Ok(bytes)) = (&mut self.current, encode(message)) {
            current.conn.write(&bytes);
        }
        self.flush(now);
    }

    /// Closes the connection after everything has been sent.
    pub fn finish(&mut self, now: Time) {
        if let Some(current) = &mut self.current {
            current.conn.finish(now);
        }
        self.flush(now);
    }

    /// Closes the connection at once.
    pub fn close(&mut self, now: Time) {
        if let Some(current) = &mut self.current {
            current.conn.close();
        }
        self.flush(now);
    }

    /// The connection, and the interface that carries it.
    #[must_use]
    pub fn current(&self) -> Option<(&Conn, &str)> {
        self.current.as_ref().map(|current| (&current.conn, current.interface.as_str()))
    }

    fn win(&mut self, now: Time, place: usize) {
        let winner = self.attempts.swap_remove(place);
        self.abandon(now);
        let (interface, anchor) = (winner.interface.clone(), winner.to);
        self.current = Some(winner);
        self.out.push_back(HostSignalOutput::Up { interface, anchor });
    }

    fn lose(&mut self, place: usize) {
        self.attempts.remove(place);
        if self.attempts.is_empty() && self.waiting.is_empty() {
            self.out.push_back(HostSignalOutput::Down);
        }
    }

    /// Reads messages from the stream.
    fn read(&mut self) {
        let Some(current) = &mut self.current else { return };
        loop {
            match decode(current.conn.incoming()) {
                Ok(Some(message)) => self.out.push_back(HostSignalOutput::Message(message)),
                Ok(None) => return,
                Err(_) => return current.conn.close(),
            }
        }
    }

    /// Closes the connection and all attempts without reporting it.
    fn abandon(&mut self, now: Time) {
        self.waiting.clear();
        self.attempts.extend(self.current.take());
        for attempt in &mut self.attempts {
            attempt.conn.close();
        }
        self.flush(now);
    }

    /// Sends pending datagrams of all connections, and removes those that have ended.
    fn flush(&mut self, now: Time) {
        for attempt in self.attempts.iter_mut().chain(&mut self.current) {
            while let Some(datagram) = attempt.conn.poll(now) {
                let (interface, to) = (attempt.interface.clone(), attempt.to);
                self.out.push_back(HostSignalOutput::Transmit { interface, to, datagram });
            }
        }
        self.attempts.retain(|attempt| !attempt.conn.has_ended());
        if self.current.take_if(|current| current.conn.has_ended()).is_some() {
            self.out.push_back(HostSignalOutput::Down);
        }
    }
}

impl Signalling for HostSignal {
    type Output = HostSignalOutput;

    fn receive(&mut self, now: Time, _from: SocketAddr, _to: SocketAddr, datagram: Datagram) {
        let id = datagram.conn;
        if let Some(current) = self.current.as_mut().filter(|current| current.conn.id() == id) {
            current.conn.receive(now, datagram);
            self.read();
        } else if let Some(place) = self.attempts.iter().position(|a| a.conn.id() == id) {
            match self.attempts[place].conn.receive(now, datagram) {
                Some(Transition::Opened) => self.win(now, place),
                Some(Transition::Closed) => self.lose(place),
                None => {}
            }
        }
        self.flush(now);
    }

    fn deadline(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|(at, ..)| *at);
        let conns = self.attempts.iter().chain(&self.current);
        conns.filter_map(|attempt| attempt.conn.deadline()).chain(waiting).min()
    }

    fn tick(&mut self, now: Time) {
        self.begin(now);
        if let Some(current) = &mut self.current {
            current.conn.tick(now);
        }
        for place in (0..self.attempts.len()).rev() {
            if self.attempts[place].conn.tick(now) == Some(Transition::Closed) {
                self.lose(place);
            }
        }
        self.flush(now);
    }

    fn poll(&mut self) -> Option<HostSignalOutput> {
        self.out.pop_front()
    }
}
