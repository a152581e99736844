//! What a host waits for when it comes to an access, step by step.

use std::time::Duration;

use anyhow::Context;
use segue_bench::passage::Side;
use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_linux::packet::PacketSocket;

use super::domain::{Domain, FIRST};
use super::packets::Pace;
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
/// How long the host is away before, and how long everything may take.
const AWAY: Duration = Duration::from_millis(400);
const WITHIN: Duration = Duration::from_millis(1_500);
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
    let packets = WITHIN.as_millis() as u32;
    let arrivals = domain.watch("host", packets, &[(FIRST.radio, Side::Entry)])?;
    domain.detach(&FIRST)?;
    std::thread::sleep(AWAY);
    let open = |node: &str, device: &str| -> anyhow::Result<PacketSocket> {
        Ok(domain.node(node)?.run(|| PacketSocket::open(device))??)
    };
    let mut air = open(FIRST.node, FIRST.name)?;
    let mut anchor = open("lma", "core")?;
    let mut gateway = open(FIRST.node, "core")?;
    let mut host = open("host", FIRST.radio)?;
    let began = monotonic();
    domain.lab.attach(&format!("host:{}", FIRST.radio), FIRST.name)?;
    for number in 0..packets {
        flow.send(number);
        std::thread::sleep(PERIOD);
    }
    let mac = mac(FIRST.llid).context("a link-layer address")?;
    let mobility = |kind: u8| move |f: &[u8]| f[NEXT_HEADER] == MOBILITY && f[MH_TYPE] == kind;
    let heard = first(&mut air, |f| f[6..12] == mac && [0, ICMPV6].contains(&f[NEXT_HEADER]))?;
    let update = first(&mut anchor, mobility(BINDING_UPDATE))?;
    let answer = first(&mut gateway, mobility(BINDING_ACKNOWLEDGEMENT))?;
    let advertised = first(&mut host, |f| f[NEXT_HEADER] == ICMPV6 && f[ICMP_TYPE] == ROUTER_ADVERTISEMENT)?;
    let mut packet = None;
    for number in 0..packets {
        let entered = arrivals.of(number)?.map(|passage| passage.entered);
        packet = packet.or(entered.filter(|entered| *entered >= began));
    }
    let steps = [heard, update, answer, advertised, packet];
    let mut done = [0.0; 5];
    for ((done, at), what) in done.iter_mut().zip(steps).zip(STEPS) {
        *done = at.with_context(|| format!("not seen: {what}"))?.since(began).as_millis_f64();
    }
    domain.await_host(stage, &FIRST)?;
    domain.await_mobility(stage)?;
    Ok(done)
}

/// When the first of the frames that wait came that is wanted.
fn first(socket: &mut PacketSocket, wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<Option<Time>> {
    let mut frame = [0; 2_048];
    while let Some(received) = socket.receive(&mut frame)? {
        let ipv6 = frame[12..14] == [0x86, 0xdd];
        if ipv6 && received.len > MH_TYPE && wanted(&frame[..received.len.min(frame.len())]) {
            return Ok(Some(received.at));
        }
    }
    Ok(None)
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}
