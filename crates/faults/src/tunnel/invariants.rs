//! Invariants after every event, for one end or for a flow's path.

mod answers;
mod filters;
mod outages;

use alloc::format;

use segue_clock::{Span, Time};
use segue_keepalive::{Config as Keepalive, Estimates};
use segue_sim::tunnel::Wrong;
use segue_sim::tunnel::signal::Datagram;
use segue_tunnel::ProbeKind;
use segue_wire::signal::FromAnchor;
use segue_wire::{Header, Probe};

use super::layout::{APP_PORT, MAX_SLOTS};
use super::state::Tunnels;
use super::streams::Said;
use super::tap::Place;
use super::watch::{Seen, Watch};
use crate::fault::PathRef;
use crate::truth::Truth;
use crate::violation::{Violation, counters_of};

/// Number of slots that may have been allocated and released unobserved within one event.
const FEW: u32 = 3;
/// Additional periods until ends with rides agree: see [`settle`].
const RIDES_SETTLE: u64 = 4;
/// Time for signalling to recover after everything has settled.
const LOOK: Span = Span::from_millis(100);
/// Timestamps are in whole microseconds, and a round trip involves two.
const STAMPS: Span = Span::from_micros(2);

fn expect_obeyed(wrong: Option<Wrong>, who: &dyn core::fmt::Display) -> Result<(), Violation> {
    match wrong {
        None => Ok(()),
        Some(wrong) => Err(Violation::new("paths exist", format!("{who}: {wrong:?}"))),
    }
}

/// Checks the counters of a path: they never decrease for the same path.
fn note(
    seen: &mut Seen,
    now: Time,
    tx: (u32, u64),
    e: &Estimates,
    what: &dyn core::fmt::Display,
) -> Result<(), Violation> {
    let counters = counters_of(e);
    if seen.tx != tx {
        *seen = Seen { tx, began: now, watched: None, counters };
        return Ok(());
    }
    let grow = counters.iter().zip(&seen.counters).all(|(now, before)| now >= before);
    Violation::unless(grow, "counters grow", || {
        format!("{what} had {:?} and has {counters:?}", seen.counters)
    })?;
    seen.counters = counters;
    Ok(())
}

fn expect_sense(
    truth: Truth<'_>,
    e: &Estimates,
    what: &dyn core::fmt::Display,
) -> Result<(), Violation> {
    let mut losses = e.owl_up.iter().chain(&e.owl_down).chain(&e.rtl);
    Violation::unless(losses.all(|loss| (0.0..=1.0).contains(loss)), "loss is a share", || {
        format!("{what}: {e:?}")
    })?;
    let (least, most) = truth.rtt();
    let (least, most) = (least - STAMPS, most + STAMPS);
    let ordered = e.rtt_min <= e.rtt_last && e.rtt_last <= e.rtt_max;
    Violation::unless(ordered, "round trips are possible", || format!("{what}: {e:?}"))?;
    let spans = [e.rtt_last, e.rtt_min, e.rtt_max].into_iter().flatten();
    let averages = e.rtt_ewma.iter().map(|seconds| Span::from_secs_f64(*seconds));
    for rtt in spans.chain(averages) {
        Violation::unless((least..=most).contains(&rtt), "round trips are possible", || {
            format!("{what} measures {rtt}, the links give {least} to {most}")
        })?;
    }
    Ok(())
}

/// Time from when no path has a fault until both ends have all paths up and know this of each other. It consists
/// of a period until the next request, `up_after` answers a period apart, and a period and a one-way delay until
/// the report of it; and round trips for the answer, for packets in flight, and for an offer and its grant, whose
/// messages may be retransmitted. If probes ride, a request may come a period later three times (the first, the
/// last that brings the path up, and the one with the report), and a response may wait a period for its ride.
pub(super) fn settle(keepalive: &Keepalive, rtt_max: Span) -> Span {
    let rides = if keepalive.rides { RIDES_SETTLE } else { 0 };
    let periods = u64::from(keepalive.up_after) + 2 + rides;
    keepalive.t_ka * periods + rtt_max * 7 + LOOK
}

impl Tunnels {
    /// Checks a tunnel packet; `data` if it carries a flow packet.
    pub(super) fn watch_tunnel(
        &mut self,
        now: Time,
        at: PathRef,
        place: Place,
        header: &Header,
        probe: Option<&(ProbeKind, Probe)>,
        data: bool,
    ) -> Result<(), Violation> {
        let to = (header.index, header.cookie);
        let from_host = place == Place::FromHost;
        if !data && (from_host || place == Place::FromAnchor) {
            let who = if from_host { at.host } else { self.hosts.len() };
            self.watch.outputs[who] += 1;
        }
        let Some((kind, probe)) = probe else { return Ok(()) };
        match place {
            Place::FromHost => self.watch_request(now, at.host, to, probe),
            Place::ToAnchor if *kind == ProbeKind::Request => {
                let datapath = &self.anchor_end().datapath;
                let key = datapath.key_of(to.0).filter(|key| datapath.is_path(to.0, to.1, key));
                // The eBPF programs do not answer a request that rode before the host's receiving address was
                // known.
                if let Some(key) = key {
                    let waits = !data || self.watch.shown.contains(&to.0);
                    let newest = self.watch.answers.on_request(now, to.0, key, probe.seq, waits);
                    if newest {
                        let t_ka = Span::from_millis(probe.t_ka_ms.into());
                        self.watch.stated.insert(key.0, (header.k, t_ka));
                    }
                }
                Ok(())
            }
            Place::FromAnchor => {
                let datapath = &self.anchor_end().datapath;
                let slot = datapath.slots().find(|slot| datapath.tx_of(*slot) == Some(to));
                let Some(key) = slot.and_then(|slot| datapath.key_of(slot)) else { return Ok(()) };
                match kind {
                    ProbeKind::Unsolicited => self.watch.expect_newer(to, key.0, probe.seq),
                    ProbeKind::Response => {
                        self.watch.answers.on_response(key, probe.seq);
                        Ok(())
                    }
                    ProbeKind::Request => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn watch_request(
        &mut self,
        now: Time,
        host: usize,
        to: (u32, u64),
        probe: &Probe,
    ) -> Result<(), Violation> {
        let end = self.host_end(host);
        let known = end.machine.paths().fold(0u16, |word, (number, _)| word | 1 << number);
        let slot = end.datapath.slots().find(|slot| end.datapath.tx_of(*slot) == Some(to));
        let key = slot.and_then(|slot| end.datapath.key_of(slot));
        Violation::unless(probe.heard & !known == 0, "paths exist", || {
            format!("host {host} hears {:b}, its paths are {known:b}", probe.heard)
        })?;
        self.watch.on_request(now, host)?;
        key.map_or(Ok(()), |key| self.watch.expect_newer(to, key.0, probe.seq))
    }

    /// Checks a datagram of a signalling connection.
    pub(super) fn watch_signal(
        &mut self,
        now: Time,
        at: PathRef,
        place: Place,
        datagram: &Datagram,
    ) -> Result<(), Violation> {
        let (from_host, host) = (place == Place::FromHost, at.host);
        if !from_host && place != Place::FromAnchor {
            return Ok(());
        }
        self.watch.outputs[if from_host { host } else { self.hosts.len() }] += 1;
        for said in self.streams.on_datagram(datagram, from_host) {
            if matches!(said, Said::Counts) {
                self.watch.on_count(now, host)?;
                continue;
            }
            self.watch.on_signal(now, host)?;
            if let Said::Anchor(FromAnchor::Registered { inner, .. }) = said {
                let agent =
                    self.stage.agent::<segue_sim::tunnel::HostAgent>(self.hosts[host].agent);
                let current = agent.signal().current().map(|(conn, _)| conn.id());
                let running = (current == Some(datagram.conn)).then(|| agent.role().epoch());
                let anchor = self.stage.agent::<segue_sim::tunnel::AnchorAgent>(self.anchor);
                let known = anchor.records().find(|known| known.name == self.hosts[host].name);
                self.reference.on_registered(now, host, &inner, (known, running))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_host(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let end = self.stage.agent::<segue_sim::tunnel::HostAgent>(self.hosts[host].agent).end();
        expect_obeyed(end.wrong(), &format_args!("host {host}"))?;
        let there = |slot: u8| end.machine.paths().any(|(number, _)| number == slot);
        let bound =
            end.datapath.bindings_hold() && end.machine.flows().all(|(_, flow)| there(flow.path));
        Violation::unless(bound, "paths exist", || {
            format!("a flow of host {host} is bound to a path that is gone")
        })?;
        let Watch { host_paths, numbers, .. } = &mut self.watch;
        let seen = &mut host_paths[host];
        // An interface that has returned may briefly use the grant sent for its former path.
        for (_, gone) in seen.iter().filter(|(number, _)| !there(**number)) {
            numbers.retain(|(index, cookie, _), _| (*index, *cookie) != gone.tx);
        }
        seen.retain(|number, _| there(*number));
        for (number, path) in end.machine.paths() {
            let Some(client) = path.client() else { continue };
            let Some(tx) = end.datapath.tx_of(u32::from(number)) else { continue };
            let accesses = &self.stage.hosts[host].accesses;
            let place = accesses.iter().position(|access| access.name == path.name());
            let Some(place) = place else { continue };
            let truth = self.stage.truth(PathRef { host, path: place });
            let what = format_args!("path {number} of host {host}");
            let before = seen.entry(number).or_insert(Seen {
                tx,
                began: now,
                watched: None,
                counters: [0; 9],
            });
            note(before, now, tx, client.estimates(), &what)?;
            expect_sense(truth, client.estimates(), &what)?;
        }
        self.expect_own_orders(host)
    }

    pub(super) fn check_anchor(&mut self, now: Time) -> Result<(), Violation> {
        let end = self.stage.agent::<segue_sim::tunnel::AnchorAgent>(self.anchor).end();
        expect_obeyed(end.wrong(), &"the anchor")?;
        Violation::unless(
            end.datapath.flows_reach_their_hosts(),
            "flows reach their hosts",
            || "a flow goes over a path of another host than its destination's".into(),
        )?;
        for host in end.machine.hosts() {
            let known = host.paths.keys().fold(0u16, |word, number| word | 1 << number);
            for slot in host.paths.values() {
                let word = end.datapath.heard(*slot);
                Violation::unless(word.is_some_and(|w| w & !known == 0), "paths exist", || {
                    format!("the anchor hears {word:?} of {}, whose paths are {known:b}", host.name)
                })?;
            }
        }
        let machine = &end.machine;
        let Watch { anchor_paths, shown, used, stated, .. } = &mut self.watch;
        anchor_paths.retain(|slot, _| machine.path(*slot).is_some());
        shown.clear();
        let slots = machine.paths().map(|(slot, _)| slot);
        let taken = slots.chain(used.last().copied()).max().unwrap_or_default();
        for (slot, path) in machine.paths() {
            let via = path.via().is_none_or(|via| machine.path(via.slot).is_some());
            Violation::unless(via, "paths exist", || {
                format!("slot {slot} goes over {:?}, which is gone", path.via())
            })?;
            if end.datapath.is_shown(slot) {
                shown.insert(slot);
            }
            let Some(tx) = end.datapath.tx_of(slot) else { continue };
            let seen = Seen { tx, began: now, watched: None, counters: [0; 9] };
            let what = format_args!("the anchor's slot {slot}");
            if anchor_paths.get(&slot).is_none_or(|before| before.tx != tx) {
                let rests = used.insert(slot) || taken + FEW >= MAX_SLOTS;
                Violation::unless(rests, "slots rest", || {
                    format!("{what} is used again while others have not been used")
                })?;
            }
            let before = anchor_paths.entry(slot).or_insert(seen);
            note(before, now, tx, path.server().estimates(), &what)?;
            before.watched = path.is_watched().then(|| before.watched.unwrap_or(now));
            let sees = !self.readings && path.is_watched();
            let key = end.datapath.key_of(slot).filter(|_| sees);
            let says = key.and_then(|key| stated.get(&key.0)).copied();
            let in_force = path.keepalive();
            Violation::unless(
                says.is_none_or(|says| says == in_force),
                "the newest settings",
                || format!("{what} has {in_force:?}, the newest request said {says:?}"),
            )?;
        }
        Ok(())
    }

    /// An operator's order for an interface does not apply to another interface with the same path number.
    fn expect_own_orders(&self, host: usize) -> Result<(), Violation> {
        let machine = &self.host_end(host).machine;
        let (flows, classes) = &self.hosts[host].pins;
        let name = |path: usize| self.stage.hosts[host].accesses[path].name.as_str();
        for (key, flow) in machine.flows() {
            let pinned = flow.pinned.and_then(|n| machine.paths().find(|(number, _)| *number == n));
            let Some((_, path)) = pinned else { continue };
            let number = usize::from(key.sport.wrapping_sub(APP_PORT));
            let ordered = flows.get(number).copied().flatten().map(name);
            Violation::unless(ordered == Some(path.name()), "orders end with their path", || {
                format!("flow {host}.{number} is pinned to {}, ordered is {ordered:?}", path.name())
            })?;
        }
        for (class, path) in machine.orders() {
            let ordered = classes[class as usize].map(name);
            Violation::unless(ordered == Some(path), "orders end with their path", || {
                format!(
                    "{} of host {host} is pinned to {path}, ordered is {ordered:?}",
                    class.name()
                )
            })?;
        }
        Ok(())
    }
}
