//! Carries out the orders of a schedule.

use alloc::string::String;
use core::net::IpAddr;

use alloc::vec::Vec;
use segue_clock::Time;
use segue_ip::{Input, Interface};
use segue_sim::role::Order as RoleOrder;
use segue_sim::tunnel::{AnchorAgent, Enrolment, HostAgent};
use segue_steering::Class;
use segue_tunnel::{AnchorInput, HostInput};
use segue_wire::MAX_PATHS;
use segue_wire::TooBig;

use super::apps::Copy;
use super::layout::class_of;
use super::shape::{Moved, Order};
use super::state::Tunnels;
use crate::fault::{PathRef, Way};

impl Tunnels {
    pub(super) fn obey(&mut self, now: Time, order: Order) {
        match order {
            Order::TooBig(at, way, mtu) => self.too_big(at, way, mtu),
            Order::BreakSignal(host) => self.break_signal(host),
            Order::OldCopy(host) => {
                let epoch = self.reference.epoch(host).filter(|_| self.hosts[host].enrolled);
                if let Some(epoch) = epoch {
                    let copy = self.hosts[host].copy;
                    self.stage.command(copy, |copy: &mut Copy, io| copy.register(io, epoch - 1));
                }
            }
            Order::Unenrol(host) => {
                self.hosts[host].enrolled = false;
                self.reference.unenrolled(now, host);
                self.enrolment(Enrolment::End(self.hosts[host].name.clone()));
            }
            Order::Enrol(host) => {
                self.hosts[host].enrolled = true;
                self.enrolment(Enrolment::Begin(self.hosts[host].name.clone()));
            }
            Order::Handover(host, moved, to) => self.hand_over(host, moved, to),
            Order::Keepalive(at, on) => {
                let path = self.stage.hosts[at.host].accesses[at.path].name.clone();
                let machine = &self.host_end(at.host).machine;
                let there = machine.paths().any(|(_, known)| known.name() == path);
                let known = &mut self.hosts[at.host].paths[at.path].keepalive;
                if known.0 != on && there {
                    *known = (on, now);
                }
                self.tell(at.host, HostInput::Keepalive { path, on });
            }
            Order::Flow(host, flow, on) => {
                let known = &mut self.hosts[host].flows[flow];
                let begins = on && !known.runs;
                known.runs = on;
                if begins {
                    known.round += 1;
                    self.queue.schedule(now, (host, flow, known.round));
                }
            }
        }
    }

    fn hand_over(&mut self, host: usize, moved: Moved, to: Option<usize>) {
        let machine = &self.host_end(host).machine;
        let name = to.map(|path| self.stage.hosts[host].accesses[path].name.clone());
        let there = |name: &String| machine.paths().any(|(_, path)| path.name() == name);
        let flow = match moved {
            Moved::Flow(flow) => self.key(host, flow),
            _ => None,
        };
        let known = flow.is_none_or(|key| machine.flows().any(|(flow, _)| *flow == key));
        // The machine ignores orders about unknown flows and paths.
        let holds = name.as_ref().is_none_or(there) && known;
        let class = match moved {
            Moved::Class(class) => Some(class),
            _ => None,
        };
        if flow.is_none() && matches!(moved, Moved::Flow(_)) {
            return;
        }
        if holds {
            let (flows, classes) = &mut self.hosts[host].pins;
            match moved {
                Moved::Flow(flow) => flows[flow] = to,
                Moved::Class(_) | Moved::All => {
                    for (flow, pin) in flows.iter_mut().enumerate() {
                        *pin = pin.filter(|_| class.is_some_and(|class| class != class_of(flow)));
                    }
                    for (each, pin) in Class::ALL.into_iter().zip(classes) {
                        if class.is_none_or(|class| class == each) {
                            *pin = to;
                        }
                    }
                }
            }
        }
        self.tell(host, HostInput::Handover { flow, class, to: name });
    }

    /// A worn host briefly has more interfaces than there are path numbers.
    pub(super) fn wear(&mut self, host: usize) {
        if !self.hosts[host].worn {
            return;
        }
        let agent = self.hosts[host].agent;
        self.stage.command(agent, |agent: &mut HostAgent, io| {
            let old = (0..MAX_PATHS as u8).map(|number| Interface {
                name: alloc::format!("old{number}"),
                index: 1_000 + u32::from(number),
                addresses: Vec::from([IpAddr::from([169, 254, 0, number])]),
                mtu_bytes: 1_500,
                ..Interface::default()
            });
            let attached = io.node.adapters.iter().filter(|adapter| adapter.out.is_some());
            let now: Vec<Interface> = attached.map(|adapter| adapter.interface.clone()).collect();
            let then = now.iter().cloned().chain(old).take(MAX_PATHS).collect();
            agent.handle(io, Input::Interfaces(then));
            agent.handle(io, Input::Interfaces(now));
        });
    }

    fn tell(&mut self, host: usize, input: HostInput) {
        let agent = self.hosts[host].agent;
        self.stage.command(agent, |agent: &mut HostAgent, io| agent.handle(io, input));
    }

    fn enrolment(&mut self, order: Enrolment) {
        self.stage.command(self.anchor, |agent: &mut AnchorAgent, io| {
            agent.obey(io, RoleOrder::Own(order));
        });
    }

    /// Both ends of the host's connection close it.
    fn break_signal(&mut self, host: usize) {
        let agent = self.hosts[host].agent;
        self.stage.command(agent, |agent: &mut HostAgent, io| {
            agent.signal_mut().close(io.now);
            agent.work(io);
        });
        let name = &self.hosts[host].name;
        let known = self.anchor_end().machine.hosts().find(|known| known.name == *name);
        if let Some(conn) = known.and_then(|known| known.conn) {
            self.stage.command(self.anchor, |agent: &mut AnchorAgent, io| {
                agent.signal_mut().close(io.now, conn);
                agent.work(io);
            });
        }
    }

    /// A router's message quotes the packet and thus contains its destination index and cookie.
    fn too_big(&mut self, at: PathRef, way: Way, mtu: u16) {
        let name = &self.stage.hosts[at.host].accesses[at.path].name;
        let end = self.host_end(at.host);
        let path = end.machine.paths().find(|(_, path)| path.name() == name);
        let quoted = path.and_then(|(number, _)| end.datapath.tx_of(u32::from(number)));
        let Some((index, cookie)) = quoted else { return };
        let back = self.anchor_end().datapath.tx_of(index);
        let said = |(index, cookie)| TooBig { index, cookie, mtu: Some(mtu) };
        if way.up() {
            self.tell(at.host, HostInput::TooBig(said((index, cookie))));
        }
        if let Some(quoted) = back.filter(|_| way.down()) {
            let input = AnchorInput::TooBig(said(quoted));
            self.stage.command(self.anchor, |agent: &mut AnchorAgent, io| agent.handle(io, input));
        }
    }
}
