//! What a program that decides about flows knows of the anchor.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::FlowKey;
use segue_node::{Event, Order};

/// The program, and what it knows.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// Its present connection, if there is one.
    pub(super) connection: Option<u64>,
    pub(super) connections: u64,
    /// Interfaces by host and link-layer address: their binding identifiers, and the gateways.
    pub(super) bindings: BTreeMap<(String, String), (u16, String)>,
    /// The binding identifier of each flow; `None` while the anchor waits for a decision.
    pub(super) flows: BTreeMap<FlowKey, Option<u16>>,
    /// Orders that it will send.
    pub(super) orders: Vec<(Time, Order)>,
}

impl Program {
    /// When it sends its next order.
    pub(super) fn next(&self) -> Option<Time> {
        self.orders.iter().map(|(at, _)| *at).min()
    }

    /// The anchor has restarted: the connection is gone.
    pub(super) fn lose(&mut self) {
        let connections = self.connections;
        *self = Program { connections, ..Program::default() };
    }

    pub(super) fn learn(&mut self, now: Time, event: Event) {
        match event {
            Event::Binding { mn_id, llid, bid, proxy_coa, .. } => {
                self.bindings.insert((mn_id, llid), (bid, proxy_coa));
            }
            Event::Left { mn_id, llid } => {
                self.bindings.remove(&(mn_id, llid));
            }
            Event::Flow { flow, mn_id, bid, asked, .. } => {
                self.flows.insert(flow.into(), Some(bid).filter(|_| !asked));
                let own = self.bindings.iter().filter(|((of, _), _)| *of == mn_id);
                let chosen = own.map(|(_, (bid, _))| *bid).nth(usize::from(flow.dport % 2));
                if let Some(bid) = chosen.filter(|_| asked) {
                    // Some orders come after the 20 ms for which the anchor waits.
                    let at = now + Span::from_millis(u64::from(flow.dport % 5) * 6);
                    self.orders.push((at, Order::Place { flow, bid }));
                }
            }
            Event::FlowEnded { flow } => {
                self.flows.remove(&flow.into());
            }
            _ => {}
        }
    }
}
