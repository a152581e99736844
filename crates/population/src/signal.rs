//! Signalling of a population: reliable, ordered messages with the delay of the path that carries the connection. A
//! connection is established after two round trips and never breaks by itself. Messages sent during an outage of the
//! path arrive a round trip after its end, unless the host moves the connection.

use alloc::string::String;

use segue_clock::{Span, Time};
use segue_tunnel::{AnchorInput, ConnId, HostInput};
use segue_wire::signal::{FromAnchor, FromHost};

use super::places::{ShardEvent, SignalInFlight};
use super::shard::{Shard, host_name};

impl Shard {
    fn place_named(&self, name: &str) -> Option<usize> {
        self.spec.paths.iter().position(|class| self.spec.classes[*class].name == name)
    }

    /// One-way delay of a path, and the end of its outage if it is in one.
    fn carriage(&mut self, host: u32, place: usize) -> (Span, Option<Time>) {
        let path = self.path(host, place);
        self.pass_outages(path);
        let outage = self.paths[path as usize].outage;
        let delay = self.spec.classes[self.class_of(path)].delay;
        (delay, outage.covers(self.now).then_some(outage.end))
    }

    pub(super) fn connect(&mut self, host: u32, interfaces: &[String]) {
        let connection = &mut self.hosts[host as usize].connection;
        connection.attempt += 1;
        connection.stands = false;
        let attempt = connection.attempt;
        for interface in interfaces {
            let Some(place) = self.place_named(interface) else { continue };
            let (delay, silent) = self.carriage(host, place);
            if silent.is_none() {
                let place = place as u8;
                let signal = self.signals.put(SignalInFlight::Handshake { host, place, attempt });
                self.queue.schedule(self.now + delay * 4, ShardEvent::Signal(signal));
            }
        }
    }

    pub(super) fn move_signal(&mut self, host: u32, interface: &str) {
        if let Some(place) = self.place_named(interface) {
            self.hosts[host as usize].connection.carrier = place as u8;
        }
        self.count_signal(host);
    }

    pub(super) fn signal_up(&mut self, host: u32, message: FromHost) {
        if self.hosts[host as usize].connection.stands {
            self.send(host, 0, SignalInFlight::ToAnchor(host, message));
        }
    }

    pub(super) fn signal_down(&mut self, host: u32, message: Option<FromAnchor>) {
        self.send(host, 1, SignalInFlight::ToHost(host, message));
    }

    fn send(&mut self, host: u32, direction: usize, signal: SignalInFlight) {
        let carrier = self.hosts[host as usize].connection.carrier;
        let (delay, silent) = self.carriage(host, usize::from(carrier));
        let sent = silent.map_or(self.now, |end| end + delay * 2);
        let last = &mut self.hosts[host as usize].connection.last[direction];
        let at = (sent + delay).max(*last);
        *last = at;
        let signal = self.signals.put(signal);
        self.queue.schedule(at, ShardEvent::Signal(signal));
    }

    pub(super) fn on_signal(&mut self, signal: u32) {
        match self.signals.take(signal) {
            SignalInFlight::Handshake { host, place, attempt } => {
                self.on_handshake(host, place, attempt)
            }
            SignalInFlight::ToAnchor(host, message) => {
                self.count_signal(host);
                let conn = ConnId(u64::from(host));
                self.tell_anchor(self.anchor_of(host), AnchorInput::Signal { conn, message });
            }
            SignalInFlight::ToHost(host, Some(message)) => {
                self.stats.signals += 1;
                self.tell_host(host, HostInput::Signal(message));
            }
            SignalInFlight::ToHost(host, None) => {
                self.hosts[host as usize].connection.stands = false;
                self.tell_host(host, HostInput::SignalDown);
            }
        }
    }

    fn on_handshake(&mut self, host: u32, place: u8, attempt: u32) {
        let connection = &mut self.hosts[host as usize].connection;
        if connection.stands || connection.attempt != attempt {
            return;
        }
        (connection.stands, connection.carrier) = (true, place);
        self.count_signal(host);
        let conn = ConnId(u64::from(host));
        let name = host_name(host);
        self.tell_anchor(self.anchor_of(host), AnchorInput::Connected { conn, host: name });
        let class = self.spec.paths[usize::from(place)];
        let interface = self.spec.classes[class].name.clone();
        let anchor = self.anchor_address(host);
        self.tell_host(host, HostInput::SignalUp { interface, anchor });
    }

    /// Counts a message that arrives at the host's anchor.
    fn count_signal(&mut self, host: u32) {
        self.stats.signals += 1;
        let anchor = self.anchor_of(host);
        self.anchors[anchor].count(self.now, self.from, (0, 1));
    }
}
