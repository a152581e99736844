//! A program that decides about flows. What it has been told must always be a true picture of the anchor.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::{FlowKey, Input};
use segue_node::{NodeInput, Order, ProgramInput};
use segue_pmip::SessionState;

use super::{Anchor, Domain};
use crate::Violation;

impl Domain {
    fn tell_program(&mut self, number: u64, input: ProgramInput) {
        self.stage.command(self.lma, |agent: &mut Anchor, io| {
            agent.handle(io, Input::Own(NodeInput::Program(number, input)));
        });
    }

    /// The program connects, and decides from now on.
    pub(super) fn connect(&mut self) {
        if self.program.connection.is_some() {
            return;
        }
        self.program.connections += 1;
        let number = self.program.connections;
        self.program.connection = Some(number);
        self.tell_program(number, ProgramInput::Connected);
        self.tell_program(number, ProgramInput::Ordered(Order::Decide {}));
    }

    /// The program disconnects.
    pub(super) fn disconnect(&mut self) {
        if let Some(number) = self.program.connection {
            self.program.lose();
            self.tell_program(number, ProgramInput::Gone);
        }
    }

    /// The program sends the orders that are due.
    pub(super) fn decide(&mut self, now: Time) {
        let (due, later) = core::mem::take(&mut self.program.orders)
            .into_iter()
            .partition(|(at, _): &(Time, Order)| *at <= now);
        self.program.orders = later;
        for (_, order) in due {
            if let Some(number) = self.program.connection {
                self.tell_program(number, ProgramInput::Ordered(order));
            }
        }
    }

    /// Checks that the program knows all bindings and flows as they are.
    pub(super) fn check_program(&mut self, now: Time) -> Result<(), Violation> {
        let mut told = Vec::new();
        self.stage.command(self.lma, |agent: &mut Anchor, _| told = agent.role_mut().take_told());
        let Some(own) = self.program.connection else { return Ok(()) };
        let to_it = told.into_iter().filter(|(to, _)| to.is_none_or(|to| to == own));
        to_it.for_each(|(_, event)| self.program.learn(now, event));
        let lma = self.lma();
        let there = lma.sessions().filter(|(.., own)| own.state == SessionState::Active);
        let there = there.map(|(_, gateway, _, own)| {
            let place = (own.node.to_string(), own.link_layer.to_string());
            (place, (own.bid, gateway.to_string()))
        });
        let there: BTreeMap<_, _> = there.collect();
        Violation::unless(there == self.program.bindings, "pictured", || {
            format!("the program knows {:?}, and there are {there:?}", self.program.bindings)
        })?;
        let bid = |session| lma.session(session).map_or(0, |own| own.bid);
        let waits = |key: &FlowKey| self.program.flows.get(key) == Some(&None);
        let flows =
            lma.flows().map(|(key, flow)| (*key, Some(bid(flow.session)).filter(|_| !waits(key))));
        let flows: BTreeMap<_, _> = flows.collect();
        Violation::unless(flows == self.program.flows, "pictured", || {
            format!("the program knows {:?}, and there are {flows:?}", self.program.flows)
        })
    }
}
