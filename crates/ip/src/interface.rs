//! Where a machine meets a network.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// An interface, as far as a protocol is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, unlike any other of the machine.
    pub name: String,
    /// Its number, from 1, unlike any other of the machine.
    pub index: u32,
    /// Its addresses that reach beyond the link.
    pub addresses: Vec<IpAddr>,
    /// The next hops of what leaves over it, at most one of each family; a family without one has its destinations on
    /// the link.
    pub gateways: Vec<IpAddr>,
    /// The largest IP packet that it takes, in bytes.
    pub mtu_bytes: u32,
}
