//! Implements [`Datapath`] for boxed packet paths.

use alloc::boxed::Box;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_keepalive::Reading;
use segue_wire::{FlowKey, Size};

use super::{Datapath, FlowCount, PathCounters, PathSetup, ProbeOrder, Reinjection, Via};

impl<D: Datapath + ?Sized> Datapath for Box<D> {
    type Error = D::Error;
    type Packet = D::Packet;

    fn set_path(&mut self, slot: u32, config: &PathSetup) -> Result<(), Self::Error> {
        (**self).set_path(slot, config)
    }

    fn remove_path(&mut self, slot: u32) {
        (**self).remove_path(slot)
    }

    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), Self::Error> {
        (**self).set_via(slot, via)
    }

    fn reinject(&mut self, order: Reinjection) -> usize {
        (**self).reinject(order)
    }

    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), Self::Error> {
        (**self).set_inner(address, owner)
    }

    fn remove_inner(&mut self, address: IpAddr) {
        (**self).remove_inner(address)
    }

    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), Self::Error> {
        (**self).bind_flow(key, slot)
    }

    fn unbind_flow(&mut self, key: &FlowKey) {
        (**self).unbind_flow(key)
    }

    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount> {
        (**self).count_flow(key)
    }

    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), Self::Error> {
        (**self).send_probes(orders)
    }

    fn test_size(&mut self, slot: u32, test: Size, dscp: u8) {
        (**self).test_size(slot, test, dscp)
    }

    fn set_heard(&mut self, slots: &[u32], heard: u16) {
        (**self).set_heard(slots, heard)
    }

    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        (**self).set_quiet(slot, quiet)
    }

    fn set_down(&mut self, slot: u32, silence: Option<Span>) {
        (**self).set_down(slot, silence)
    }

    fn set_deaf(&mut self, slot: u32, deaf: bool) {
        (**self).set_deaf(slot, deaf)
    }

    fn set_one_by_one(&mut self, slot: u32) {
        (**self).set_one_by_one(slot)
    }

    fn reading(&mut self, slot: u32) -> Option<Reading> {
        (**self).reading(slot)
    }

    fn measures(&self) -> bool {
        (**self).measures()
    }

    fn sweep(&mut self, now: Time) -> Option<Time> {
        (**self).sweep(now)
    }

    fn heartbeat(&mut self) {
        (**self).heartbeat()
    }

    fn inject(&mut self, packet: Self::Packet) {
        (**self).inject(packet)
    }

    fn refuse(&mut self, packet: Self::Packet) {
        (**self).refuse(packet)
    }

    fn is_set(&self, slot: u32) -> bool {
        (**self).is_set(slot)
    }

    fn counters(&mut self, slot: u32) -> PathCounters {
        (**self).counters(slot)
    }
}
