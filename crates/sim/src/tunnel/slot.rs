//! One path of a packet path: cookies, counters and the peer's address.

use core::net::SocketAddr;

use alloc::boxed::Box;

use segue_clock::Time;
use segue_keepalive::{SILENCE, Traffic};
use segue_tunnel::{PathSetup, ProbeKind, Via};
use segue_wire::Probe;

use super::message::{Body, Message, Outer};
use super::meter::Meter;
use super::rides::Rides;

/// A path.
pub(super) struct Slot {
    pub(super) setup: PathSetup,
    pub(super) via: Option<Via>,
    pub(super) one_by_one: bool,
    pub(super) heard: u16,
    pub(super) tx: u32,
    pub(super) rx: u32,
    /// Data bytes, uplink and downlink (host).
    pub(super) bytes: [u64; 2],
    /// The validated source of the host, and the local address it sends to (anchor).
    pub(super) learned: Option<(SocketAddr, SocketAddr)>,
    /// The last source that is not validated, and the challenge it must echo.
    pub(super) asked: Option<(SocketAddr, u32)>,
    pub(super) last_seq: Option<u32>,
    /// Set if the packet path measures.
    pub(super) meter: Option<Box<Meter>>,
    /// When the last valid packet arrived.
    pub(super) heard_at: Option<Time>,
    /// Data traffic of a host's path, after the first data packet.
    pub(super) traffic: Option<Box<Traffic>>,
    /// Set if probes ride.
    pub(super) rides: Option<Box<Rides>>,
}

impl Slot {
    pub(super) fn new(setup: PathSetup, via: Option<Via>, measures: bool) -> Slot {
        Slot {
            setup,
            via,
            one_by_one: false,
            heard: 0,
            tx: 0,
            rx: 0,
            bytes: [0; 2],
            learned: None,
            asked: None,
            last_seq: None,
            meter: measures.then(Box::default),
            heard_at: None,
            traffic: None,
            rides: None,
        }
    }

    /// The age field of data packets.
    pub(super) fn age(&self, now: Time) -> u8 {
        self.heard_at.map_or(0, |at| segue_wire::age::encode(now.since(at).0))
    }

    /// Counts data that left (no age) or arrived. Returns true if the driver must be called.
    pub(super) fn carries(&mut self, now: Time, bytes: u32, arrived: Option<u8>) -> bool {
        let traffic = self.traffic.get_or_insert_default();
        let last = traffic.sent_at.max(traffic.received_at);
        traffic.bytes += u64::from(bytes);
        match arrived {
            None => traffic.sent_at = Some(now),
            Some(age) => {
                traffic.received_at = Some(now);
                traffic.received = traffic.received.wrapping_add(1);
                let heard = segue_wire::age::decode(age).map(|age| Time(now.0.saturating_sub(age)));
                traffic.heard_back = traffic.heard_back.max(heard);
            }
        }
        self.setup.probing.follows_use && last.is_none_or(|last| now.since(last) > SILENCE)
    }

    /// Returns true if a probe is for this end and newer than earlier ones. A response may be late: the meter or
    /// the machine checks its number.
    pub(super) fn takes(&mut self, is_anchor: bool, kind: ProbeKind, probe: &Probe) -> bool {
        if is_anchor != (kind == ProbeKind::Request) {
            return false;
        }
        if kind == ProbeKind::Response {
            return true;
        }
        let newer = |last| (probe.seq.wrapping_sub(last) as i32) > 0;
        if !self.last_seq.is_none_or(newer) {
            return false;
        }
        self.last_seq = Some(probe.seq);
        true
    }

    /// Builds the answer to a request, addressed to the request's source. `challenge`: the value that this source
    /// must echo first.
    pub(super) fn answer<P>(
        &mut self,
        now: Time,
        (from, to): (SocketAddr, SocketAddr),
        request: Probe,
        (k, question): (u8, bool),
        challenge: Option<u32>,
    ) -> (Outer, Message<P>) {
        self.tx = self.tx.wrapping_add(u32::from(!question));
        let probe = Probe {
            t_ss: challenge.unwrap_or(now.micros32()),
            dt: 0,
            ss: self.tx,
            r: self.rx,
            heard: self.heard,
            ..request
        };
        let (kind, key) = (ProbeKind::Response, self.setup.key);
        let (report, age) = (false, 0);
        let answer = self.message(Body::Probe { kind, k, report, question, age, probe, key });
        (Outer { ifindex: 0, local: to, remote: from }, answer)
    }

    /// Validates the source of a request as the destination of packets if it has echoed the timestamp of an
    /// answer sent to it. Otherwise returns the challenge that it must echo, which is ahead of the clock.
    pub(super) fn learn(
        &mut self,
        now: Time,
        (from, to): (SocketAddr, SocketAddr),
        echo: u32,
    ) -> Option<u32> {
        if self.learned == Some((from, to)) {
            return None;
        }
        match self.asked {
            Some((asked, challenge)) if (asked, challenge) == (from, echo) => {
                self.learned = Some((from, to));
                None
            }
            Some((asked, challenge)) if asked == from => Some(challenge),
            _ => {
                let challenge = now.micros32().wrapping_add(1 << 30);
                self.asked = Some((from, challenge));
                Some(challenge)
            }
        }
    }

    /// A probe sent without data.
    pub(super) fn probe<P>(&self, kind: ProbeKind, k: u8, probe: Probe) -> Message<P> {
        let (report, question, age, key) = (false, false, 0, self.setup.key);
        self.message(Body::Probe { kind, k, report, question, age, probe, key })
    }

    pub(super) fn message<P>(&self, body: Body<P>) -> Message<P> {
        Message { index: self.setup.tx_index, cookie: self.setup.tx_cookie, body }
    }

    pub(super) fn outer(&self, is_anchor: bool) -> Option<Outer> {
        if is_anchor {
            return self.learned.map(|(remote, local)| Outer { ifindex: 0, local, remote });
        }
        let (local, remote) = (self.setup.local?, self.setup.remote?);
        Some(Outer { ifindex: self.setup.ifindex, local, remote })
    }
}
