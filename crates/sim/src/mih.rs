//! IEEE 802.21 on nodes: all that the simulator needs to know of it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Input, Interface, Output};
use segue_mih::{Event, Mihf, MihfConfig, MihfInput, MihfWish, Report};

use crate::packet::Packet;
use crate::role::{Engine, Pure, Role, RoleAgent, Start};
use crate::{Io, Results};

/// The role of a function. Its seed is set at each start.
pub struct MihfRole {
    /// What it needs to know.
    pub config: MihfConfig,
    /// What it has heard of what it is interested in, since its start.
    pub heard: Vec<Event>,
}

impl MihfRole {
    /// A function that has heard nothing.
    #[must_use]
    pub fn new(config: MihfConfig) -> MihfRole {
        MihfRole { config, heard: Vec::new() }
    }
}

/// A function, and the addresses of its node with their interfaces: what it sends from anywhere leaves from the first one that
/// fits.
pub struct MihfEngine {
    pure: Pure<Mihf>,
    own: Vec<(u32, IpAddr)>,
}

impl MihfEngine {
    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Mihf {
        &self.pure.0
    }
}

impl Engine for MihfEngine {
    type Own = MihfInput;
    type Wish = MihfWish;
    type Report = Report;
    type Record = Infallible;

    fn handle(&mut self, now: Time, input: Input<MihfInput, Infallible>) {
        if let Input::Interfaces(all) = &input {
            let of = |interface: &Interface| {
                let index = interface.index;
                interface.addresses.clone().into_iter().map(move |address| (index, address))
            };
            self.own = all.iter().flat_map(of).collect();
        }
        self.pure.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        self.pure.receive(io, over, packet);
    }

    fn tick(&mut self, now: Time) {
        self.pure.tick(now);
    }

    fn deadline(&self) -> Option<Time> {
        self.pure.deadline()
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<MihfWish, Report, Infallible>> {
        let mut output = self.pure.poll(io)?;
        if let Output::Send(datagram) = &mut output {
            let (from, to) = (datagram.from.0, datagram.to.0);
            let fits = |(_, own): &&(u32, IpAddr)| {
                *own == from || from.is_unspecified() && own.is_ipv4() == to.is_ipv4()
            };
            if let Some((index, own)) = self.own.iter().find(fits) {
                (datagram.interface, datagram.from.0) = (Some(*index), *own);
            }
        }
        Some(output)
    }
}

impl Role for MihfRole {
    type Engine = MihfEngine;
    type Order = MihfInput;

    fn start(&mut self, start: &Start) -> MihfEngine {
        self.heard.clear();
        let seed = start.rng().next_u64();
        let pure = Pure(Mihf::new(MihfConfig { seed, ..self.config.clone() }));
        MihfEngine { pure, own: Vec::new() }
    }

    fn order(agent: &mut RoleAgent<MihfRole>, io: &mut Io<'_>, order: MihfInput) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut MihfEngine, wish: MihfWish) {
        match wish {
            MihfWish::Event(event) => self.heard.push(event),
            // Links here have nothing that could be ordered of them, and there is no operator.
            MihfWish::Act { .. } | MihfWish::Answered { .. } => {}
        }
    }

    fn key(never: &Infallible) -> String {
        match *never {}
    }

    fn results(agent: &RoleAgent<MihfRole>, name: &str, results: &mut Results) {
        let mihf = agent.engine().machine();
        let stations: usize = mihf.links().values().map(|link| link.stations.len()).sum();
        results.int(format!("{name}.stations"), stations as u64);
        results.int(format!("{name}.heard"), agent.role().heard.len() as u64);
        results.int(format!("{name}.starts"), agent.starts());
    }
}
