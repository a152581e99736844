//! Attachment and detachment of radios.

use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use segue_clock::Time;
use segue_grammar::FIRST_ADDRESS;
use segue_ip::Prefix;
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_linux::netns::Netns;

use super::state::{Air, Met, Port, Radio, found};
use crate::announce::{Announcement, What};
use crate::emulator::{Gate, start_air};
use crate::log::Direction;

/// Interval for polling a device's carrier.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of polls after a change, for which the kernel needs less than one, …
const LOOKS: u32 = 100;
/// … and for a new device, whose state the kernel reports as unknown for up to a second, which counts as a carrier.
const FIRST_LOOKS: u32 = 1_500;

impl Air {
    /// Attaches a radio to a cell.
    pub(crate) fn attach(&mut self, radio: &str, cell: &str) -> Result<()> {
        if !self.come(radio, cell)? {
            // Settings that failed at the first attachment may succeed now.
            self.settle(radio)?;
            bail!("{radio} is in {cell} already");
        }
        Ok(())
    }

    /// Detaches a radio from a cell, or from all.
    pub(crate) fn detach(&mut self, radio: &str, cell: Option<&str>) -> Result<()> {
        let attached = &self.radio(radio)?.attached;
        let there: Vec<String> = attached.iter().map(|(cell, _)| cell.clone()).collect();
        let Some(cell) = cell else {
            if there.is_empty() {
                bail!("{radio} is in no cell");
            }
            return there.iter().try_for_each(|cell| self.leave(radio, cell).map(drop));
        };
        if !self.leave(radio, cell)? {
            bail!("{radio} is not in {cell}");
        }
        Ok(())
    }

    /// Attaches a radio to a cell. A radio at its maximum number of cells first leaves the oldest. Returns false if it
    /// is attached already.
    pub(crate) fn come(&mut self, radio: &str, cell: &str) -> Result<bool> {
        self.welcome();
        self.cell(cell)?;
        let known = self.radio(radio)?;
        if known.attached.iter().any(|(there, _)| there == cell) {
            return Ok(false);
        }
        if known.attached.len() >= known.at_once {
            let (oldest, _) = known.attached[0].clone();
            self.leave(radio, &oldest)?;
        }
        self.meet(radio, cell)?;
        let now = monotonic();
        let first_there = !self.is_busy(cell);
        let (known, there) = (found(&mut self.radios, radio)?, self.cells.get(cell));
        let there = there.context("it was looked up above")?;
        for (older, _) in &known.attached {
            known.met[older].handle.set_gate(Direction::Up, Gate::Link);
        }
        for way in Direction::ALL {
            known.met[cell].handle.set_gate(way, Gate::Open);
        }
        let first_of_radio = known.attached.is_empty();
        known.attached.push((cell.to_owned(), now));
        let carriers = [(first_there, &there.port), (first_of_radio, &known.port)];
        set_carriers(&self.middle, &chosen(carriers), true)?;
        self.tell(radio, cell, now, What::Attached);
        self.settle(radio)?;
        Ok(true)
    }

    /// Detaches a radio from a cell. Packets that wait for serialisation are lost. Returns false if it was not
    /// attached.
    pub(crate) fn leave(&mut self, radio: &str, cell: &str) -> Result<bool> {
        self.welcome();
        self.cell(cell)?;
        self.radio(radio)?;
        let known = found(&mut self.radios, radio)?;
        let Some(place) = known.attached.iter().position(|(there, _)| there == cell) else {
            return Ok(false);
        };
        known.attached.remove(place);
        for way in Direction::ALL {
            known.met[cell].handle.set_gate(way, Gate::Closed);
        }
        if let Some((newest, _)) = known.attached.last() {
            known.met[newest].handle.set_gate(Direction::Up, Gate::Open);
        }
        let now = monotonic();
        let (known, there) = (self.radio(radio)?, self.cell(cell)?);
        let last_of_radio = known.attached.is_empty();
        let carriers = [(last_of_radio, &known.port), (!self.is_busy(cell), &there.port)];
        set_carriers(&self.middle, &chosen(carriers), false)?;
        self.tell(radio, cell, now, What::Detached);
        self.settle(radio)?;
        Ok(true)
    }

    /// Waits until new devices show that they have no carrier. Call this before the first attachment.
    pub(crate) fn await_silence(&self) -> Result<()> {
        let radios = self.radios.values().map(|radio| &radio.port);
        let ports = radios.chain(self.cells.values().map(|cell| &cell.port));
        { ports }.try_for_each(|port| port.shows(false, FIRST_LOOKS))
    }

    /// Announces that a radio will leave a cell, if it is attached.
    pub(crate) fn announce(&mut self, radio: &str, cell: &str, leaves: Time) {
        self.welcome();
        let there = |radio: &Radio| radio.attached.iter().any(|(there, _)| there == cell);
        if self.radios.get(radio).is_some_and(there) {
            let now = monotonic();
            let within_ms = leaves.since(now).0 / 1_000_000;
            self.tell(radio, cell, now, What::Leaving { within_ms });
        }
    }

    /// The announcement that a radio attached to a cell at this time, if both exist.
    pub(super) fn announcement(&self, radio: &str, cell: &str, at: Time) -> Option<Announcement> {
        let (port, there) = (&self.radios.get(radio)?.port, &self.cells.get(cell)?.port);
        Some(Announcement {
            at_ns: at.0,
            what: What::Attached,
            node: port.node.clone(),
            interface: port.device.clone(),
            mac: link::mac_text(port.mac),
            cell: cell.to_owned(),
            router: there.node.clone(),
            router_interface: there.device.clone(),
            router_mac: link::mac_text(there.mac),
        })
    }

    fn tell(&mut self, radio: &str, cell: &str, at: Time, what: What) {
        if let Some(announcement) = self.announcement(radio, cell, at) {
            self.listeners.tell(&Announcement { what, ..announcement });
        }
    }

    /// At the first meeting of a radio and a cell, creates their emulator and allocates the radio's address.
    fn meet(&mut self, radio: &str, cell: &str) -> Result<()> {
        let name = cell;
        let cell = self.cells.get_mut(name).context("it was looked up before")?;
        let radio = found(&mut self.radios, radio)?;
        let Entry::Vacant(place) = radio.met.entry(name.to_owned()) else { return Ok(()) };
        let address = match cell.prefix.filter(|_| radio.fixed.is_empty()) {
            None => None,
            Some(prefix) => {
                let mut own = prefix.nth(cell.given + FIRST_ADDRESS);
                if own.is_some() && own == cell.gateway {
                    cell.given += 1;
                    own = prefix.nth(cell.given + FIRST_ADDRESS);
                }
                let own =
                    own.with_context(|| format!("the prefix of {name} has no address left"))?;
                cell.given += 1;
                Some(Prefix::new(own, prefix.len))
            }
        };
        let spec = cell.spec(radio.number);
        let (near, far) = (&radio.port.inner, &cell.port.inner);
        let handle = start_air(&self.middle, near, far, &spec, radio.port.mac)?;
        place.insert(Met { handle, address });
        Ok(())
    }

    /// Whether any radio is in this cell.
    fn is_busy(&self, cell: &str) -> bool {
        self.radios.values().any(|radio| radio.attached.iter().any(|(there, _)| there == cell))
    }
}

fn chosen(ports: [(bool, &Port); 2]) -> Vec<&Port> {
    ports.into_iter().filter_map(|(chosen, port)| chosen.then_some(port)).collect()
}

/// Sets or clears the carrier of devices and waits until they show it. A carrier that is lost and back before the
/// kernel notices would be an invisible change.
fn set_carriers(middle: &Netns, ports: &[&Port], carrier: bool) -> Result<()> {
    for port in ports {
        middle.run(|| link::set_up(&port.inner, carrier))??;
    }
    ports.iter().try_for_each(|port| port.shows(carrier, LOOKS))
}

impl Port {
    /// Polls its device at most `looks` times until it shows this carrier state.
    fn shows(&self, carrier: bool, looks: u32) -> Result<()> {
        self.netns.run(|| {
            for _ in 0..looks {
                let links = link::links()?;
                let own = links.iter().find(|link| link.index == self.index);
                // A device that its node has set down shows no carrier.
                if own.is_none_or(|own| own.running == carrier || !own.up) {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            Ok(())
        })?
    }
}
