//! Cells and radios: accesses of routers, and the interfaces of nodes that attach to them.
//!
//! ```text
//!   node ─ radio ══ sgrN ─┬─ emulator of this radio in this cell ─┬─ sgcN ══ cell ─ router
//!                         └─ … in the next cell …                 └─ … of the next radio
//! ```
//!
//! A radio and a cell each have a permanent veth pair. From their first meeting they also have an emulator between
//! them, so that radios in a cell neither share its rate nor receive each other's frames. Attaching opens the emulator.
//! The devices in the middle are up while there is an attachment, so the devices at the ends have a carrier exactly
//! then; the kernel and its listeners see this carrier. A radio in two cells receives from both. It sends to the
//! newest, except for traffic of the links themselves (ARP, neighbour discovery), which it sends to both because the
//! older one would otherwise not find it.

mod attach;
mod settings;
mod state;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use segue_ip::Prefix;
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_netem::{Counters, LinkSpec};

use crate::announce::{Announcement, Listeners, Socket};
use crate::log::Direction;
use state::{Cell, FIRST_CELL, FIRST_RADIO, Port, Radio, mac};

pub(crate) use state::Air;

/// An access of a router.
#[derive(Clone, Debug, Default)]
pub struct CellSpec {
    /// The router.
    pub router: String,
    /// Radios without addresses receive one from this prefix while they are attached: its first address plus a number,
    /// from 2.
    pub prefix: Option<Prefix>,
    /// The router's address in the cell: the gateway of radios with an address of its family.
    pub gateway: Option<IpAddr>,
    /// From a radio to the router.
    pub up: LinkSpec,
    /// From the router to a radio.
    pub down: LinkSpec,
}

impl CellSpec {
    /// The router's address in the cell, with the length of the cell's prefix if the prefix contains it.
    pub(crate) fn own_address(&self) -> Option<Prefix> {
        let gateway = self.gateway?;
        let wide = self.prefix.filter(|prefix| prefix.contains(gateway));
        Some(wide.map_or(Prefix::host(gateway), |prefix| Prefix::new(gateway, prefix.len)))
    }
}

/// A node's interface that attaches to cells.
#[derive(Clone, Debug, Default)]
pub struct RadioSpec {
    /// The node.
    pub node: String,
    /// The device's name there.
    pub interface: String,
    /// Addresses that it keeps in all cells.
    pub addresses: Vec<Prefix>,
    /// Maximum number of cells at a time, at least 1. Attaching to another one leaves the oldest.
    pub at_once: usize,
}

/// All cells and radios, and their announcements.
#[derive(Clone, Debug)]
pub(crate) struct SharedAir {
    air: Arc<Mutex<Air>>,
    socket: Arc<Socket>,
}

impl SharedAir {
    /// Creates an empty set of cells and radios, and opens the announcement socket. `prefix` is the prefix of the lab's
    /// namespaces, and `middle` contains the emulators' devices.
    pub(crate) fn new(middle: Arc<Netns>, prefix: &str) -> Result<SharedAir> {
        let socket = Arc::new(Socket::open(prefix)?);
        let air = Air {
            middle,
            cells: BTreeMap::new(),
            radios: BTreeMap::new(),
            socket: Arc::clone(&socket),
            listeners: Listeners::default(),
        };
        Ok(SharedAir { air: Arc::new(Mutex::new(air)), socket })
    }

    /// A panic under the lock aborts one event; the others continue.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Air> {
        self.air.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

impl Air {
    pub(crate) fn add_cell(&mut self, name: &str, spec: &CellSpec, node: Arc<Netns>) -> Result<()> {
        if self.cells.contains_key(name) {
            bail!("there are two cells called {name}");
        }
        spec.up.check()?;
        spec.down.check()?;
        let number = self.cells.len() as u32;
        let peer = (format!("sgc{number}"), FIRST_CELL + number);
        let port = Port::make(&self.middle, &spec.router, node, name, peer, mac(2, number))?;
        // A radio in two cells sends ARP requests to both; only the cell with the address may answer.
        port.netns.run(|| link::sysctl(&format!("net/ipv4/conf/{name}/arp_ignore"), "1"))??;
        if let Some(own) = spec.own_address() {
            port.netns.run(|| link::add_address(name, own))??;
        }
        let CellSpec { prefix, gateway, up, down, .. } = spec.clone();
        let cell = Cell { number, port, prefix, gateway, up, down, given: 0 };
        self.cells.insert(name.to_owned(), cell);
        Ok(())
    }

    pub(crate) fn add_radio(&mut self, spec: &RadioSpec, node: Arc<Netns>) -> Result<()> {
        let name = format!("{}:{}", spec.node, spec.interface);
        if self.radios.contains_key(&name) {
            bail!("there are two radios called {name}");
        }
        let number = self.radios.len() as u32;
        let peer = (format!("sgr{number}"), FIRST_RADIO + number);
        let port = (&spec.node, node, &spec.interface);
        let port = Port::make(&self.middle, port.0, port.1, port.2, peer, mac(1, number))?;
        port.netns.run(|| -> Result<()> {
            for address in &spec.addresses {
                link::add_address(&port.device, *address)?;
            }
            // Without addresses it behaves like an ordinary host and accepts router advertisements.
            if spec.addresses.is_empty() {
                link::sysctl(&format!("net/ipv6/conf/{}/accept_ra", port.device), "1")?;
            }
            Ok(())
        })??;
        let radio = Radio {
            number,
            port,
            fixed: spec.addresses.clone(),
            at_once: spec.at_once.max(1),
            attached: Vec::new(),
            met: BTreeMap::new(),
            settings: Vec::new(),
        };
        self.radios.insert(name, radio);
        Ok(())
    }

    /// Counters (up, down) for each radio and each cell that it has met.
    pub(crate) fn counters(&self) -> Vec<(String, [Counters; 2])> {
        let all = self.radios.iter().flat_map(|(name, radio)| {
            radio.met.iter().map(move |(cell, met)| {
                let counters = Direction::ALL.map(|way| met.handle.counters(way));
                (format!("{name} in {cell}"), counters)
            })
        });
        all.collect()
    }

    /// Problems between radios and the cells that they have met.
    pub(crate) fn troubles(&self) -> Vec<(String, Vec<String>)> {
        let all = self.radios.iter().flat_map(|(name, radio)| {
            let of = move |(cell, met): (&String, &state::Met)| {
                (format!("{name} in {cell}"), met.handle.troubles())
            };
            radio.met.iter().map(of)
        });
        all.collect()
    }

    /// Accepts waiting listeners and sends them the current attachments. Called before each event as well, so that a
    /// listener that connected before an event receives it.
    pub(crate) fn welcome(&mut self) {
        while let Some(stream) = self.socket.accept() {
            self.greet(stream);
        }
    }

    fn greet(&mut self, stream: UnixStream) {
        let attached = self.radios.iter().flat_map(|(name, radio)| {
            radio.attached.iter().map(move |(cell, since)| (name, cell, *since))
        });
        let present: Vec<Announcement> = attached
            .filter_map(|(radio, cell, since)| self.announcement(radio, cell, since))
            .collect();
        self.listeners.add(stream, &present);
    }
}
