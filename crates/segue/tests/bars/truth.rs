//! What the emulator wrote down, read as probes, answers and data.

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_wire::Probe;

use super::voice;

/// Headers of IP and UDP over IPv4 and IPv6.
const OUTER: [usize; 2] = [28, 48];
/// Those of the flow, which speaks IPv4.
const IP_UDP: usize = 28;

/// The packets of one direction that belong to a UDP port, in the order in which they came.
pub fn packets(log: &[Record], way: Direction, port: u16) -> Vec<Record> {
    let mine = log.iter().filter(|record| record.direction == way && record.is_udp(port));
    let mut packets: Vec<Record> = mine.copied().collect();
    packets.sort_by_key(|record| record.arrival);
    packets
}

/// Whether it is a probe that travels alone, or one that rides on a packet of [`Voice`](super::voice).
pub fn is_probe(record: &Record) -> bool {
    let bytes = record.bytes as usize;
    let lengths = [Probe::PACKET_LEN, Probe::PACKET_LEN + IP_UDP + voice::BYTES];
    OUTER.iter().any(|outer| lengths.iter().any(|length| bytes == outer + length))
}

/// When it was sent on, if it was.
pub fn departure(record: &Record) -> Option<Time> {
    record.delay().map(|delay| record.arrival + delay)
}

/// The delivered requests with their answers, as places in `up` and `down`. An answer leaves the far end
/// at once, so it is the next probe of the other direction.
pub fn exchanges(up: &[Record], down: &[Record]) -> Vec<(usize, usize)> {
    let delivered = up.iter().enumerate().filter(|(_, record)| is_probe(record));
    delivered
        .filter_map(|(request, record)| {
            let there = departure(record)?;
            let after = down.partition_point(|answer| answer.arrival < there);
            let answer = down[after..].iter().position(is_probe)?;
            Some((request, after + answer))
        })
        .collect()
}

/// The round-trip time that was imposed on each answered probe, by the instant at which it was complete.
pub fn round_trips(log: &[Record], port: u16) -> Vec<(Time, Span)> {
    let [up, down] = Direction::ALL.map(|way| packets(log, way, port));
    let pairs = exchanges(&up, &down).into_iter();
    pairs
        .filter_map(|(request, answer)| {
            let (there, back) = (up[request].delay()?, down[answer].delay()?);
            Some((departure(&down[answer])?, there + back))
        })
        .collect()
}

/// The generalized average (eq. 13) of these samples at an instant, in the samples' unit.
pub fn average(samples: &[(Time, Span)], tau: Span, at: Time) -> Option<f64> {
    let mut samples = samples.iter().take_while(|(when, _)| *when <= at);
    let &(mut last, first) = samples.next()?;
    let mut average = first.as_millis_f64();
    for (when, rtt) in samples {
        let keep = (-when.since(last).as_secs_f64() / tau.as_secs_f64()).exp();
        average = (1.0 - keep) * rtt.as_millis_f64() + keep * average;
        last = *when;
    }
    Some(average)
}
