//! What a host waits for when it comes to an access, step by step.

use std::time::Duration;

use anyhow::Context;
use segue_bench::passage::{Passages, Side};
use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_linux::packet::PacketSocket;

use super::domain::{Domain, FIRST};
use super::packets::{Flow, Pace};
use crate::experiment::Stage;

/// The steps, each from the end of the one before.
pub(crate) const STEPS: [&str; 5] = [
    "the gateway hears the host",
    "the anchor has the binding update",
    "the gateway has the acknowledgement",
    "the host has the advertisement",
    "the host has a packet",
];
const PERIOD: Duration = Duration::from_millis(1);
/// How long the host is away before.
const AWAY: Duration = Duration::from_millis(400);
/// Packets that are sent until one arrives, and after that.
const MOST: u32 = 20_000;
const MORE: u32 = 100;
/// Where frames say what they carry: behind Ethernet in the IPv6 header, and in what follows that.
const NEXT_HEADER: usize = 20;
const ICMP_TYPE: usize = 54;
const MH_TYPE: usize = 56;
const ICMPV6: u8 = 58;
const MOBILITY: u8 = 135;
const BINDING_UPDATE: u8 = 5;
const BINDING_ACKNOWLEDGEMENT: u8 = 6;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// Has the host leave its access and come back; when each step was done, in ms after the link.
///
/// # Errors
/// When a step is missing, or the user wants to stop.
pub(crate) fn attach(stage: &Stage, domain: &mut Domain) -> anyhow::Result<[f64; 5]> {
    stage.check()?;
    let _sink = domain.sink()?;
    let flow = domain.flow(&FIRST, 8_000, Pace { period: PERIOD, bytes: 125 })?;
    let arrivals = domain.watch("host", MOST, &[(FIRST.radio, Side::Entry)])?;
    domain.detach(&FIRST)?;
    std::thread::sleep(AWAY);
    let mac = mac(FIRST.llid).context("a link-layer address")?;
    let mut frames = [
        Awaited::at(domain, FIRST.node, FIRST.name, move |f| {
            f[6..12] == mac && [0, ICMPV6].contains(&f[NEXT_HEADER])
        })?,
        Awaited::at(domain, "lma", "core", |f| is_mobility(f, BINDING_UPDATE))?,
        Awaited::at(domain, FIRST.node, "core", |f| is_mobility(f, BINDING_ACKNOWLEDGEMENT))?,
        Awaited::at(domain, "host", FIRST.radio, |f| {
            f[NEXT_HEADER] == ICMPV6 && f[ICMP_TYPE] == ROUTER_ADVERTISEMENT
        })?,
    ];
    let began = monotonic();
    domain.lab.attach(&format!("host:{}", FIRST.radio), FIRST.name)?;
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

/// A frame that is to come over a device.
struct Awaited {
    socket: PacketSocket,
    wanted: Box<dyn Fn(&[u8]) -> bool>,
    at: Option<Time>,
}

impl Awaited {
    fn at(
        domain: &Domain,
        node: &str,
        device: &str,
        wanted: impl Fn(&[u8]) -> bool + 'static,
    ) -> anyhow::Result<Awaited> {
        let socket = domain.node(node)?.run(|| PacketSocket::open(device))??;
        Ok(Awaited { socket, wanted: Box::new(wanted), at: None })
    }

    /// Takes what has come. To be called often: the kernel's stamps are believed for a second.
    fn look(&mut self) -> anyhow::Result<()> {
        let mut frame = [0; 2_048];
        while let Some(received) = self.socket.receive(&mut frame)? {
            let bytes = &frame[..received.len.min(frame.len())];
            let is_ipv6 = bytes.len() > MH_TYPE && bytes[12..14] == [0x86, 0xdd];
            if self.at.is_none() && is_ipv6 && (self.wanted)(bytes) {
                self.at = Some(received.at);
            }
        }
        Ok(())
    }
}

fn is_mobility(frame: &[u8], kind: u8) -> bool {
    frame[NEXT_HEADER] == MOBILITY && frame[MH_TYPE] == kind
}

/// Sends until a packet arrives, and a few more so that everything that belongs to attaching has happened: when it arrived.
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

/// When one of the last packets came, the first of them that did.
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
