//! The effect of each fault on the network.

use alloc::string::ToString;

use segue_clock::Time;
use segue_tunnel::{AnchorInput, Ending, HostInput};
use segue_wire::TooBig;
use segue_wire::signal::{FromHost, SIGNAL_VERSION};

use super::access::{Access, outside};
use super::{Event, Tunnels};
use crate::Violation;
use crate::schedule::{Fault, PathRef, Way};

impl Tunnels {
    pub(super) fn on_fault(&mut self, now: Time, fault: &Fault) -> Result<(), Violation> {
        if let Some(node) = fault.host().and_then(|host| self.hosts.get_mut(host)) {
            node.disturbed = now;
        }
        self.watch.on_fault(now, fault.host());
        match *fault {
            Fault::Loss(at, way, _)
            | Fault::Burst(at, way, _)
            | Fault::Duplicate(at, way, _)
            | Fault::Reorder(at, way, ..)
            | Fault::Delay(at, way, _)
            | Fault::Narrow(at, way, _)
            | Fault::Cut(at, way)
            | Fault::Mend(at, way) => {
                self.on_links(now, at, way, fault);
                Ok(())
            }
            Fault::TooBig(at, way, mtu) => self.too_big(now, at, way, mtu),
            Fault::CutAll(host) => {
                for path in 0..self.hosts[host].accesses.len() {
                    self.on_links(now, PathRef { host, path }, Way::Both, fault);
                }
                Ok(())
            }
            Fault::Gone(at) => self.interface_gone(now, at),
            Fault::Back(at) => self.interface_back(now, at),
            Fault::Renumber(at) => self.renumber(now, at),
            Fault::Rebind(at) => {
                let to = outside(at.host, at.path, self.next_serial());
                let access = self.access(at);
                (access.outside, access.changed) = (to, now);
                Ok(())
            }
            Fault::RestartHost(host) => self.restart_host(now, host),
            Fault::RestartAnchor => {
                self.restart_anchor(now);
                Ok(())
            }
            Fault::BreakSignal(host) => match self.hosts[host].conn {
                Some(id) => self.end_conn(now, id),
                None => Ok(()),
            },
            Fault::OldCopy(host) => self.old_copy(now, host),
            Fault::Unenrol(host) => self.unenrol(now, host),
            Fault::Enrol(host) => {
                self.hosts[host].enrolled = true;
                Ok(())
            }
            Fault::Handover(host, to) => self.handover(now, host, to),
            Fault::Keepalive(at, on) => self.keepalive(now, at, on),
            Fault::Flow(host, flow, on) => {
                self.flow(now, host, flow, on);
                Ok(())
            }
            Fault::MendAll => self.mend_all(now),
        }
    }

    fn access(&mut self, at: PathRef) -> &mut Access {
        &mut self.hosts[at.host].accesses[at.path]
    }

    fn next_serial(&mut self) -> u16 {
        self.serial += 1;
        self.serial
    }

    fn on_links(&mut self, now: Time, at: PathRef, way: Way, fault: &Fault) {
        let access = self.access(at);
        if way.up() {
            access.up.inject(now, fault);
        }
        if way.down() {
            access.down.inject(now, fault);
        }
    }

    /// A router's message quotes the packet, and so its destination and its cookie.
    fn too_big(&mut self, now: Time, at: PathRef, way: Way, mtu: u16) -> Result<(), Violation> {
        let node = &self.hosts[at.host];
        let name = &node.accesses[at.path].name;
        let path = node.end.machine.paths().find(|(_, path)| path.name() == name);
        let quoted = path.and_then(|(number, _)| node.end.datapath.tx_of(u32::from(number)));
        let Some((index, cookie)) = quoted else { return Ok(()) };
        let back = self.anchor.datapath.tx_of(index);
        let said = |(index, cookie)| TooBig { index, cookie, mtu: Some(mtu) };
        if way.up() {
            self.tell_host(now, at.host, HostInput::TooBig(said((index, cookie))))?;
        }
        match back.filter(|_| way.down()) {
            Some(quoted) => self.tell_anchor(now, AnchorInput::TooBig(said(quoted))),
            None => Ok(()),
        }
    }

    fn interface_gone(&mut self, now: Time, at: PathRef) -> Result<(), Violation> {
        let access = self.access(at);
        if access.absent_since.is_some() {
            return Ok(());
        }
        (access.absent_since, access.changed) = (Some(now), now);
        self.announce(now, at.host)
    }

    /// The interface comes back with another index, as the kernel gives it.
    fn interface_back(&mut self, now: Time, at: PathRef) -> Result<(), Violation> {
        let ifindex = 100 + u32::from(self.next_serial());
        let access = self.access(at);
        if access.absent_since.is_none() {
            return Ok(());
        }
        (access.absent_since, access.changed) = (None, now);
        access.ifindex = ifindex;
        self.announce(now, at.host)
    }

    fn renumber(&mut self, now: Time, at: PathRef) -> Result<(), Violation> {
        let serial = self.next_serial();
        let [high, low] = serial.to_be_bytes();
        let access = self.access(at);
        access.inside = core::net::Ipv4Addr::new(172, 16 + at.host as u8, high, low).into();
        access.outside = outside(at.host, at.path, serial);
        access.changed = now;
        self.announce(now, at.host)
    }

    /// An old copy of the host registers, with an epoch before that of the host's last registration.
    fn old_copy(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let Some(epoch) = self.reference.epoch(host).filter(|_| self.hosts[host].enrolled) else {
            return Ok(());
        };
        let interface = self.hosts[host].accesses[0].name.clone();
        let conn = self.open(now, host, &interface)?;
        let message = FromHost::Register { version: SIGNAL_VERSION, epoch: epoch - 1 };
        self.reference.on_old_copy(conn);
        self.send_to_anchor(now, conn, message);
        Ok(())
    }

    fn unenrol(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let node = &mut self.hosts[host];
        node.enrolled = false;
        let name = node.name.clone();
        self.persisted.remove(&name);
        self.reference.unenrolled(now, host);
        self.tell_anchor(now, AnchorInput::End { host: name, why: Ending::Removed })
    }

    fn handover(&mut self, now: Time, host: usize, to: Option<usize>) -> Result<(), Violation> {
        let accesses = &self.hosts[host].accesses;
        let to = to.and_then(|path| accesses.get(path)).map(|access| access.name.to_string());
        self.tell_host(now, host, HostInput::Handover { flow: None, class: None, to })
    }

    fn keepalive(&mut self, now: Time, at: PathRef, on: bool) -> Result<(), Violation> {
        let access = self.access(at);
        if access.keepalive.0 != on {
            access.keepalive = (on, now);
        }
        let path = access.name.clone();
        self.tell_host(now, at.host, HostInput::Keepalive { path, on })
    }

    fn flow(&mut self, now: Time, host: usize, flow: usize, on: bool) {
        let known = &mut self.hosts[host].flows[flow];
        let begins = on && !known.runs;
        known.runs = on;
        if begins {
            known.round += 1;
            let round = known.round;
            self.queue.schedule(now, Event::Flow(host, flow, round));
        }
    }

    fn mend_all(&mut self, now: Time) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let node = &mut self.hosts[host];
            (node.enrolled, node.disturbed) = (true, now);
            for path in 0..self.hosts[host].accesses.len() {
                let at = PathRef { host, path };
                self.on_links(now, at, Way::Both, &Fault::MendAll);
                self.interface_back(now, at)?;
                self.keepalive(now, at, true)?;
            }
            self.handover(now, host, None)?;
        }
        Ok(())
    }
}
