//! State of cells and radios.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use segue_clock::Time;
use segue_grammar::hint;
use segue_ip::{Prefix, Route};
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_netem::LinkSpec;

use crate::announce::{Listeners, Socket};
use crate::emulator::{EmulatorSpec, Handle, wire_like};

/// Index of the first cell's device in the emulators' node, and of the first radio's. High enough that no namespace
/// assigns them by itself.
pub(super) const FIRST_CELL: u32 = 2_000_000;
pub(super) const FIRST_RADIO: u32 = 3_000_000;
/// First bytes of the link-layer addresses, locally administered. One byte for the kind and two for the number follow.
const MAC: [u8; 3] = [0x02, 0x5e, 0x67];

/// Cells, radios, and the listeners to their announcements.
#[derive(Debug)]
pub(crate) struct Air {
    /// The namespace of the emulators' devices.
    pub(super) middle: Arc<Netns>,
    pub(super) cells: BTreeMap<String, Cell>,
    /// By `NODE:INTERFACE`.
    pub(super) radios: BTreeMap<String, Radio>,
    pub(super) socket: Arc<Socket>,
    pub(super) listeners: Listeners,
}

/// A device of a node, and its peer in the middle.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) node: String,
    pub(super) netns: Arc<Netns>,
    pub(super) device: String,
    pub(super) index: u32,
    pub(super) mac: [u8; 6],
    pub(super) inner: String,
}

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) number: u32,
    pub(super) port: Port,
    pub(super) prefix: Option<Prefix>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) up: LinkSpec,
    pub(super) down: LinkSpec,
    /// Number of addresses that radios have received from the prefix.
    pub(super) given: u32,
}

#[derive(Debug)]
pub(super) struct Radio {
    pub(super) number: u32,
    pub(super) port: Port,
    pub(super) fixed: Vec<Prefix>,
    pub(super) at_once: usize,
    /// The cells that it is attached to and since when, oldest first.
    pub(super) attached: Vec<(String, Time)>,
    pub(super) met: BTreeMap<String, Met>,
    /// System settings installed for its attachments.
    pub(super) settings: Vec<Setting>,
}

/// A radio and a cell that have met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) handle: Handle,
    /// The radio's address in this cell, if it receives one.
    pub(super) address: Option<Prefix>,
}

/// A system setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// An address of the radio.
    Address(Prefix),
    /// A route of the radio's node.
    Route(Route),
    /// A route of the router with this cell.
    Way(String, Route),
}

impl Air {
    pub(super) fn cell(&self, name: &str) -> Result<&Cell> {
        let known = || self.cells.keys().map(String::as_str).collect::<Vec<_>>();
        let cell = self.cells.get(name);
        cell.with_context(|| format!("there is no cell {name}{}", hint(name, &known())))
    }

    pub(super) fn radio(&self, name: &str) -> Result<&Radio> {
        let known = || self.radios.keys().map(String::as_str).collect::<Vec<_>>();
        let radio = self.radios.get(name);
        radio.with_context(|| format!("there is no radio {name}{}", hint(name, &known())))
    }
}

pub(super) fn found<'a>(
    radios: &'a mut BTreeMap<String, Radio>,
    name: &str,
) -> Result<&'a mut Radio> {
    radios.get_mut(name).with_context(|| format!("there is no radio {name}"))
}

impl Port {
    /// Creates a device of a node, up and without carrier, and its peer with this name and index.
    pub(super) fn make(
        middle: &Netns,
        node: &str,
        netns: Arc<Netns>,
        device: &str,
        (inner, peer_index): (String, u32),
        mac: [u8; 6],
    ) -> Result<Port> {
        middle.run(|| link::create_veth_numbered(&inner, peer_index, device, Some(&netns)))??;
        let index = netns.run(|| -> Result<u32> {
            wire_like(device)?;
            link::set_mac(device, mac)?;
            link::set_up(device, true)?;
            Ok(link::index_of(device)?)
        })??;
        let (node, device) = (node.to_owned(), device.to_owned());
        Ok(Port { node, netns, device, index, mac, inner })
    }
}

impl Cell {
    /// The link between the cell and a radio.
    pub(super) fn spec(&self, radio: u32) -> EmulatorSpec {
        let seed = u64::from(self.number) << 32 | u64::from(radio);
        EmulatorSpec { up: self.up.clone(), down: self.down.clone(), seed, log: false }
    }
}

pub(super) fn mac(kind: u8, number: u32) -> [u8; 6] {
    let [.., high, low] = number.to_be_bytes();
    [MAC[0], MAC[1], MAC[2], kind, high, low]
}
