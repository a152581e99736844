//! Signalling connections: reliable, in order, carried by one interface, and dead a while after it.

use std::collections::VecDeque;

use segue_clock::{Span, Time};
use segue_tunnel::{AnchorInput, ConnId, HostInput};
use segue_wire::signal::{FromAnchor, FromHost, decode, encode};

use super::{ANCHOR, Event, Link, Net, ms};

/// A connection whose link is dead for this long breaks at both ends.
const IDLE_TIMEOUT: Span = Span::from_secs(3);

pub(super) struct Conn {
    host: usize,
    interface: String,
    /// The interface as it was when the connection was bound to it.
    ifindex: u32,
    dead_since: Option<Time>,
    to_anchor: VecDeque<FromHost>,
    to_host: VecDeque<Option<FromAnchor>>,
    /// The anchor has forgotten it.
    pub orphaned: bool,
    /// The anchor has closed it.
    pub closed: bool,
}

impl Conn {
    fn goes_over(&self, link: &Link) -> bool {
        (&link.name, link.ifindex) == (&self.interface, self.ifindex) && link.works()
    }
}

impl Net {
    pub(super) fn connect(&mut self, host: usize, interfaces: Vec<String>) {
        self.hosts[host].attempt += 1;
        let attempt = self.hosts[host].attempt;
        assert!(!interfaces.is_empty(), "a connection over nothing");
        // The anchor does not hear that the former one is given up.
        self.hosts[host].conn = None;
        for interface in interfaces {
            self.count(1, 0);
            let link = self.hosts[host].links.iter().find(|l| l.name == interface);
            let Some(link) = link.filter(|l| l.works()) else { continue };
            let rtt = link.up.delay + link.down.delay;
            self.schedule(self.now + rtt * 2, Event::Handshake { host, attempt, interface });
        }
    }

    pub(super) fn handshake_done(&mut self, host: usize, attempt: u64, interface: String) {
        let node = &self.hosts[host];
        if node.attempt != attempt || node.conn.is_some() {
            return;
        }
        if !self.enrolled.contains(&node.name) {
            self.tell_host(host, HostInput::SignalDown);
            return;
        }
        let name = node.name.clone();
        let id = self.open(host, &interface, &name);
        self.hosts[host].conn = Some(id);
        // The other attempts end.
        self.hosts[host].attempt += 1;
        let anchor = ANCHOR.parse().unwrap();
        self.tell_host(host, HostInput::SignalUp { interface, anchor });
    }

    /// A connection of `name` at the anchor, without the host's machine.
    pub(crate) fn open(&mut self, host: usize, interface: &str, name: &str) -> ConnId {
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let conn = Conn {
            host,
            interface: interface.into(),
            ifindex: self.link(host, interface).ifindex,
            dead_since: None,
            to_anchor: VecDeque::new(),
            to_host: VecDeque::new(),
            orphaned: false,
            closed: false,
        };
        self.conns.insert(id, conn);
        self.tell_anchor(AnchorInput::Connected { conn: id, host: name.into() });
        id
    }

    pub(super) fn move_signal(&mut self, host: usize, interface: String) {
        self.count(1, 0);
        let Some(id) = self.hosts[host].conn else { return };
        // An interface that the network does not know carries nothing.
        let link = self.hosts[host].links.iter().find(|link| link.name == interface);
        let ifindex = link.map_or(0, |link| link.ifindex);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.interface, conn.ifindex) = (interface, ifindex);
        }
        self.flush(id);
    }

    pub(super) fn message_from_host(&mut self, host: usize, message: FromHost) {
        let message = decode(&mut encode(&message).unwrap()).unwrap().unwrap();
        let Some(id) = self.hosts[host].conn else { return };
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.to_anchor.push_back(message);
        }
        self.flush(id);
    }

    pub(super) fn message_from_anchor(&mut self, id: ConnId, message: FromAnchor) {
        let message: FromAnchor = decode(&mut encode(&message).unwrap()).unwrap().unwrap();
        self.said.push((id, message.clone()));
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.to_host.push_back(Some(message));
        }
        self.flush(id);
    }

    pub(super) fn close(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.closed = true;
            conn.to_host.push_back(None);
        }
        self.flush(id);
    }

    /// Sends what waits, if the link works.
    fn flush(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let links = &self.hosts[conn.host].links;
        let Some(link) = links.iter().find(|l| conn.goes_over(l)) else {
            return;
        };
        let (up_at, down_at) = (self.now + link.up.delay, self.now + link.down.delay);
        let host = conn.host;
        let up = std::mem::take(&mut conn.to_anchor);
        let down = std::mem::take(&mut conn.to_host);
        for message in up {
            self.schedule(up_at, Event::ToAnchor(id, message));
        }
        for message in down {
            self.schedule(down_at, Event::ToHost(host, id, message));
        }
    }

    pub(super) fn message_at_host(&mut self, host: usize, id: ConnId, message: Option<FromAnchor>) {
        self.count(1, 0);
        match message {
            Some(message) if self.hosts[host].conn == Some(id) => {
                self.tell_host(host, HostInput::Signal(message));
            }
            Some(_) => {}
            None => self.end_at_host(id),
        }
    }

    fn end_at_host(&mut self, id: ConnId) {
        let Some(conn) = self.conns.remove(&id) else { return };
        if self.hosts[conn.host].conn == Some(id) {
            self.hosts[conn.host].conn = None;
            self.tell_host(conn.host, HostInput::SignalDown);
        }
    }

    /// Ends the signalling connection of a host at both ends.
    pub(crate) fn break_signal(&mut self, host: usize) {
        let Some(id) = self.hosts[host].conn else { return };
        let orphaned = self.conns.get(&id).is_none_or(|conn| conn.orphaned || conn.closed);
        self.end_at_host(id);
        if !orphaned {
            self.tell_anchor(AnchorInput::Disconnected { conn: id });
        }
    }

    pub(super) fn check_conns(&mut self) {
        self.schedule(self.now + ms(100), Event::CheckConns);
        let ids: Vec<ConnId> = self.conns.keys().copied().collect();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            let links = &self.hosts[conn.host].links;
            let works = links.iter().any(|l| conn.goes_over(l));
            if works && !conn.orphaned {
                conn.dead_since = None;
                self.flush(id);
                continue;
            }
            let since = *conn.dead_since.get_or_insert(self.now);
            if self.now.since(since) >= IDLE_TIMEOUT {
                let silent = conn.orphaned || conn.closed;
                self.end_at_host(id);
                if !silent {
                    self.tell_anchor(AnchorInput::Disconnected { conn: id });
                }
            }
        }
    }
}
