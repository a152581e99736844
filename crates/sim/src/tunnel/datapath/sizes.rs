//! How large packets are to be, and tests of that.

use core::net::IpAddr;

use segue_tunnel::Carried;
use segue_wire::Size;

use super::super::message::{Body, Message};
use super::{Datapath, Outer, Wrong};

impl<P: Clone> Datapath<P> {
    /// Leaves nothing on a path to a device to cut, which no model of one here would do.
    pub fn set_one_by_one(&mut self, slot: u32) {
        if let Some(path) = self.path_mut(slot) {
            path.one_by_one = true;
        }
    }

    /// Whether a path leaves nothing to a device to cut.
    pub fn is_one_by_one(&self, slot: u32) -> bool {
        self.path(slot).is_some_and(|path| path.one_by_one)
    }

    /// What a path of a host has carried.
    #[must_use]
    pub fn carried(&self, slot: u32) -> Option<Carried> {
        let path = self.path(slot)?;
        Some(Carried { bytes: path.bytes, packets: [path.tx, path.rx] })
    }

    /// The largest packet that is to enter the tunnel (host).
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// What [`Datapath::set_mtu`] said last.
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// The largest packet that is to be sent to an inner address (anchor).
    pub fn set_mtu_to(&mut self, address: IpAddr, mtu: u16) {
        if !self.inner.contains_key(&address) {
            self.note(Wrong::NoAddress(address));
        }
        self.mtus.insert(address, mtu);
    }

    /// What [`Datapath::set_mtu_to`] said last of an address that somebody has.
    #[must_use]
    pub fn mtu_to(&self, address: IpAddr) -> Option<u16> {
        self.mtus.get(&address).copied()
    }

    /// Makes a test of a path's packet size.
    pub fn test_size(&mut self, slot: u32, size: Size) -> Option<(Outer, Message<P>)> {
        let is_anchor = self.is_anchor;
        let path = self.path_mut(slot)?;
        let key = path.setup.key;
        Some((path.outer(is_anchor)?, path.message(Body::Size { size, key })))
    }
}
