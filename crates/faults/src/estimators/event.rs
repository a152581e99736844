//! Events and packets between two ends.

use alloc::format;
use alloc::string::String;

use segue_keepalive::{ClientInput, ServerInput};
use segue_wire::Probe;

/// A packet between the ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// A request with K, REPORT flag, QUESTION flag, and the start of the client that sent it.
    Request(Probe, u8, bool, bool, u32),
    /// A response; true if it answers a question. Neither question nor answer counts as a packet.
    Response(Probe, bool),
    Unsolicited(Probe),
    Data,
}

impl Packet {
    /// Increment of the packet counters.
    pub(super) fn counted(self) -> u32 {
        match self {
            Packet::Request(_, _, _, question, _) | Packet::Response(_, question) => {
                (!question).into()
            }
            Packet::Unsolicited(_) | Packet::Data => 1,
        }
    }
}

/// A scheduled event.
pub(super) enum Event {
    AtServer(u32, Packet),
    AtClient(u32, Packet),
    /// An end that was stalled reads a waiting input.
    ClientReads(u32, ClientInput),
    ServerReads(u32, ServerInput),
    /// An order that waited for the stalled client.
    Order(u32, String),
    /// Signalling notifies the server that the keepalive is on or off.
    Switch(u32, bool),
    Flow(usize, u32),
}

/// The event as text, for the record.
pub(super) fn describe(event: &Event) -> String {
    let packet = |packet: &Packet| match packet {
        Packet::Request(probe, ..) => format!("request {}", probe.seq),
        Packet::Response(probe, _) => format!("response {}", probe.seq),
        Packet::Unsolicited(probe) => format!("unsolicited response {}", probe.seq),
        Packet::Data => "data".into(),
    };
    match event {
        Event::AtServer(_, what) => format!("{} arrives at the server", packet(what)),
        Event::AtClient(_, what) => format!("{} arrives at the client", packet(what)),
        Event::Switch(_, on) => format!("the server hears: keepalive {on}"),
        Event::Flow(flow, _) => format!("flow {flow} sends"),
        Event::Order(_, order) => format!("the client is ordered: {order}"),
        Event::ClientReads(..) => "the client reads what waited".into(),
        Event::ServerReads(..) => "the server reads what waited".into(),
    }
}
