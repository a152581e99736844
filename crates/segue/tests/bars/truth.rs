//! Interprets the emulator's record as probes, answers and data.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_wire::header::flags::RESPONSE_UNSOLICITED;
use segue_wire::{Header, PacketType};

/// The packets of one direction on a UDP port, in order of arrival, except packet size tests, which
/// no counter includes.
pub(crate) fn packets(log: &[Record], way: Direction, port: u16) -> Vec<Record> {
    let is_size = |record: &Record| {
        Header::parse(&record.payload).is_ok_and(|header| header.packet_type == PacketType::Size)
    };
    let mine = log
        .iter()
        .filter(|record| record.direction == way && record.is_udp(port) && !is_size(record));
    let mut packets: Vec<Record> = mine.copied().collect();
    packets.sort_by_key(|record| record.arrival);
    packets
}

/// Whether the packet is a probe, alone or riding on data.
pub(crate) fn is_probe(record: &Record) -> bool {
    Header::parse(&record.payload).is_ok_and(|header| header.packet_type != PacketType::Data)
}

/// Whether the packet is an unsolicited response.
fn is_unsolicited(record: &Record) -> bool {
    Header::parse(&record.payload).is_ok_and(|header| {
        header.packet_type == PacketType::Response && header.flags & RESPONSE_UNSOLICITED != 0
    })
}

/// A 32-bit word of a probe's body.
fn word(record: &Record, number: usize) -> u32 {
    let at = Header::LEN + 4 * number;
    u32::from_be_bytes(record.payload[at..at + 4].try_into().unwrap())
}

/// The sequence number of a probe.
fn seq(record: &Record) -> u32 {
    word(record, 0)
}

/// The t_Ss of a probe: set by a response, repeated by a request. `None` if the field holds no
/// time: zero means none, and a challenge lies ahead of the clock.
pub(crate) fn t_ss(record: &Record) -> Option<u32> {
    let t_ss = word(record, 2);
    let age = record.arrival.micros32().wrapping_sub(t_ss);
    (t_ss != 0 && age < 1 << 31).then_some(t_ss)
}

/// The instant at which the emulator forwarded the packet; `None` if it dropped it.
pub(crate) fn departure(record: &Record) -> Option<Time> {
    record.delay().map(|delay| record.arrival + delay)
}

/// Delivered requests with their answers, which repeat the sequence number, as positions in `up`
/// and `down`.
pub(crate) fn exchanges(up: &[Record], down: &[Record]) -> Vec<(usize, usize)> {
    let answers: BTreeMap<u32, usize> = (0..down.len())
        .filter(|place| is_probe(&down[*place]) && !is_unsolicited(&down[*place]))
        .map(|place| (seq(&down[place]), place))
        .collect();
    let delivered = up.iter().enumerate().filter(|(_, r)| is_probe(r) && r.delay().is_some());
    delivered.filter_map(|(request, record)| Some((request, *answers.get(&seq(record))?))).collect()
}

/// The round-trip time imposed on each answered probe, with the instant of its completion.
pub(crate) fn round_trips(log: &[Record], port: u16) -> Vec<(Time, Span)> {
    let [up, down] = Direction::ALL.map(|way| packets(log, way, port));
    let pairs = exchanges(&up, &down).into_iter();
    pairs
        .filter_map(|(request, answer)| {
            let (there, back) = (up[request].delay()?, down[answer].delay()?);
            Some((departure(&down[answer])?, there + back))
        })
        .collect()
}

/// The generalized average (eq. 13) of these samples at an instant, in milliseconds.
pub(crate) fn average(samples: &[(Time, Span)], tau: Span, at: Time) -> Option<f64> {
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
