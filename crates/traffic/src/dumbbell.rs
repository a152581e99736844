//! One TCP connection over one link, for comparison with other simulators.
//!
//! ```text
//!   sender ── rate, delay, queue, losses ──► receiver
//!          ◄───────── rate, delay ──────────
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::{LinkSpec, Loss, Queue, SpecError};

use crate::tcp::{Config, Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, TracePoint};
use segue_sim::net::{Hop, Network};
use segue_sim::results::Results;

/// The network and the connection.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// The connection; a packet on the wire has `mss + header` bytes.
    pub tcp: Config,
    /// Link rate in each direction.
    pub rate_bps: u64,
    /// Propagation delay in each direction.
    pub delay: Span,
    /// ns-2's limit: an arrival is dropped if one packet fewer than this many wait behind the one in
    /// transmission.
    pub queue: u32,
    /// Times at which the counter of packets to lose is set, and its values ([`Loss::Armed`]).
    pub drop_at: Vec<(Span, u32)>,
    /// Duration of the transfer.
    pub duration: Span,
    /// Keep a trace of the window.
    pub trace: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `goodput_bps` (packets delivered in order including headers, over the duration), `delivered`, `sent`,
    /// `retransmissions`, `timeouts`, `queue_drops`, `loss_drops`.
    pub results: Results,
    /// A point per segment, if requested.
    pub trace: Vec<TracePoint>,
    /// Time stopped advancing before the end ([`Network::stuck`]): the results are invalid.
    pub stuck: bool,
}

impl Dumbbell {
    /// Runs the simulation.
    ///
    /// # Errors
    /// Invalid link parameters.
    pub fn run(&self) -> Result<Outcome, SpecError> {
        let mut network = Network::new(1);
        let ends = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)].map(IpAddr::from);
        let nodes = ["sender", "receiver"].map(|name| network.add_node(name));
        let mut ports = Vec::new();
        for (node, other) in [(0, 1), (1, 0)] {
            let index = network.add_interface(nodes[node], "link");
            ports.push((nodes[node], index));
            let at = network.node_mut(nodes[node]);
            at.addresses.push(ends[node]);
            at.routes.set(Prefix::host(ends[other]), Hop::Interface(index));
        }
        let link = LinkSpec {
            rate_bps: Some(self.rate_bps),
            delay: self.delay,
            queue: Queue::Packets(self.queue.saturating_sub(1)),
            ..LinkSpec::default()
        };
        let there = LinkSpec { loss: Loss::Armed(self.drop_at.clone()), ..link.clone() };
        let (forward, back) = network.connect(ports[0], ports[1], there, link)?;

        let endpoint = Endpoint { local: (ends[0], 1), remote: (ends[1], 1) };
        let mut source = Source::new(self.tcp, endpoint);
        if self.trace {
            source.trace();
        }
        let source = SourceAgent::new(source, GREEDY);
        let sink = SinkAgent { sink: Sink::new(self.tcp, endpoint.reversed()) };
        let source = network.add_agent(nodes[0], "tcp", &[(6, 1)], Box::new(source));
        let sink = network.add_agent(nodes[1], "sink", &[(6, 1)], Box::new(sink));
        network.run_until(Time::ZERO + self.duration);

        let link = network.counters(forward);
        let queue_drops = link.queue_full + network.counters(back).queue_full;
        let source: &SourceAgent = network.agent(source).expect("it was added");
        let sink: &SinkAgent = network.agent(sink).expect("it was added");
        let delivered = sink.sink.delivered() / u64::from(self.tcp.mss);
        let bits = delivered * u64::from(self.tcp.mss + self.tcp.header) * 8;
        let sent = source.source.sent();
        let mut results = Results::new();
        results.float("goodput_bps", bits as f64 / self.duration.as_secs_f64());
        results.int("delivered", delivered);
        results.int("sent", sent.segments);
        results.int("retransmissions", sent.retransmissions);
        results.int("timeouts", sent.timeouts);
        results.int("queue_drops", queue_drops);
        results.int("loss_drops", link.lost);
        let (trace, stuck) = (source.source.traced().to_vec(), network.stuck());
        Ok(Outcome { results, trace, stuck })
    }
}
