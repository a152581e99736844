//! Nodes, links and addresses: the building blocks of a test network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use segue_clock::Span;
use segue_ip::{Prefix, Route};
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_linux::netns::{self, Netns};
use segue_netem::Counters;

use crate::agenda::{Agenda, Clockwork};
use crate::air::{CellSpec, RadioSpec, SharedAir};
use crate::announce;
use crate::emulator::{self, EmulatorSpec, Handle, wire_like};
use crate::log::Direction;

/// The node that contains the emulators' devices.
pub(crate) const EMULATORS: &str = "emu";
/// Index of the first link's device in that node; high enough that no namespace assigns it by itself.
const FIRST_LINK: u32 = 1_000_000;

/// A network of namespaces `segue-TAGPID-NODE`. Dropping it stops its emulators and deletes its nodes.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    // Drop order: first scheduled events end, then emulators stop, then their devices are deleted.
    clockwork: Option<Clockwork>,
    air: Option<SharedAir>,
    emulators: BTreeMap<String, Arc<Emulated>>,
    nodes: BTreeMap<String, Arc<Netns>>,
}

/// One end of a link: a device of this name in this node.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The node.
    pub node: &'a str,
    /// The device's name there.
    pub device: &'a str,
    /// Its addresses.
    pub addresses: &'a [Prefix],
}

/// A link with its two devices in the emulators' node; each is the peer of an end's device.
#[derive(Debug)]
pub(crate) struct Emulated {
    devices: [String; 2],
    handle: Handle,
    /// An end loses its carrier when the link is cut.
    senses: bool,
    middle: Arc<Netns>,
}

impl Emulated {
    /// Cuts or mends directions of the link. If the link senses cuts, an end that receives nothing loses its carrier.
    pub(crate) fn cut(&self, ways: &[Direction], cut: bool) -> Result<()> {
        for way in ways {
            self.handle.set_cut(*way, cut);
            if self.senses {
                let hears = &self.devices[1 - *way as usize];
                self.middle.run(|| link::set_up(hears, !cut))??;
            }
        }
        Ok(())
    }
}

impl Lab {
    /// Creates an empty network. First deletes leftovers of networks whose process has ended.
    ///
    /// # Errors
    /// The tag has characters other than lower-case letters, or no permission to create namespaces.
    pub fn new(tag: &str) -> Result<Lab> {
        if tag.is_empty() || !tag.bytes().all(|b| b.is_ascii_lowercase()) {
            bail!("the tag of a lab is made of lower-case letters, not {tag:?}");
        }
        clean();
        let prefix = format!("segue-{tag}{}", std::process::id());
        let (emulators, nodes) = (BTreeMap::new(), BTreeMap::new());
        let mut lab = Lab { prefix, clockwork: None, air: None, emulators, nodes };
        lab.add_node(EMULATORS, false)?;
        // The emulators' devices must not send their own packets (router solicitations, MLD).
        lab.node(EMULATORS)?
            .run(|| link::sysctl("net.ipv6.conf.default.disable_ipv6", "1"))?
            .context("keep the emulator's devices quiet")?;
        Ok(lab)
    }

    /// Prefix of the names of all its namespaces.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Adds a node; a router forwards packets between its links.
    ///
    /// # Errors
    /// The name exists, or no permission.
    pub fn add_node(&mut self, name: &str, router: bool) -> Result<()> {
        if self.nodes.contains_key(name) {
            bail!("there are two nodes called {name}");
        }
        let node = Netns::create(&format!("{}-{name}", self.prefix))?;
        node.run(|| -> Result<()> {
            // The networks test hosts with several default routes.
            for which in ["all", "default"] {
                link::sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")?;
                link::sysctl(&format!("net.ipv6.conf.{which}.accept_ra"), "0")?;
                link::sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0")?;
            }
            if router {
                link::sysctl("net.ipv4.ip_forward", "1")?;
                link::sysctl("net.ipv6.conf.all.forwarding", "1")?;
            }
            Ok(())
        })??;
        self.nodes.insert(name.to_owned(), Arc::new(node));
        Ok(())
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// No such node.
    pub fn node(&self, name: &str) -> Result<&Netns> {
        self.shared_node(name).map(Arc::as_ref)
    }

    fn shared_node(&self, name: &str) -> Result<&Arc<Netns>> {
        self.nodes.get(name).with_context(|| format!("there is no node called {name}"))
    }

    /// The names of the nodes, sorted, except for the emulators' node.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str).filter(|name| *name != EMULATORS)
    }

    /// The emulator of the link called `name`.
    ///
    /// # Errors
    /// No such emulated link.
    pub fn emulator(&self, name: &str) -> Result<&Handle> {
        Ok(&self.emulated(name)?.handle)
    }

    /// The emulated links with their names, sorted.
    pub fn emulators(&self) -> impl Iterator<Item = (&str, &Handle)> {
        self.emulators.iter().map(|(name, link)| (name.as_str(), &link.handle))
    }

    /// Connects two nodes with a perfect link with all offloads.
    ///
    /// # Errors
    /// A device name exists, an address is invalid, or no permission.
    pub fn connect(&mut self, a: End, b: End) -> Result<()> {
        let (node_a, node_b) = (self.node(a.node)?, self.node(b.node)?);
        node_a.run(|| link::create_veth(a.device, b.device, Some(node_b)))??;
        node_a.run(|| configure(&a))??;
        node_b.run(|| configure(&b))?
    }

    /// Connects two nodes with an emulated link called `name`; `up` is the direction from `a` to `b`. Both devices have
    /// no offloads and keep their carrier in all states of the emulator.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), or an invalid link specification.
    pub fn emulate(&mut self, name: &str, a: End, b: End, spec: &EmulatorSpec) -> Result<()> {
        self.join(name, [a, b], spec, false)
    }

    /// Like [`emulate`](Self::emulate), but an end that receives nothing because the link was [cut](Self::cut) loses
    /// its carrier, as with a cable.
    ///
    /// # Errors
    /// As for [`emulate`](Self::emulate).
    pub fn emulate_sensing(
        &mut self,
        name: &str,
        a: End,
        b: End,
        spec: &EmulatorSpec,
    ) -> Result<()> {
        self.join(name, [a, b], spec, true)
    }

    fn join(
        &mut self,
        name: &str,
        ends: [End; 2],
        spec: &EmulatorSpec,
        senses: bool,
    ) -> Result<()> {
        if self.emulators.contains_key(name) {
            bail!("there are two emulated links called {name}");
        }
        let number = self.emulators.len();
        let inner = [format!("sg{number}a"), format!("sg{number}b")];
        let middle = self.shared_node(EMULATORS)?;
        for (i, (end, inner)) in ends.iter().zip(&inner).enumerate() {
            let node = self.node(end.node)?;
            let index = FIRST_LINK + 2 * number as u32 + i as u32;
            middle.run(|| link::create_veth_numbered(inner, index, end.device, Some(node)))??;
            node.run(|| wire_like(end.device).and_then(|()| configure(end)))??;
            middle.run(|| link::set_up(inner, true))??;
        }
        let handle = emulator::start(middle, &inner[0], &inner[1], spec)
            .with_context(|| format!("emulated link {name}"))?;
        let link = Emulated { devices: inner, handle, senses, middle: Arc::clone(middle) };
        self.emulators.insert(name.to_owned(), Arc::new(link));
        Ok(())
    }

    /// Cuts directions of an emulated link: arriving and queued packets are lost until they are [mended](Self::mend).
    /// Independent of [`Handle::set_silent`].
    ///
    /// # Errors
    /// No such link, or no permission.
    pub fn cut(&self, name: &str, ways: &[Direction]) -> Result<()> {
        self.emulated(name)?.cut(ways, true)
    }

    /// Mends directions of an emulated link.
    ///
    /// # Errors
    /// No such link, or no permission.
    pub fn mend(&self, name: &str, ways: &[Direction]) -> Result<()> {
        self.emulated(name)?.cut(ways, false)
    }

    /// Adds a cell to a router: an interface with the cell's name, which has a carrier while a radio is in the cell.
    ///
    /// # Errors
    /// The name exists or is not a valid device name, no such node, an invalid link specification, or no permission.
    pub fn add_cell(&mut self, name: &str, cell: &CellSpec) -> Result<()> {
        let router = Arc::clone(self.shared_node(&cell.router)?);
        self.air()?.lock().add_cell(name, cell, router)
    }

    /// Adds a radio to a node: an interface that is not attached to a cell and has no carrier until it is. For up to a
    /// second, the kernel shows a carrier on new devices.
    ///
    /// # Errors
    /// The name exists or is not a valid device name, no such node, or no permission.
    pub fn add_radio(&mut self, radio: &RadioSpec) -> Result<()> {
        let node = Arc::clone(self.shared_node(&radio.node)?);
        self.air()?.lock().add_radio(radio, node)
    }

    /// Attaches a radio, `NODE:INTERFACE`, to a cell. A radio at its maximum number of cells leaves the oldest.
    ///
    /// # Errors
    /// No such radio or cell, it is attached to the cell already, the cell's prefix is exhausted, or no permission.
    pub fn attach(&self, radio: &str, cell: &str) -> Result<()> {
        self.some_air(radio)?.lock().attach(radio, cell)
    }

    /// Detaches a radio from a cell, or from all.
    ///
    /// # Errors
    /// No such radio or cell, it is not attached, or no permission.
    pub fn detach(&self, radio: &str, cell: Option<&str>) -> Result<()> {
        self.some_air(radio)?.lock().detach(radio, cell)
    }

    /// Announces to the listeners that a radio will leave a cell, if it is attached. The radio stays attached.
    pub fn announce_leaving(&self, radio: &str, cell: &str, within: std::time::Duration) {
        let leaves = monotonic() + Span(within.as_nanos() as u64);
        self.air.iter().for_each(|air| air.lock().announce(radio, cell, leaves));
    }

    /// Problems of emulated links and radios, in words. Healthy ones have no entry.
    #[must_use]
    pub fn troubles(&self) -> Vec<(String, Vec<String>)> {
        let links = self.emulators().map(|(name, handle)| (name.to_owned(), handle.troubles()));
        let air = self.air.iter().flat_map(|air| air.lock().troubles());
        links.chain(air).filter(|(_, troubles)| !troubles.is_empty()).collect()
    }

    /// Counters (up, down) for each radio and each cell that it has met.
    #[must_use]
    pub fn air_counters(&self) -> Vec<(String, [Counters; 2])> {
        self.air.as_ref().map_or(Vec::new(), |air| air.lock().counters())
    }

    /// Path of the socket for [announcements](announce::Announcement) of radios, if there are cells or radios.
    #[must_use]
    pub fn announcements(&self) -> Option<&Path> {
        self.air.as_ref().map(SharedAir::path)
    }

    /// Waits until the new devices of cells and radios show that they have no carrier.
    pub(crate) fn await_silence(&self) -> Result<()> {
        self.air.as_ref().map_or(Ok(()), |air| air.lock().await_silence())
    }

    /// Executes this agenda and abandons the previous one.
    pub(crate) fn follow(&mut self, agenda: Agenda) -> Result<()> {
        if self.air.is_some() || !agenda.is_empty() {
            self.clockwork = None;
            self.clockwork = Some(Clockwork::start(agenda, self.air.clone())?);
        }
        Ok(())
    }

    /// Returns the cells and radios, created at first use.
    fn air(&mut self) -> Result<&SharedAir> {
        if self.air.is_none() {
            let middle = Arc::clone(self.shared_node(EMULATORS)?);
            self.air = Some(SharedAir::new(middle, &self.prefix)?);
            self.follow(Agenda::default())?;
        }
        self.air.as_ref().context("it was made above")
    }

    fn some_air(&self, radio: &str) -> Result<&SharedAir> {
        self.air.as_ref().with_context(|| format!("there is no radio {radio}"))
    }

    /// Removes or restores the carrier of the first end of an emulated link.
    ///
    /// # Errors
    /// No such link, or no permission.
    pub fn set_carrier(&self, name: &str, carrier: bool) -> Result<()> {
        let device = &self.emulated(name)?.devices[0];
        Ok(self.node(EMULATORS)?.run(|| link::set_up(device, carrier))??)
    }

    /// The emulated link called `name`.
    pub(crate) fn emulated(&self, name: &str) -> Result<&Arc<Emulated>> {
        self.emulators.get(name).with_context(|| format!("there is no emulated link called {name}"))
    }

    /// Adds a route to a node: `destination` via `gateway`, with `metric` if given.
    ///
    /// # Errors
    /// No such node, or a gateway that is not on a link.
    pub fn route(
        &self,
        node: &str,
        destination: Prefix,
        gateway: IpAddr,
        metric: Option<u32>,
    ) -> Result<()> {
        let route = Route { metric, ..Route::via(destination, gateway) };
        let added = self.node(node)?.run(|| link::add_route(&route))?;
        added.with_context(|| format!("node {node}"))
    }
}

fn configure(end: &End) -> Result<()> {
    for address in end.addresses {
        link::add_address(end.device, *address)?;
    }
    Ok(link::set_up(end.device, true)?)
}

/// Deletes the namespaces of labs whose process has ended, and returns their names.
pub fn clean() -> Vec<String> {
    let mut cleaned = netns::list_with_prefix("segue-");
    cleaned.retain(|name| {
        let dead = pid_of(name).is_some_and(|pid| !alive(pid));
        dead && netns::delete(name).is_ok()
    });
    announce::clean(|lab| pid_of(lab).is_some_and(|pid| !alive(pid)));
    cleaned
}

/// The namespaces of all labs, including those of ended processes: name and process ID.
#[must_use]
pub fn list() -> Vec<(String, i32)> {
    let all = netns::list_with_prefix("segue-").into_iter();
    all.filter_map(|name| pid_of(&name).map(|pid| (name, pid))).collect()
}

/// The process ID in `segue-TAGPID-NODE`.
fn pid_of(name: &str) -> Option<i32> {
    let middle = name.strip_prefix("segue-")?.split('-').next()?;
    middle.trim_start_matches(|c: char| c.is_ascii_lowercase()).parse().ok()
}

/// Whether the process exists.
#[must_use]
pub fn alive(pid: i32) -> bool {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, None) != Err(nix::errno::Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_namespace_is_read_from_its_name() {
        assert_eq!(pid_of("segue-demo1234-host"), Some(1234));
        assert_eq!(pid_of("segue-t7-a-b"), Some(7));
        for other in ["segue-demo-host", "segue-host", "other-demo1-host", "segue-"] {
            assert_eq!(pid_of(other), None, "{other}");
        }
    }
}
