//! Hosts and an anchor on a [`Stage`]: the simulator's roles ([`segue_sim::tunnel`]), in which the daemons'
//! machines run.
//!
//! ```text
//!   Apps ── HostAgent ══ stage: interfaces, faulty links, NATs ══ AnchorAgent ── Apps
//!                               │ Tap reads the bytes
//! ```
//!
//! [`mod@reference`] tracks which registrations, assignments and breaks really happened; [`invariants`] and
//! [`agreement`] compare the machines with it.

mod agreement;
mod apps;
mod draw;
mod host;
mod invariants;
mod layout;
mod orders;
mod reference;
pub mod shape;
mod state;
mod streams;
mod tap;
mod watch;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Rng, Time};
use segue_sim::packet::UDP;
use segue_sim::{AgentId, Packet};
use segue_tunnel::host::LEAST_INNER;

use self::apps::Apps;
use self::layout::{FLOWS, LARGE, PAUSE, SILENT, SMALL, shape_of};
use self::shape::{HostSettings, Moved, Order, Settings};
use self::state::Tunnels;
use self::tap::{Place, Tag, What};
use crate::fault::{Fault, HostShape, Node, PathRef, PathShape};
use crate::protocol::Protocol;
use crate::stage::{Scene, Stage, Staged, Touched};
use crate::{Record, Schedule, Violation, Words, World};

/// Hosts and an anchor as a protocol.
pub struct Tunnel;

impl Protocol for Tunnel {
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["anchor"]
    }

    /// One to three hosts; one in eight has one path, the others two or three. Probes ride at two hosts of five;
    /// at one of four, each path may use IPv6.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let host = |rng: &mut Rng| HostShape {
            settings: HostSettings::draw(rng).to_string(),
            paths: (0..1 + rng.below(8).div_ceil(4)).map(|_| PathShape::draw(rng)).collect(),
        };
        let settings = Settings::draw(rng).lines();
        let mut hosts: Vec<HostShape> = (0..1 + rng.below(3)).map(|_| host(rng)).collect();
        for host in &mut hosts {
            let both = rng.chance(0.25);
            host.paths.iter_mut().for_each(|path| path.v6 = both && rng.chance(0.5));
        }
        (settings, hosts)
    }

    fn draw_order(&self, rng: &mut Rng, at: PathRef) -> Option<String> {
        Some(Order::draw(rng, at).to_string())
    }

    fn draw_more(&self, schedule: &mut Schedule) {
        draw::more(schedule);
    }

    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        Settings::default().take(words)
    }

    fn check_host(&self, words: &mut Words<'_>) -> Result<(), String> {
        HostSettings::read(words).map(drop)
    }

    fn check_order(&self, words: &mut Words<'_>, hosts: &[HostShape]) -> Result<(), String> {
        Order::read(words, hosts).map(drop)
    }

    fn simpler(&self, schedule: &Schedule) -> Vec<Schedule> {
        let plain = Settings::default().lines();
        let mut simpler = Vec::from([Schedule { settings: plain, ..schedule.clone() }]);
        for host in 0..schedule.hosts.len() {
            let mut candidate = schedule.clone();
            let shape = &mut candidate.hosts[host];
            let period = HostSettings::of(shape).period;
            let plain = HostSettings { period, ..HostSettings::default() };
            shape.settings = plain.to_string();
            shape.paths.iter_mut().for_each(|path| path.v6 = false);
            simpler.push(candidate);
        }
        simpler
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        let mut tunnels = Tunnels::new(schedule, start);
        for host in 0..tunnels.hosts.len() {
            tunnels.wear(host);
        }
        Box::new(Staged(tunnels))
    }
}

impl Tunnels {
    fn run_flow(&mut self, now: Time, host: usize, flow: usize) {
        let (pace, dscp) = shape_of(flow);
        let round = self.hosts[host].flows[flow].round;
        self.queue.schedule(now + pace, (host, flow, round));
        let Some(key) = self.key(host, flow) else { return };
        let counts = (self.counted.0..self.counted.1).contains(&now);
        let sizes =
            [self.host_end(host).datapath.mtu(), self.anchor_end().datapath.mtu_to(key.src)];
        let ends = [(key.src, key.sport), (key.dst, key.dport)];
        for (way, up) in [true, false].into_iter().enumerate() {
            let still = if up { self.stage.hosts[host].still } else { self.stage.still };
            if up && flow == SILENT || now < still.until {
                continue;
            }
            let state = &mut self.hosts[host].flows[flow];
            let number = state.sent[way];
            state.sent[way] += u32::from(counts);
            let tag = Tag { host: host as u8, flow: flow as u8, counts, number, up };
            let bytes = if flow == LARGE { sizes[way].unwrap_or(LEAST_INNER) } else { SMALL };
            let (from, to) = (ends[way], ends[1 - way]);
            let packet = Packet { dscp, ..Packet::new(UDP, from, to, bytes.into(), tag) };
            let apps = if up { self.hosts[host].apps } else { self.server };
            self.stage.command(apps, |_: &mut Apps, io| io.send(packet));
        }
    }

    /// Takes the packets that have arrived at the applications.
    fn take_arrived(&mut self, apps: AgentId) {
        let Some(apps) = self.stage.network.agent_mut::<Apps>(apps) else { return };
        for tag in apps.arrived.drain(..) {
            // A packet that was duplicated in doubt may arrive twice.
            if tag.counts && self.arrived.insert(tag) {
                let flow = &mut self.hosts[usize::from(tag.host)].flows[usize::from(tag.flow)];
                flow.received[usize::from(!tag.up)] += 1;
            }
        }
    }

    /// Checks the packets seen on the links since the last check.
    fn look_at_packets(&mut self, now: Time, record: &mut Record) -> Result<(), Violation> {
        let seen = core::mem::take(&mut self.tape.borrow_mut().seen);
        self.watch.begin();
        for sighting in &seen {
            record.detail(now, || tap::text(sighting));
            let (at, place, what) = sighting;
            match what {
                What::Data(tag, rode) => self.note_size(now, *at, *place, *tag, *rode),
                What::Tunnel { header, probe, tag } => {
                    self.watch_tunnel(now, *at, *place, header, probe.as_ref(), tag.is_some())?;
                }
                What::Signal(datagram) => self.watch_signal(now, *at, *place, datagram)?,
            }
        }
        self.watch.expect_few_outputs()?;
        // Reuse the allocation.
        let mut tape = self.tape.borrow_mut();
        tape.seen = seen;
        tape.seen.clear();
        Ok(())
    }

    /// Notes a flow packet that met a link's size limit or filter.
    fn note_size(&mut self, now: Time, at: PathRef, place: Place, tag: Tag, rode: bool) {
        if place == Place::Filtered && rode {
            self.hosts[at.host].lost_probe = now;
        }
        let (Place::TooLarge(up) | Place::Fits(up)) = place else { return };
        let too_large = place == Place::TooLarge(up);
        if too_large && rode {
            self.hosts[at.host].lost_probe = now;
        }
        if usize::from(tag.flow) == LARGE {
            let path = &mut self.hosts[at.host].paths[at.path];
            let lost = &mut path.too_large[usize::from(!up)];
            let since = lost.filter(|(_, last)| now.since(*last) < PAUSE).map_or(now, |(at, _)| at);
            *lost = too_large.then_some((since, now));
            if too_large && up {
                path.lost_up = Some(now);
            }
        }
        if too_large && tag.counts {
            self.too_large.insert(tag);
        }
    }
}

impl Scene for Tunnels {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn next(&self) -> Option<Time> {
        self.queue.next_at()
    }

    fn happen(&mut self, now: Time, record: &mut Record) -> Touched {
        let next = self.queue.pop_until(now);
        let Some((_, (host, flow, round))) = next else { return Touched::All };
        record.note(now, &[9, host as u64, flow as u64], || format!("flow {host}.{flow} sends"));
        let state = &self.hosts[host].flows[flow];
        if state.runs && state.round == round {
            self.run_flow(now, host, flow);
        }
        Touched::Both(host)
    }

    fn on_fault(&mut self, now: Time, fault: &Fault) {
        self.watch.on_fault(now, fault.host());
        if let Fault::Rename(at) = fault {
            let name = &self.stage.hosts[at.host].accesses[at.path].name;
            let paths = self.host_end(at.host).machine.paths();
            let number = paths.filter(|(_, path)| path.name() == name).map(|(n, _)| n).next();
            if let Some(number) = number {
                self.watch.path_gone(at.host, number);
            }
            let host = &mut self.hosts[at.host];
            host.paths[at.path].keepalive = (true, now);
            // Orders for an interface end with it.
            let (flows, classes) = &mut host.pins;
            for pin in flows.iter_mut().chain(classes) {
                *pin = pin.filter(|path| *path != at.path);
            }
        }
    }

    fn restarted(&mut self, now: Time, node: Node) {
        match node {
            Node::Host(host) => {
                for path in &mut self.hosts[host].paths {
                    path.keepalive = (true, now);
                }
                self.hosts[host].pins = Default::default();
                self.wear(host);
                self.watch.host_began(host);
            }
            Node::Fixed(_) => {
                self.reference.anchor_began(now);
                self.watch.anchor_began();
            }
        }
    }

    fn order(&mut self, now: Time, order: &str) {
        if let Ok(order) = Order::read(&mut Words::of(order), &self.shapes) {
            self.obey(now, order);
        }
    }

    fn mend(&mut self, now: Time) {
        for host in 0..self.hosts.len() {
            self.obey(now, Order::Enrol(host));
            for path in 0..self.hosts[host].paths.len() {
                self.obey(now, Order::Keepalive(PathRef { host, path }, true));
            }
            self.obey(now, Order::Handover(host, Moved::All, None));
        }
    }

    fn quiet(&mut self, now: Time) {
        for host in 0..self.hosts.len() {
            for flow in 0..FLOWS {
                self.obey(now, Order::Flow(host, flow, true));
            }
        }
    }

    fn check(&mut self, now: Time, at: Touched, record: &mut Record) -> Result<(), Violation> {
        self.look_at_packets(now, record)?;
        let hosts = at.hosts(self.hosts.len());
        for host in hosts.clone().filter(|_| !matches!(at, Touched::Core(_))) {
            self.check_host(now, host)?;
            self.take_arrived(self.hosts[host].apps);
        }
        if !matches!(at, Touched::Host(_)) {
            self.check_anchor(now)?;
            self.take_arrived(self.server);
        }
        self.expect_answers(now)?;
        for host in hosts {
            let copy = self.stage.agent::<apps::Copy>(self.hosts[host].copy);
            Violation::unless(!copy.registered, "epochs grow", || {
                format!("an old copy of host {host} is registered")
            })?;
            let stands = self.signalling_stands(host);
            self.reference.note_registered(now, host, stands);
            self.expect_no_flow_on_a_dead_path(now, host)?;
            self.expect_agreement(now, host)?;
            self.expect_true_losses(now, host)?;
        }
        Ok(())
    }

    fn finish(&mut self, now: Time) -> Result<(), Violation> {
        self.expect_recovered(now)
    }

    fn describe(&self) -> String {
        agreement::describe(self)
    }
}
