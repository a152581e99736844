//! Records the course of a run (`--out`): time series of links and senders, and the nodes' events. A run is divided
//! into slices; the value of a slice either counts events in the slice or holds at its end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use segue_clock::Time;
use segue_sim::net::Lost;
use segue_sim::{ChannelId, Network, NodeId, Observer, Packet, Value};

use crate::file::{Built, SLICES};

/// Records a run.
#[derive(Clone)]
pub(crate) struct Recorder(Rc<RefCell<Recorded>>);

struct Recorded {
    end: Time,
    nodes: Vec<String>,
    channels: BTreeMap<ChannelId, Channel>,
    gauges: Vec<(String, Vec<Option<f64>>)>,
    events: Vec<Event>,
}

struct Channel {
    name: String,
    slices: Vec<Slice>,
}

/// A channel in a slice of the run.
#[derive(Clone, Copy, Default)]
struct Slice {
    received_bytes: u64,
    lost: u64,
    /// Packets with a known arrival, and below the sum of their delays.
    sent: u64,
    delay_ns: u64,
    queue: u64,
}

/// A node's event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Time in seconds.
    pub(crate) at_s: f64,
    /// The node's name.
    pub(crate) node: String,
    /// Description.
    pub(crate) what: String,
}

/// Time series: one column each, with a value per slice.
pub(crate) struct Series {
    /// End of each slice, in seconds.
    pub(crate) times: Vec<f64>,
    /// Names, and values where they exist.
    pub(crate) columns: Vec<(String, Vec<Option<f64>>)>,
    /// In chronological order.
    pub(crate) events: Vec<Event>,
}

/// Quantities of a channel: suffixes of its name.
pub(crate) const RECEIVED: &str = "received_bps";
pub(crate) const LOST: &str = "lost";
pub(crate) const DELAY: &str = "delay_ms";
pub(crate) const QUEUE: &str = "queue_packets";

impl Recorder {
    /// A recorder for a network that has not run yet.
    pub(crate) fn new(built: &Built) -> Recorder {
        let slices = vec![Slice::default(); SLICES as usize];
        let channel = |(id, _): (ChannelId, _)| {
            (id, Channel { name: built.channel_name(id), slices: slices.clone() })
        };
        Recorder(Rc::new(RefCell::new(Recorded {
            end: built.end,
            nodes: built.network.nodes().map(|(_, node)| node.name.clone()).collect(),
            channels: built.network.channels().map(channel).collect(),
            gauges: Vec::new(),
            events: Vec::new(),
        })))
    }

    /// Records the state at the end of a slice.
    pub(crate) fn sample(&self, network: &Network) {
        let recorded = &mut *self.0.borrow_mut();
        let slice = recorded.slice(Time(network.now().0.saturating_sub(1)));
        for (id, channel) in &mut recorded.channels {
            channel.slices[slice].queue = network.channel(*id).waiting(network.now()) as u64;
        }
        for (name, value) in network.gauges().iter() {
            let Value::Float(value) = value else { continue };
            // An application's second end has a separate name in the results; here both ends share one.
            let name = name.replace(".second.", ".");
            let known = recorded.gauges.iter().position(|(known, _)| *known == name);
            let place = known.unwrap_or_else(|| {
                recorded.gauges.push((name, vec![None; SLICES as usize]));
                recorded.gauges.len() - 1
            });
            recorded.gauges[place].1[slice] = Some(*value);
        }
    }

    /// The recorded series.
    pub(crate) fn series(&self) -> Series {
        let recorded = self.0.borrow();
        let seconds = recorded.end.as_secs_f64() / SLICES as f64;
        let times = (1..=SLICES).map(|slice| slice as f64 * seconds).collect();
        let mut columns = Vec::new();
        for Channel { name, slices } in recorded.channels.values() {
            let mut column = |what, value: &dyn Fn(&Slice) -> Option<f64>| {
                columns.push((format!("link.{name}.{what}"), slices.iter().map(value).collect()));
            };
            column(RECEIVED, &|slice| Some(slice.received_bytes as f64 * 8.0 / seconds));
            column(LOST, &|slice| Some(slice.lost as f64));
            column(DELAY, &|slice| {
                (slice.sent > 0).then(|| slice.delay_ns as f64 / slice.sent as f64 / 1e6)
            });
            column(QUEUE, &|slice| Some(slice.queue as f64));
        }
        columns.extend(recorded.gauges.iter().cloned());
        Series { times, columns, events: recorded.events.clone() }
    }
}

impl Recorded {
    /// The slice of an instant.
    fn slice(&self, at: Time) -> usize {
        let slice = u128::from(at.0) * u128::from(SLICES) / u128::from(self.end.0.max(1));
        (slice as usize).min(SLICES as usize - 1)
    }

    fn at(&mut self, now: Time, id: ChannelId) -> Option<&mut Slice> {
        let slice = self.slice(now);
        self.channels.get_mut(&id).map(|channel| &mut channel.slices[slice])
    }
}

impl Observer for Recorder {
    fn sent(&mut self, now: Time, channel: ChannelId, _: &Packet, at: Result<Time, Lost>) {
        let recorded = &mut *self.0.borrow_mut();
        let Some(slice) = recorded.at(now, channel) else { return };
        match at {
            Ok(at) => {
                slice.sent += 1;
                slice.delay_ns += at.since(now).0;
            }
            Err(_) => slice.lost += 1,
        }
    }

    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        let recorded = &mut *self.0.borrow_mut();
        if let Some(slice) = recorded.at(now, channel) {
            slice.received_bytes += u64::from(packet.bytes);
        }
    }

    fn dropped(&mut self, _: Time, _: NodeId, _: &Packet, _: Lost) {}

    fn said(&mut self, now: Time, node: NodeId, line: &str) {
        let recorded = &mut *self.0.borrow_mut();
        let node = recorded.nodes[node.0 as usize].clone();
        recorded.events.push(Event { at_s: now.as_secs_f64(), node, what: line.to_owned() });
    }
}

/// Several observers of one run.
pub(crate) struct Observers(pub(crate) Vec<Box<dyn Observer>>);

impl Observer for Observers {
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>) {
        self.0.iter_mut().for_each(|each| each.sent(now, channel, packet, at));
    }

    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        self.0.iter_mut().for_each(|each| each.arrived(now, channel, packet));
    }

    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost) {
        self.0.iter_mut().for_each(|each| each.dropped(now, node, packet, why));
    }

    fn said(&mut self, now: Time, node: NodeId, line: &str) {
        self.0.iter_mut().for_each(|each| each.said(now, node, line));
    }
}
