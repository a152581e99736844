//! Signalling connections: reliable, in order, carried by one interface, and dead a while after it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_tunnel::{AnchorInput, ConnId, HostInput};
use segue_wire::signal::{FromAnchor, FromHost};

use super::access::Access;
use super::{ANCHOR, Event, Tunnels};
use crate::Violation;

/// A connection whose interface carries nothing for this long breaks at both ends.
const IDLE_TIMEOUT: Span = Span::from_secs(3);
/// How often a message may have to be sent again.
const MAX_RESENT: usize = 3;
/// How often connections are looked at.
pub(super) const LOOK: Span = Span::from_millis(100);

pub(super) struct Conn {
    host: usize,
    /// Interface and its index when the connection was bound to it.
    bound_to: (String, u32),
    dead_since: Option<Time>,
    to_anchor: VecDeque<FromHost>,
    to_host: VecDeque<Option<FromAnchor>>,
    /// Messages arrive in order, whatever becomes of delays.
    last_arrival: [Time; 2],
    /// An end has forgotten it without a word.
    host_forgot: bool,
    anchor_forgot: bool,
    closed: bool,
}

impl Conn {
    fn goes_over(&self, access: &Access) -> bool {
        (&access.name, access.ifindex) == (&self.bound_to.0, self.bound_to.1) && access.works()
    }
}

/// All connections.
#[derive(Default)]
pub(super) struct Conns {
    conns: BTreeMap<ConnId, Conn>,
    last: u64,
}

impl Conns {
    pub fn host_of(&self, id: ConnId) -> Option<usize> {
        self.conns.get(&id).map(|conn| conn.host)
    }

    /// Its interface carries messages.
    pub fn is_carried(&self, id: ConnId, accesses: &[Access]) -> bool {
        self.conns.get(&id).is_some_and(|conn| accesses.iter().any(|a| conn.goes_over(a)))
    }

    /// The anchor restarts and knows none of them.
    pub fn anchor_forgets(&mut self) {
        for conn in self.conns.values_mut() {
            conn.anchor_forgot = true;
        }
    }

    /// A host restarts and knows none of its own.
    pub fn host_forgets(&mut self, host: usize) {
        for conn in self.conns.values_mut().filter(|conn| conn.host == host) {
            conn.host_forgot = true;
        }
    }
}

impl Tunnels {
    pub(super) fn connect(&mut self, now: Time, host: usize, interfaces: &[String]) {
        let node = &mut self.hosts[host];
        node.attempt += 1;
        // What the former connection has under way may still arrive at the anchor.
        if let Some(former) = node.conn.take().and_then(|id| self.conns.conns.get_mut(&id)) {
            former.host_forgot = true;
        }
        let attempt = node.attempt;
        let mut handshakes = Vec::new();
        for access in node.accesses.iter().filter(|a| a.works() && interfaces.contains(&a.name)) {
            // Two round trips, as QUIC with a retry.
            handshakes.push((now + access.rtt_max() * 2, access.name.clone()));
        }
        for (at, interface) in handshakes {
            self.queue.schedule(at, Event::Handshake { host, attempt, interface });
        }
    }

    pub(super) fn handshake_done(
        &mut self,
        now: Time,
        host: usize,
        attempt: u64,
        interface: String,
    ) -> Result<(), Violation> {
        let node = &self.hosts[host];
        if node.attempt != attempt || node.conn.is_some() {
            return Ok(());
        }
        if !node.enrolled {
            return self.tell_host(now, host, HostInput::SignalDown);
        }
        let id = self.open(now, host, &interface)?;
        let node = &mut self.hosts[host];
        node.conn = Some(id);
        // The other attempts end.
        node.attempt += 1;
        self.tell_host(now, host, HostInput::SignalUp { interface, anchor: ANCHOR })
    }

    /// A connection in the name of a host, at the anchor.
    pub(super) fn open(
        &mut self,
        now: Time,
        host: usize,
        interface: &str,
    ) -> Result<ConnId, Violation> {
        self.conns.last += 1;
        let id = ConnId(self.conns.last);
        let node = &self.hosts[host];
        let access = node.accesses.iter().find(|access| access.name == interface);
        let conn = Conn {
            host,
            bound_to: (interface.into(), access.map_or(0, |access| access.ifindex)),
            dead_since: None,
            to_anchor: VecDeque::new(),
            to_host: VecDeque::new(),
            last_arrival: [now; 2],
            host_forgot: false,
            anchor_forgot: false,
            closed: false,
        };
        self.conns.conns.insert(id, conn);
        let name = node.name.clone();
        self.tell_anchor(now, AnchorInput::Connected { conn: id, host: name })?;
        Ok(id)
    }

    pub(super) fn move_signal(&mut self, now: Time, host: usize, interface: String) {
        let node = &self.hosts[host];
        let access = node.accesses.iter().find(|access| access.name == interface);
        let ifindex = access.map_or(0, |access| access.ifindex);
        if let Some(conn) = node.conn.and_then(|id| self.conns.conns.get_mut(&id)) {
            conn.bound_to = (interface, ifindex);
        }
        if let Some(id) = self.hosts[host].conn {
            self.flush(now, id);
        }
    }

    pub(super) fn message_from_host(&mut self, now: Time, host: usize, message: FromHost) {
        let Some(id) = self.hosts[host].conn else { return };
        self.send_to_anchor(now, id, message);
    }

    pub(super) fn send_to_anchor(&mut self, now: Time, id: ConnId, message: FromHost) {
        if let Some(conn) = self.conns.conns.get_mut(&id) {
            conn.to_anchor.push_back(message);
        }
        self.flush(now, id);
    }

    pub(super) fn message_from_anchor(&mut self, now: Time, id: ConnId, message: FromAnchor) {
        if let Some(conn) = self.conns.conns.get_mut(&id) {
            conn.to_host.push_back(Some(message));
        }
        self.flush(now, id);
    }

    /// The anchor closes a connection after what was sent.
    pub(super) fn close(&mut self, now: Time, id: ConnId) {
        if let Some(conn) = self.conns.conns.get_mut(&id) {
            conn.closed = true;
            conn.to_host.push_back(None);
        }
        self.queue.schedule(now, Event::Closed(id));
        self.flush(now, id);
    }

    /// Sends what waits, if the interface carries it. What a link loses is sent again after a round trip.
    fn flush(&mut self, now: Time, id: ConnId) {
        let Some(conn) = self.conns.conns.get_mut(&id) else { return };
        let accesses = &self.hosts[conn.host].accesses;
        let Some(access) = accesses.iter().find(|access| conn.goes_over(access)) else { return };
        let rng = &mut self.rng;
        let mut arrival = |loss: f64, delay: Span, last: &mut Time| {
            let mut at = now + delay;
            for _ in 0..MAX_RESENT {
                if !rng.chance(loss) {
                    break;
                }
                at += access.rtt_max();
            }
            *last = at.max(*last);
            *last
        };
        let (up, down) = (&access.up, &access.down);
        for message in core::mem::take(&mut conn.to_anchor) {
            let at = arrival(up.loss(), up.delays().1, &mut conn.last_arrival[0]);
            self.queue.schedule(at, Event::ToAnchor(id, message));
        }
        for message in core::mem::take(&mut conn.to_host) {
            let at = arrival(down.loss(), down.delays().1, &mut conn.last_arrival[1]);
            self.queue.schedule(at, Event::ToHost(id, message));
        }
    }

    pub(super) fn message_at_anchor(
        &mut self,
        now: Time,
        id: ConnId,
        message: FromHost,
    ) -> Result<(), Violation> {
        let conn = self.conns.conns.get(&id);
        if conn.is_none_or(|conn| conn.anchor_forgot || conn.closed) {
            return Ok(());
        }
        self.tell_anchor(now, AnchorInput::Signal { conn: id, message })
    }

    pub(super) fn message_at_host(
        &mut self,
        now: Time,
        id: ConnId,
        message: Option<FromAnchor>,
    ) -> Result<(), Violation> {
        let Some(host) = self.conns.host_of(id) else { return Ok(()) };
        match message {
            Some(message) if self.hosts[host].conn == Some(id) => {
                self.tell_host(now, host, HostInput::Signal(message))
            }
            Some(_) => Ok(()),
            None => self.end_at_host(now, id),
        }
    }

    fn end_at_host(&mut self, now: Time, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.conns.remove(&id) else { return Ok(()) };
        if self.hosts[conn.host].conn != Some(id) {
            return Ok(());
        }
        self.hosts[conn.host].conn = None;
        self.tell_host(now, conn.host, HostInput::SignalDown)
    }

    /// A connection ends at both ends.
    pub(super) fn end_conn(&mut self, now: Time, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.conns.get(&id) else { return Ok(()) };
        let anchor_knows = !conn.anchor_forgot && !conn.closed;
        self.end_at_host(now, id)?;
        if anchor_knows {
            self.tell_anchor(now, AnchorInput::Disconnected { conn: id })?;
        }
        Ok(())
    }

    pub(super) fn look_at_conns(&mut self, now: Time) -> Result<(), Violation> {
        self.queue.schedule(now + LOOK, Event::LookAtConns);
        let ids: Vec<ConnId> = self.conns.conns.keys().copied().collect();
        for id in ids {
            let Some(conn) = self.conns.conns.get_mut(&id) else { continue };
            let accesses = &self.hosts[conn.host].accesses;
            let works = accesses.iter().any(|access| conn.goes_over(access));
            if works && !conn.anchor_forgot && !conn.host_forgot {
                conn.dead_since = None;
                self.flush(now, id);
                continue;
            }
            let since = *conn.dead_since.get_or_insert(now);
            if now.since(since) >= IDLE_TIMEOUT {
                self.end_conn(now, id)?;
            }
        }
        Ok(())
    }
}
