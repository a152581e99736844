//! The state of a path's rides, and the responses that wait for one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;

use segue_clock::{Span, Time};
use segue_keepalive::{Estimates, Reading, Traffic};
use segue_wire::Probe;

use super::super::socket::Endpoint;
use crate::Role;

/// A response that has not been sent yet.
pub(crate) struct Pending {
    /// K of the request, which the response repeats.
    pub k: u8,
    /// The request's fields, and `r`.
    pub probe: Probe,
    /// t_Rs.
    pub received_at: Time,
    /// The request rode.
    pub rode: bool,
    /// The request was a question: neither it nor the response counts.
    pub question: bool,
    /// The response goes to this address instead of the path's endpoint, with this challenge for
    /// t_Ss.
    pub elsewhere: Option<(Endpoint, u32)>,
}

impl Pending {
    /// The response that leaves at `now`, with `ss` packets sent.
    pub(crate) fn complete(&self, ss: u32, now: Time, heard: Option<u16>) -> Probe {
        let t_ss = now.micros32();
        let dt = t_ss.wrapping_sub(self.received_at.micros32());
        let t_ss = self.elsewhere.map_or(t_ss, |(_, challenge)| challenge);
        Probe { t_ss, dt, ss, heard: heard.unwrap_or(0), ..self.probe }
    }
}

/// The sending side of a path's rides.
#[derive(Default)]
pub(crate) struct Rides {
    /// Requests (host) or responses (anchor) sent, including those that rode.
    pub sent: u32,
    pub(super) rode: u32,
    pub(super) last_sent: Option<Time>,
    /// Host: when the last request left on its own; steps of T_KA start here.
    pub(super) grid: Option<Time>,
    pub(super) last_ride: Option<Time>,
    /// When a packet that could carry a probe last left.
    pub(super) last_fit: Option<Time>,
    /// Anchor: the waiting response.
    pub(super) held: Option<Held>,
    pub(super) mtu: Option<Mtu>,
}

/// A response and its deadline.
pub(super) struct Held {
    pub(super) response: Pending,
    pub(super) until: Time,
}

/// The kernel's MTU of the route to a remote end.
pub(super) struct Mtu {
    pub(super) to: SocketAddr,
    pub(super) at: Time,
    pub(super) bytes: Option<usize>,
}

/// The waiting responses of all paths: deadline and slot.
pub(crate) type Waiting = Mutex<BTreeSet<(Time, u32)>>;

impl Rides {
    /// Records that a probe left on its own at `now`.
    pub(crate) fn sent_alone(&mut self, now: Time, role: Role) {
        self.sent = self.sent.wrapping_add(1);
        self.last_sent = Some(now);
        if role == Role::Host {
            self.grid = Some(now);
        }
    }

    /// True if a request should ride on a packet that leaves at `now`: none has ridden in this
    /// step.
    fn request_due(&self, now: Time, t_ka: Span) -> bool {
        let Some(grid) = self.grid else { return false };
        let step = grid + t_ka * (now.since(grid).0 / t_ka.0.max(1));
        self.last_ride.is_none_or(|at| at < step)
    }

    pub(super) fn due(&self, role: Role, now: Time, t_ka: Span) -> bool {
        match role {
            Role::Host => self.request_due(now, t_ka),
            Role::Anchor => self.held.is_some(),
        }
    }

    /// The counts of what was sent, as a reading without measurements.
    pub(crate) fn reading(&self, at: Time) -> Reading {
        Reading {
            at,
            sent: self.sent,
            rode: self.rode,
            last_sent: self.last_sent,
            received: 0,
            last_received: None,
            last_heard: None,
            watched: None,
            traffic: Traffic::default(),
            run: 0,
            k: 0,
            t_ka: None,
            estimates: Estimates::default(),
        }
    }
}
