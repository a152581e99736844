//! Probes that ride on the data packets of one path: docs/wire/tunnel-and-probe.md, "Rides".

use segue_clock::{Span, Time};
use segue_keepalive::{Probing, Reading};
use segue_tunnel::ProbeKind;
use segue_wire::{HELD_AT_MOST_MS, Probe};

/// A probe that rides.
pub(super) struct Rider {
    pub kind: ProbeKind,
    pub k: u8,
    pub probe: Probe,
}

/// A request that an anchor has received.
pub(super) struct Request {
    pub probe: Probe,
    pub k: u8,
    pub question: bool,
    /// It did not ride.
    pub alone: bool,
}

/// Time from the machine's order of a request until the packet path has sent it and the T_KA steps begin. A
/// packet that leaves at the same instant of virtual time belongs to no step.
const LATER: Span = Span::from_micros(1);

/// State of a path with rides.
#[derive(Debug, Default)]
pub(super) struct Rides {
    /// When the packet path's timer for this path fires, if set: the end of a response's wait (anchor), or a call
    /// of the driver (host). [`super::Model`] keeps the timers in order.
    pub timer: Option<Time>,
    /// Probes that rode: requests at a host, responses at an anchor.
    pub rode: u32,
    /// Sequence number of the last request that this host sent (which is also their count), and when it left.
    requests: u32,
    last_sent: Option<Time>,
    /// When the last bare request left; T_KA steps are counted from here.
    grid: Option<Time>,
    last_ride: Option<Time>,
    /// The newest response, the number of packets received with it, and its arrival.
    echo: Option<(Probe, u32, Time)>,
    /// See [`Reading::watched`].
    pub watched: Option<Time>,
    /// When the last packet left that could have carried a response (anchor).
    pub last_fit: Option<Time>,
    /// The waiting response (anchor).
    pub held: Option<Held>,
}

/// A response that waits for a ride.
#[derive(Debug)]
pub(super) struct Held {
    /// The request to answer, with the number of packets received up to it.
    pub request: Probe,
    pub k: u8,
    pub came: Time,
}

impl Held {
    /// The response as sent at `now` as packet number `ss`.
    pub(super) fn response(&self, now: Time, ss: u32, heard: u16) -> Probe {
        let t_ss = now.micros32();
        Probe { t_ss, dt: t_ss.wrapping_sub(self.came.micros32()), ss, heard, ..self.request }
    }
}

/// Maximum wait of a response to a request that states this period, in milliseconds.
pub(super) fn longest_wait(probing: &Probing, t_ka_ms: u16) -> Span {
    let stated = Span::from_millis(t_ka_ms.into());
    let wait = if t_ka_ms == 0 { probing.t_ka } else { probing.t_ka.min(stated) };
    if probing.follows_use { wait.min(Span::from_millis(HELD_AT_MOST_MS)) } else { wait }
}

impl Rides {
    /// The start of the current step, if a request should ride on a packet that leaves at `now`; `None` if one
    /// has ridden in this step, or no bare request has left yet.
    pub(super) fn request_due(&self, now: Time, t_ka: Span) -> Option<Time> {
        let grid = self.grid.filter(|grid| *grid <= now)?;
        let step = grid + t_ka * (now.since(grid).0 / t_ka.0.max(1));
        self.last_ride.is_none_or(|at| at < step).then_some(step)
    }

    /// Notes that a request rides.
    pub(super) fn rides(&mut self, now: Time) {
        self.rode = self.rode.wrapping_add(1);
        self.last_ride = Some(now);
    }

    /// Notes that a bare request leaves.
    pub(crate) fn goes_alone(&mut self, now: Time) {
        self.grid = Some(now + LATER);
        self.watched = None;
    }

    /// Sets the number of a request and the echo of the newest response. Used if the packet path does not measure
    /// and so cannot do it. When requests of a machine begin to ride, the machine knows the last number used
    /// before.
    pub(super) fn number(&mut self, now: Time, request: &mut Probe) {
        let ordered = request.seq.wrapping_sub(1);
        if ordered.wrapping_sub(self.requests).cast_signed() > 0 {
            self.requests = ordered;
        }
        self.requests = self.requests.wrapping_add(1);
        self.last_sent = Some(now);
        let (last, received, at) = self.echo.unwrap_or_default();
        let dt = if self.echo.is_some() { now.micros32().wrapping_sub(at.micros32()) } else { 0 };
        (request.seq, request.dt) = (self.requests, dt);
        (request.t_ss, request.ss, request.r) = (last.t_ss, last.ss, received);
    }

    /// Returns true if no request had this number.
    pub(super) fn never_sent(&self, seq: u32) -> bool {
        self.requests.wrapping_sub(seq) >= self.requests
    }

    /// Stores a response for the echo of the next request, unless it is older than the stored one.
    pub(super) fn answered(&mut self, now: Time, response: &Probe, received: u32) {
        let newer = |last: &Probe| response.seq.wrapping_sub(last.seq).cast_signed() > 0;
        if self.echo.as_ref().is_none_or(|(last, ..)| newer(last)) {
            self.echo = Some((*response, received, now));
        }
    }

    /// The packet path's report if it does not measure.
    pub(super) fn reading(&self) -> Reading {
        let (sent, rode, last_sent) = (self.requests, self.rode, self.last_sent);
        Reading { sent, rode, last_sent, ..Reading::default() }
    }
}
