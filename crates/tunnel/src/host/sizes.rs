//! How large a packet each path takes, and with that the tunnel: whatever leaves fits every path that flows may move
//! to, so that no move makes packets too large.

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_clock::{Deadline, Machine, Time};
use segue_keepalive::size::{SizeInput, SizeOutput, Sizes, Way};
use segue_steering::PathView;
use segue_wire::signal::FromHost;
use segue_wire::{Encapsulation, Header, Probe, Size, TooBig};

use super::{Host, Path};
use crate::config::UNCUT_PAUSE;
use crate::{Carried, HostOutput, Report};

/// IP and UDP header outside, by whether the anchor's address is IPv6.
const OUTER: [u16; 2] = [28, 48];
/// What every path is to take of inner packets: IPv6 has no smaller ones (RFC 8200, section 5). One that takes less
/// carries what nothing else does.
pub const LEAST_INNER: u16 = 1_280;
/// Bytes and packets on average that say that data are large.
const LARGE: (u64, u64) = (1_200, 500);
/// Sizes up to which probes may ride on any packet: the kernel knows of these.
const ETHERNET: u16 = 1_500;

/// A path's sizes, and what it had carried when it was last looked at.
pub struct PathSizes {
    sizes: Sizes,
    carried: Option<Carried>,
}

impl Path {
    fn overhead(&self) -> u16 {
        OUTER[usize::from(self.remote.is_ipv6())]
    }

    fn largest(&self) -> u16 {
        let payload = self.mtu.saturating_sub(self.overhead().into());
        payload.clamp(Size::LEAST.into(), Size::MOST.into()) as u16
    }

    /// The largest IP packet that the path takes in a direction, as far as is known.
    #[must_use]
    pub fn mtu(&self, way: Way) -> u16 {
        let limit = self.sizes.as_ref().map_or(self.largest(), |sizes| sizes.sizes.limit(way));
        limit.saturating_add(self.overhead())
    }

    /// The largest inner packet that the path takes in a direction.
    pub(super) fn inner(&self, way: Way) -> u16 {
        let rides = self.keepalive().rides && self.mtu(way) < ETHERNET;
        let header = match (self.encapsulation(), rides) {
            (Encapsulation::Upmt, _) => 0,
            (Encapsulation::Segue, false) => Header::LEN,
            (Encapsulation::Segue, true) => Probe::PACKET_LEN,
        };
        (self.mtu(way) - self.overhead()).saturating_sub(header as u16)
    }

    pub(super) fn sizes_deadline(&self) -> Deadline {
        self.sizes.as_ref().filter(|_| self.is_up()).and_then(|sizes| sizes.sizes.deadline())
    }

    /// It takes less than what every path is to take.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.inner(Way::Up).min(self.inner(Way::Down)) < LEAST_INNER
    }
}

impl Host {
    /// Looks for what a path takes that is up, or tests what was known before it was down.
    pub(super) fn review_sizes(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let (largest, overhead) = (path.largest(), path.overhead());
        if path.encapsulation() == Encapsulation::Upmt {
            // Its packets have no room for a test.
            path.sizes = None;
        } else if path.sizes.is_none() {
            let sizes = Sizes::new(now, largest, overhead);
            path.sizes = Some(Box::new(PathSizes { sizes, carried: None }));
            self.follow_sizes(now, number, SizeInput::Tick);
        } else {
            self.follow_sizes(now, number, SizeInput::Used(Way::Up));
            self.follow_sizes(now, number, SizeInput::Used(Way::Down));
        }
    }

    /// A path goes over another interface, from another address, or its interface takes other sizes.
    pub(super) fn renew_sizes(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get(&number) else { return };
        let largest = path.largest();
        if path.sizes.is_some() {
            self.follow_sizes(now, number, SizeInput::Begin { largest });
        } else {
            self.offer(number);
        }
        self.fit();
    }

    pub(super) fn tick_sizes(&mut self, now: Time) {
        let due = |path: &Path| path.sizes_deadline().is_some_and(|(at, _)| at <= now);
        let numbers: Vec<u8> =
            self.paths.iter().filter(|(_, path)| due(path)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.follow_sizes(now, number, SizeInput::Tick);
        }
    }

    /// A test was answered.
    pub(super) fn on_sized(&mut self, now: Time, slot: u32, token: u32) {
        let Ok(number) = u8::try_from(slot) else { return };
        self.follow_sizes(now, number, SizeInput::Answer(token));
    }

    /// What a path has carried so far: a way that carries large data is tested.
    pub(super) fn on_carried(&mut self, now: Time, slot: u32, carried: Carried) {
        let Ok(number) = u8::try_from(slot) else { return };
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(sizes) = &mut path.sizes else { return };
        let before = sizes.carried.replace(carried).unwrap_or(carried);
        for (way, index) in [(Way::Up, 0), (Way::Down, 1)] {
            let bytes = carried.bytes[index].saturating_sub(before.bytes[index]);
            let packets = carried.packets[index].wrapping_sub(before.packets[index]);
            if bytes >= LARGE.0 && bytes >= LARGE.1 * u64::from(packets) {
                self.follow_sizes(now, number, SizeInput::Used(way));
            }
        }
    }

    /// A router has said that a packet was too big. Whoever knows the cookie has seen one.
    pub(super) fn on_too_big(&mut self, now: Time, TooBig { index, cookie, mtu }: TooBig) {
        let quoted = |path: &&Path| {
            path.grant.as_ref().is_some_and(|grant| (grant.index, grant.cookie) == (index, cookie))
        };
        let number = self.paths.iter().find(|(_, path)| quoted(&&***path)).map(|(n, _)| *n);
        if let Some(number) = number {
            self.on_hint(now, number, Way::Up, mtu);
        }
    }

    /// What a router has said is no more than a reason to test.
    pub(super) fn on_hint(&mut self, now: Time, number: u8, way: Way, mtu: Option<u16>) {
        let Some(path) = self.paths.get(&number) else { return };
        let payload = mtu.map(|mtu| mtu.saturating_sub(path.overhead()));
        self.follow_sizes(now, number, SizeInput::TooLarge(way, payload));
    }

    /// Tells the anchor that nobody cuts what it leaves in one piece.
    pub(super) fn on_uncut(&mut self, now: Time, slot: u32) {
        let registered = self.registered();
        let Ok(number) = u8::try_from(slot) else { return };
        if let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set())
            && registered
            && path.uncut_told.is_none_or(|at| now.since(at) >= UNCUT_PAUSE)
        {
            path.uncut_told = Some(now);
            self.out.push_back(HostOutput::Signal(FromHost::OneByOne { path: number }));
        }
    }

    /// Does what a path's tests say.
    pub(super) fn follow_sizes(&mut self, now: Time, number: u8, input: SizeInput) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(sizes) = &mut path.sizes else { return };
        sizes.sizes.handle(now, input);
        let mut found = [false; 2];
        while let Some(output) = sizes.sizes.poll() {
            match output {
                SizeOutput::Ask(test) => {
                    self.out.push_back(HostOutput::TestSize(u32::from(number), test));
                }
                SizeOutput::Found(way, _) => found[way as usize] = true,
            }
        }
        if !found.contains(&true) {
            return;
        }
        let mtu = [Way::Up, Way::Down].map(|way| path.mtu(way));
        let report = Report::PathMtu { path: path.name.clone(), up: mtu[0], down: mtu[1] };
        self.out.push_back(HostOutput::Report(report));
        if found[Way::Down as usize] {
            self.offer(number);
        }
        self.fit();
        self.redirect_dead_paths(now);
        self.evaluate(now);
    }

    /// Gives the tunnel the largest size that every path takes, but for narrow ones where there are others.
    pub(super) fn fit(&mut self) {
        let set = || self.paths.values().filter(|path| path.is_set());
        let wide = set().filter(|path| !path.is_narrow()).map(|path| path.inner(Way::Up)).min();
        let mtu = wide.or_else(|| set().map(|path| path.inner(Way::Up)).max());
        if let Some(mtu) = mtu.filter(|_| mtu != self.mtu) {
            self.mtu = Some(mtu);
            self.out.push_back(HostOutput::SetMtu(mtu));
        }
    }
}

/// Leaves narrow paths out where a wider one is usable.
pub(super) fn prefer_wide(
    mut views: Vec<PathView>,
    is_narrow: impl Fn(u8) -> bool,
) -> Vec<PathView> {
    if views.iter().any(|view| view.usable && !is_narrow(view.id.0)) {
        views.iter_mut().for_each(|view| view.usable &= !is_narrow(view.id.0));
    }
    views
}
