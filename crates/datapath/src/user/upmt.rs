//! Paths with UPMT's own packets (`docs/wire/upmt.md`): finds the path of a packet without index and cookie, and
//! builds probes. Any host that can send from a path's addresses can impersonate it, so use such paths only on
//! trusted networks.

mod paths;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use segue_wire::header::flags::{REQUEST_REPORT, RESPONSE_UNSOLICITED, RIDE_REPORT, RIDE_RESPONSE};
use segue_wire::upmt::{Form, ProbePacket, Trailer};
use segue_wire::{DropReason, Header, PacketType, Probe};

use super::class::{congested, mark_inner};
use super::path::{Ends, Path};
use super::shared::Core;
use super::take::{Arrival, Head, Intake, Take};
use crate::sync::lock;
use crate::{PathSetup, Role};
pub(super) use paths::UpmtPaths;

/// Length of the shortest packet with a request, in either form.
pub(super) const SHORTEST: usize = 20 + Trailer::LEN;

/// UPMT packets have no header with these fields.
const UNSTATED: Head = Head { age: 0, one_way: false };

/// Sets the inner addresses of a host's requests: the host's own, of the tunnel's family if possible.
pub(super) fn address_requests(core: &Core, path: &Path) {
    let Some(remote) = path.config.remote.filter(|_| path.is_upmt()) else { return };
    let own =
        core.inner.keys().min_by_key(|address| (address.is_ipv6() != remote.is_ipv6(), **address));
    *lock(&path.state.ends) = own.map(|host| Ends { host: *host, anchor: remote.ip() });
}

/// The request in a datagram that has left, with the path's number. `packet` may start with lower-layer headers, and
/// must end with the datagram.
pub(super) fn request_of(packet: &[u8]) -> Option<(u32, Probe)> {
    match Form::of(packet) {
        Form::Inner => {
            let probe = ProbePacket::parse(packet)?.ok().filter(|probe| !probe.response)?;
            Some((probe.path.into(), probe.probe))
        }
        Form::Ride => {
            let (trailer, inner) = Trailer::split(packet).ok()?;
            let whole = restore(&trailer, inner);
            let len = segue_wire::flow::Inner::parse(&whole).ok()?.len;
            (!trailer.response && len == inner.len())
                .then_some((trailer.path.into(), trailer.probe))
        }
        Form::Other => None,
    }
}

/// True if a packet should be parsed as UPMT: there are such paths, and it starts like one.
pub(super) fn concerns(core: &Core, packet: &[u8]) -> bool {
    !core.upmt.slots.is_empty() && Form::of(packet) != Form::Other
}

/// Checks one UPMT packet and processes it.
pub(super) fn take<'a>(
    intake: &mut Intake<'_, 'a>,
    arrival: &Arrival,
    packet: &'a [u8],
) -> Result<(), DropReason> {
    if Form::of(packet) == Form::Ride {
        return take_ride(intake, arrival, packet);
    }
    match ProbePacket::parse(packet) {
        Some(probe) => take_probe(intake, arrival, &probe?),
        None => {
            let path = path_of(intake.shared.role, intake.core, arrival, packet)?;
            intake.data(&path, arrival, Cow::Borrowed(packet), UNSTATED)
        }
    }
}

fn take_probe(
    intake: &mut Intake<'_, '_>,
    arrival: &Arrival,
    got: &ProbePacket,
) -> Result<(), DropReason> {
    if got.response != (intake.shared.role == Role::Host) {
        return Err(DropReason::Type);
    }
    let path = numbered(intake.shared.role, intake.core, arrival, got.host, got.path)?;
    let (packet_type, flag) = match intake.shared.role {
        Role::Anchor => (PacketType::Request, REQUEST_REPORT),
        Role::Host => (PacketType::Response, RESPONSE_UNSOLICITED),
    };
    let flags = if got.flagged { flag } else { 0 };
    let k = path.config.probing.k;
    let header = Header { packet_type, flags, k, age: 0, index: 0, cookie: 0 };
    let take = Take { path: &path, arrival, header: &header, probe: got.probe, alone: true };
    finish(intake, &take, Ends { host: got.host, anchor: got.anchor })
}

fn take_ride<'a>(
    intake: &mut Intake<'_, 'a>,
    arrival: &Arrival,
    packet: &'a [u8],
) -> Result<(), DropReason> {
    let (trailer, inner) = Trailer::split(packet)?;
    let mut whole = restore(&trailer, inner);
    let parsed = segue_wire::flow::Inner::parse(&whole)?;
    if parsed.len != whole.len() {
        return Err(DropReason::InnerPacket);
    }
    if trailer.response != (intake.shared.role == Role::Host) {
        return Err(DropReason::Type);
    }
    let path = match intake.shared.role {
        Role::Anchor => numbered(Role::Anchor, intake.core, arrival, parsed.key.src, trailer.path)?,
        Role::Host => numbered(Role::Host, intake.core, arrival, parsed.key.dst, trailer.path)?,
    };
    if !path.config.probing.rides {
        return Err(DropReason::Type);
    }
    if congested(arrival.class) {
        mark_inner(&mut whole);
    }
    let report = if trailer.report { RIDE_REPORT } else { 0 };
    let flags = report | if trailer.response { RIDE_RESPONSE } else { 0 };
    let k = path.config.probing.k;
    let header = Header { packet_type: PacketType::Ride, flags, k, age: 0, index: 0, cookie: 0 };
    // Counts the packet, once for both parts.
    let data = intake.data(&path, arrival, Cow::Owned(whole), UNSTATED);
    let take = Take { path: &path, arrival, header: &header, probe: trailer.probe, alone: false };
    let ends =
        Ends { host: parsed.key.src, anchor: arrival.endpoint.local.unwrap_or(parsed.key.dst) };
    if let Err(reason) = finish(intake, &take, ends) {
        intake.shared.drops.add(reason, 1);
    }
    data
}

/// Processes a probe. From a request, an anchor learns how to recognise the path's packets.
fn finish(intake: &mut Intake<'_, '_>, take: &Take<'_>, ends: Ends) -> Result<(), DropReason> {
    let role = intake.shared.role;
    take.probe(role, &mut intake.work)?;
    if role == Role::Anchor {
        intake.core.upmt.learn(take.path, take.arrival.from);
        *lock(&take.path.state.ends) = Some(ends);
    }
    Ok(())
}

/// The path with this number, of the host with this inner address.
fn numbered(
    role: Role,
    core: &Core,
    arrival: &Arrival,
    host: IpAddr,
    number: u8,
) -> Result<Arc<Path>, DropReason> {
    let number = u32::from(number);
    let slot = match role {
        Role::Host => number,
        Role::Anchor => {
            let owner = *core.inner.get(&host).ok_or(DropReason::InnerSource)?;
            *core.upmt.numbers.get(&(owner, number)).ok_or(DropReason::UnknownIndex)?
        }
    };
    let path = core.path(slot).filter(|path| path.is_upmt()).ok_or(DropReason::UnknownIndex)?;
    if role == Role::Host && !comes_by(path, arrival) {
        return Err(DropReason::UnknownIndex);
    }
    Ok(path.clone())
}

/// The path on which a data packet arrived. At a host, the path with the packet's addresses and interface. At an
/// anchor, the path whose last request came from the same source, and whose host has the packet's inner address.
fn path_of(
    role: Role,
    core: &Core,
    arrival: &Arrival,
    packet: &[u8],
) -> Result<Arc<Path>, DropReason> {
    let slot = |slot: &u32| core.path(*slot);
    let path = match role {
        Role::Host => core.upmt.slots.iter().filter_map(slot).find(|path| comes_by(path, arrival)),
        Role::Anchor => {
            let host = segue_wire::flow::Inner::parse(packet)?.key.src;
            let owner = *core.inner.get(&host).ok_or(DropReason::InnerSource)?;
            core.upmt.sources.get(&(owner, arrival.from)).and_then(slot)
        }
    };
    path.cloned().ok_or(DropReason::UnknownIndex)
}

fn comes_by(path: &Path, arrival: &Arrival) -> bool {
    let PathSetup { local, remote, ifindex, .. } = path.config;
    let same_local = match (local, arrival.endpoint.local) {
        (Some(local), Some(to)) => local.ip().is_unspecified() || local.ip() == to,
        _ => true,
    };
    let same_interface = ifindex == 0 || arrival.ifindex == 0 || ifindex == arrival.ifindex;
    remote == Some(arrival.from) && same_local && same_interface
}

/// The inner packet of a ride with its version restored.
fn restore(trailer: &Trailer, inner: &[u8]) -> Vec<u8> {
    let mut whole = inner.to_vec();
    if let Some(first) = whole.first_mut() {
        *first = trailer.restored(*first);
    }
    whole
}
