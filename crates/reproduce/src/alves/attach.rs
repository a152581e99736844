//! The steps of attaching to an access, and how long a host waits for each.

use std::time::Duration;

use anyhow::Context;
use segue_bench::passage::{Passages, Side};
use segue_clock::Time;
use segue_linux::clock::monotonic;

use super::domain::{Domain, FIRST};
use super::frames::{
    Awaited, BINDING_ACKNOWLEDGEMENT, BINDING_UPDATE, ICMP_TYPE, ICMPV6, NEXT_HEADER, is_mobility,
};
use super::packets::{Flow, Pace};
use crate::experiment::Stage;

/// The steps, each measured from the end of the previous one.
pub(crate) const STEPS: [&str; 5] = [
    "the gateway hears the host",
    "the anchor has the binding update",
    "the gateway has the acknowledgement",
    "the host has the advertisement",
    "the host has a packet",
];
const PERIOD: Duration = Duration::from_millis(1);
/// How long the host is detached first.
const AWAY: Duration = Duration::from_millis(400);
/// Maximum number of packets sent until one arrives, and the number sent after that.
const MOST: u32 = 20_000;
const MORE: u32 = 100;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// Detaches the host from its access and attaches it again. Returns when each step was complete, in ms after the link
/// came up.
///
/// # Errors
/// A step is missing, or the user wants to stop.
pub(crate) fn attach(stage: &Stage, domain: &mut Domain) -> anyhow::Result<[f64; 5]> {
    stage.check()?;
    let _sink = domain.sink()?;
    let flow = domain.flow(&FIRST, 8_000, Pace { period: PERIOD, bytes: 125 })?;
    let arrivals = domain.watch("host", MOST, &[(FIRST.radio.name, Side::Entry)])?;
    domain.detach(&FIRST)?;
    std::thread::sleep(AWAY);
    let mac = mac(FIRST.radio.llid).context("a link-layer address")?;
    let mut frames = [
        Awaited::at(domain, FIRST.node, FIRST.name, move |f| {
            f[6..12] == mac && [0, ICMPV6].contains(&f[NEXT_HEADER])
        })?,
        Awaited::at(domain, "lma", "core", |f| is_mobility(f, BINDING_UPDATE))?,
        Awaited::at(domain, FIRST.node, "core", |f| is_mobility(f, BINDING_ACKNOWLEDGEMENT))?,
        Awaited::at(domain, "host", FIRST.radio.name, |f| {
            f[NEXT_HEADER] == ICMPV6 && f[ICMP_TYPE] == ROUTER_ADVERTISEMENT
        })?,
    ];
    let began = monotonic();
    domain.lab().attach(&format!("host:{}", FIRST.radio.name), FIRST.name)?;
    let packet = await_all(stage, &flow, &arrivals, &mut frames)?;
    let mut done = [0.0; 5];
    let at = frames.iter().map(|frame| frame.at).chain([packet]);
    for ((done, at), what) in done.iter_mut().zip(at).zip(STEPS) {
        *done = at.with_context(|| format!("not seen: {what}"))?.since(began).as_millis_f64();
    }
    domain.await_host(stage, &FIRST)?;
    domain.await_mobility(stage)?;
    Ok(done)
}

/// Sends until a packet arrives, then a few more so that all steps of attaching can complete. Returns when it arrived.
fn await_all(
    stage: &Stage,
    flow: &Flow,
    arrivals: &Passages,
    frames: &mut [Awaited],
) -> anyhow::Result<Option<Time>> {
    let (mut arrived, mut end, mut number) = (None, MOST, 0);
    while number < end {
        flow.send(number);
        std::thread::sleep(PERIOD);
        frames.iter_mut().try_for_each(Awaited::look)?;
        if arrived.is_none()
            && let Some(first) = first_of(arrivals, number)?
        {
            (arrived, end) = (Some(first), MOST.min(number + MORE));
        }
        if number.is_multiple_of(MORE) {
            stage.check()?;
        }
        number += 1;
    }
    Ok(arrived)
}

/// Arrival time of the first among the most recent packets that arrived.
fn first_of(arrivals: &Passages, number: u32) -> anyhow::Result<Option<Time>> {
    for earlier in number.saturating_sub(MORE)..=number {
        if let Some(passage) = arrivals.of(earlier)? {
            return Ok(Some(passage.entered));
        }
    }
    Ok(None)
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}
