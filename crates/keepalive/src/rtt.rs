//! Round-trip time from one probe, without synchronised clocks (section 4.1).

use segue_clock::{Span, Time};

use crate::Arrival;
use segue_clock::planted::fault;

/// Larger round-trip times are rejected. No network delays a packet that long, but an echo from before a restart can
/// look like it.
pub const MAX_RTT: Span = Span::from_secs(60);

/// The time from `earlier` to `later`, in microseconds modulo 2³². `None` above 2³¹ µs (36 minutes), because such a gap
/// cannot be distinguished from a negative one.
#[must_use]
pub fn gap_us(later: u32, earlier: u32) -> Option<u32> {
    let gap = later.wrapping_sub(earlier);
    (gap <= 1 << 31).then_some(gap)
}

/// The client's round-trip time t_Rc − t_Sc − Δt_S from a response. `None` if it would be negative or above
/// [`MAX_RTT`], or if the request left before `epoch`, the start of this client.
#[must_use]
pub fn client_rtt(arrival: &Arrival, epoch: Time) -> Option<Span> {
    let held = Span::from_micros(u64::from(gap_us(arrival.probe.dt, 0)?));
    let held = if fault(14) { Span::ZERO } else { held };
    let total = match arrival.sent_at {
        Some(sent_at) if sent_at > arrival.at => return None,
        Some(sent_at) => arrival.at.since(sent_at),
        None => echo_age(arrival.at, arrival.probe.t_sc, epoch)?,
    };
    believable(total, held)
}

/// The server's round-trip time t_Rs − t_Ss(k_prev) − Δt_C from a request. `None` as for [`client_rtt`], if the request
/// does not echo a response yet, or if the echoed response left before `epoch`, the first request that this server saw.
#[must_use]
pub fn server_rtt(arrival: &Arrival, epoch: Time) -> Option<Span> {
    if arrival.probe.t_ss == 0 {
        return None;
    }
    let held = Span::from_micros(u64::from(gap_us(arrival.probe.dt, 0)?));
    let held = if fault(11) { Span::ZERO } else { held };
    believable(echo_age(arrival.at, arrival.probe.t_ss, epoch)?, held)
}

/// Age at `at` of a stamp of this end that the peer echoed. `None` if the stamp is older than `epoch` or too old to
/// measure. Tolerates 1 ms because stamps of packets and of programs may differ slightly.
pub(crate) fn echo_age(at: Time, stamp: u32, epoch: Time) -> Option<Span> {
    let age = Span::from_micros(u64::from(gap_us(at.micros32(), stamp)?));
    (age <= at.since(epoch) + Span::from_millis(1)).then_some(age)
}

fn believable(total: Span, held: Span) -> Option<Span> {
    (held <= total && total - held <= MAX_RTT).then(|| total - held)
}
