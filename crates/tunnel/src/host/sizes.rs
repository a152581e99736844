//! The largest packet that each path, and so the tunnel, can carry. A packet must fit every path that its flow may move
//! to, so that no move makes packets too large.

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_clock::{Deadline, Machine, Time};
use segue_keepalive::size::{Direction, SizeInput, SizeOutput, Sizes};
use segue_steering::PathView;
use segue_wire::signal::FromHost;
use segue_wire::{Encapsulation, Header, Probe, Size, TooBig};

use super::Host;
use super::path::{Path, PathSizes};
use crate::config::UNCUT_PAUSE;
use crate::{Carried, HostOutput, Order, Output, Report};

/// Length of the outer IP and UDP headers, in bytes; indexed by whether the anchor's address is IPv6.
const OUTER: [u16; 2] = [28, 48];
/// The inner packet size that every path should take, the IPv6 minimum (RFC 8200, section 5). A path that takes less is
/// narrow: it carries traffic only if there is no other path.
pub const LEAST_INNER: u16 = 1_280;
/// No IPv4 link in use takes less than this. A smaller figure from the anchor is raised to it.
const LEAST_IPV4: u16 = 576;
/// Data count as large from this many bytes on, and from this many bytes per packet.
const LARGE: (u64, u64) = (1_200, 500);
/// Up to this size probes may ride on any packet, because the kernel reserves space for them.
const ETHERNET: u16 = 1_500;

impl Path {
    fn overhead(&self) -> u16 {
        OUTER[usize::from(self.remote.is_ipv6())]
    }

    fn largest(&self) -> u16 {
        let payload = self.mtu.saturating_sub(self.overhead().into());
        payload.clamp(Size::LEAST.into(), Size::MOST.into()) as u16
    }

    /// The largest IP packet that the path is known to take in a direction, in bytes.
    #[must_use]
    pub fn mtu(&self, way: Direction) -> u16 {
        let limit = self.sizes.as_ref().map_or(self.largest(), |sizes| sizes.sizes.limit(way));
        limit.saturating_add(self.overhead())
    }

    /// The largest UDP payload that the path takes in a direction, in bytes.
    pub(super) fn payload(&self, way: Direction) -> u16 {
        self.mtu(way).saturating_sub(self.overhead())
    }

    /// The largest inner packet that the path takes in a direction, in bytes.
    pub(super) fn inner(&self, way: Direction) -> u16 {
        self.inside(self.mtu(way))
    }

    /// The largest inner packet in an outer IP packet of this size, in bytes.
    fn inside(&self, mtu: u16) -> u16 {
        let rides = self.keepalive().rides && mtu < ETHERNET;
        let header = match (self.encapsulation(), rides) {
            (Encapsulation::Upmt, _) => 0,
            (Encapsulation::Segue, false) => Header::LEN,
            (Encapsulation::Segue, true) => Probe::PACKET_LEN,
        };
        (mtu - self.overhead()).saturating_sub(header as u16)
    }

    pub(super) fn sizes_deadline(&self) -> Deadline {
        self.sizes.as_ref().filter(|_| self.is_up()).and_then(|sizes| sizes.sizes.deadline())
    }

    /// The largest inner packet that it takes in both directions, in bytes.
    fn inner_both(&self) -> u16 {
        self.inside(self.mtu(Direction::Up).min(self.mtu(Direction::Down)))
    }

    /// Returns whether it takes less than [`LEAST_INNER`].
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.inner_both() < LEAST_INNER
    }

    /// Returns whether the size of a direction is being tested.
    #[must_use]
    pub fn tests_sizes(&self) -> bool {
        self.sizes.as_ref().is_some_and(|sizes| {
            [Direction::Up, Direction::Down].into_iter().any(|way| sizes.sizes.is_testing(way))
        })
    }

    /// The size that the host offers to the anchor, if the host's device takes `device` bytes. For a narrow path this
    /// is the size for both directions, so that both ends agree on which paths are narrow.
    pub(super) fn offered(&self, device: Option<u16>) -> u16 {
        let path = if self.is_narrow() { self.inner_both() } else { self.inner(Direction::Down) };
        path.min(device.unwrap_or(u16::MAX))
    }
}

impl Host {
    /// Searches for the sizes of a path that came up, or tests those known from before.
    pub(super) fn review_sizes(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let (largest, overhead) = (path.largest(), path.overhead());
        if path.encapsulation() == Encapsulation::Upmt {
            // UPMT packets have no room for a test.
            path.sizes = None;
        } else if path.sizes.is_none() {
            let sizes = Sizes::new(now, largest, overhead);
            path.sizes = Some(Box::new(PathSizes { sizes, carried: None, lost: [0; 2] }));
            self.tick_sizes_of(now, number);
        } else {
            self.follow_sizes(now, number, SizeInput::Used(Direction::Up));
            self.follow_sizes(now, number, SizeInput::Used(Direction::Down));
        }
    }

    /// Handles a new interface, address or MTU of a path.
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
            self.tick_sizes_of(now, number);
        }
    }

    /// Handles the answer to a test.
    pub(super) fn on_sized(&mut self, now: Time, slot: u32, token: u32) {
        let Ok(number) = u8::try_from(slot) else { return };
        if !self.on_filter_tested(now, number, token) {
            self.follow_sizes(now, number, SizeInput::Answer(token));
        }
    }

    /// Handles a path's counters. A direction is tested when it carries large data or loses packets. The host notices
    /// downlink packets that are too large only as losses.
    pub(super) fn on_carried(&mut self, now: Time, slot: u32, carried: Carried) {
        let Ok(number) = u8::try_from(slot) else { return };
        let Some(path) = self.paths.get_mut(&number) else { return };
        let counted = path.client().map(|client| [client.estimates().up, client.estimates().down]);
        let lost = counted.unwrap_or_default().map(|way| way.sent.saturating_sub(way.received));
        let Some(sizes) = &mut path.sizes else { return };
        let before = sizes.carried.replace(carried).unwrap_or(carried);
        let lost_before = core::mem::replace(&mut sizes.lost, lost);
        for (way, index) in [(Direction::Up, 0), (Direction::Down, 1)] {
            let bytes = carried.bytes[index].saturating_sub(before.bytes[index]);
            let packets = carried.packets[index].wrapping_sub(before.packets[index]);
            let is_large = bytes >= LARGE.0 && bytes >= LARGE.1 * u64::from(packets);
            if is_large {
                self.follow_sizes(now, number, SizeInput::Used(way));
            }
            if lost[index] > lost_before[index] {
                self.follow_sizes(now, number, SizeInput::Lost(way));
            }
        }
    }

    /// Handles a router's report that a packet was too big. The quoted cookie shows that the router saw such a packet.
    pub(super) fn on_too_big(&mut self, now: Time, TooBig { index, cookie, mtu }: TooBig) {
        let quoted = |path: &Path| {
            path.grant.as_ref().is_some_and(|grant| (grant.index, grant.cookie) == (index, cookie))
        };
        let number = self.paths.iter().find(|(_, path)| quoted(path)).map(|(n, _)| *n);
        if let Some(number) = number {
            self.on_hint(now, number, Direction::Up, mtu);
        }
    }

    /// Handles the anchor's report of what its device takes.
    pub(super) fn on_largest(&mut self, bytes: u16) {
        self.anchor_takes = Some(bytes.max(LEAST_IPV4));
        self.fit();
    }

    /// Handles a router's packet size, which is only a reason to test.
    pub(super) fn on_hint(&mut self, now: Time, number: u8, way: Direction, mtu: Option<u16>) {
        let Some(path) = self.paths.get(&number) else { return };
        let payload = mtu.map(|mtu| mtu.saturating_sub(path.overhead()));
        self.follow_sizes(now, number, SizeInput::TooLarge(way, payload));
    }

    /// Reports to the anchor that its super-packets arrive unsegmented: no device cuts them.
    pub(super) fn on_uncut(&mut self, now: Time, slot: u32) {
        let registered = self.registered();
        let Ok(number) = u8::try_from(slot) else { return };
        if let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set())
            && registered
            && path.uncut_told.is_none_or(|at| now.since(at) >= UNCUT_PAUSE)
        {
            path.uncut_told = Some(now);
            self.out
                .push_back(Output::own(HostOutput::Signal(FromHost::OneByOne { path: number })));
        }
    }

    /// Gives a path's size search an input and carries out its outputs.
    pub(super) fn follow_sizes(&mut self, now: Time, number: u8, input: SizeInput) {
        self.drive_sizes(now, number, |sizes| sizes.handle(now, input));
    }

    /// Ticks a path's size search and carries out its outputs.
    fn tick_sizes_of(&mut self, now: Time, number: u8) {
        self.drive_sizes(now, number, |sizes| sizes.tick(now));
    }

    fn drive_sizes(&mut self, now: Time, number: u8, call: impl FnOnce(&mut Sizes)) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(sizes) = &mut path.sizes else { return };
        call(&mut sizes.sizes);
        let mut found = false;
        while let Some(output) = sizes.sizes.poll() {
            match output {
                SizeOutput::Ask(test) => {
                    self.out.push_back(Output::Order(Order::TestSize(u32::from(number), test, 0)));
                }
                SizeOutput::Found(..) => found = true,
            }
        }
        // Offer the size even if the search found nothing new: after a new grant the search starts anew, while the
        // anchor still has an earlier size. A larger size is offered only once it is tested.
        let testing = sizes.sizes.is_testing(Direction::Down);
        let (offered, told) = (path.offered(self.config.largest), path.largest_told);
        if offered < told || offered > told && !testing {
            self.offer(number);
        }
        let Some(path) = self.paths.get(&number).filter(|_| found) else { return };
        let mtu = [Direction::Up, Direction::Down].map(|way| path.mtu(way));
        let report = Report::PathMtu { path: path.name.clone(), up: mtu[0], down: mtu[1] };
        self.out.push_back(Output::report(report));
        self.fit();
        self.redirect_dead_paths(now);
        self.evaluate(now);
    }

    /// Sets the tunnel's MTU to the largest size that both ends' devices and all paths take, ignoring narrow paths if
    /// there are wider ones. The anchor does the same.
    pub(super) fn fit(&mut self) {
        let set = || self.paths.values().filter(|path| path.is_set());
        let wide =
            set().filter(|path| !path.is_narrow()).map(|path| path.inner(Direction::Up)).min();
        let mtu = wide.or_else(|| set().map(|path| path.inner_both()).min()).map(|mtu| {
            let devices = [self.config.largest, self.anchor_takes].into_iter().flatten();
            devices.fold(mtu, u16::min)
        });
        if let Some(mtu) = mtu.filter(|_| mtu != self.mtu) {
            self.mtu = Some(mtu);
            self.out.push_back(Output::own(HostOutput::SetMtu(mtu)));
        }
    }
}

/// Marks narrow paths as unusable if a wider one is usable.
pub(super) fn prefer_wide(
    mut views: Vec<PathView>,
    is_narrow: impl Fn(u8) -> bool,
) -> Vec<PathView> {
    if views.iter().any(|view| view.usable && !is_narrow(view.id.0)) {
        views.iter_mut().for_each(|view| view.usable &= !is_narrow(view.id.0));
    }
    views
}
