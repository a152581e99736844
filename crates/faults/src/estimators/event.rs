//! What passes between two ends, and when.

use alloc::format;
use alloc::string::String;

use segue_keepalive::{ClientInput, ServerInput};
use segue_wire::Probe;

/// A packet between the ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// K, whether it is a report, whether a question, and which start of the client sent it.
    Request(Probe, u8, bool, bool, u32),
    /// Whether it answers a question: neither counts.
    Response(Probe, bool),
    Unsolicited(Probe),
    Data,
}

impl Packet {
    /// What it adds to the counters.
    pub(super) fn counted(self) -> u32 {
        match self {
            Packet::Request(_, _, _, question, _) | Packet::Response(_, question) => {
                (!question).into()
            }
            Packet::Unsolicited(_) | Packet::Data => 1,
        }
    }
}

/// What happens at its time.
pub(super) enum Event {
    AtServer(u32, Packet),
    AtClient(u32, Packet),
    /// An end that stood still reads what waited for it.
    ClientReads(u32, ClientInput),
    ServerReads(u32, ServerInput),
    /// An order that waited for the client.
    Order(u32, String),
    /// The server hears over signalling that the keepalive is on or off.
    Switch(u32, bool),
    Flow(usize, u32),
}

/// In words, for a record.
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
