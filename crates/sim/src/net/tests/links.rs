//! Tests of link timing and losses.

use super::*;
use segue_netem::{Jitter, Loss, Queue};

fn burst(packets: u64, bytes: u32) -> Box<Desk> {
    Desk::sending((0..packets).map(|i| (0, numbered(udp("10.0.0.0", 1, "10.0.0.1", 2, bytes), i))))
}

/// Two nodes; one of them sends packets at time 0.
fn pair(link: LinkSpec, packets: u64, bytes: u32) -> (Network, ChannelId, AgentId) {
    let (mut network, nodes, channels) = chain(1, &[link]);
    network.add_agent(nodes[0], "a", &[], burst(packets, bytes));
    let sink = network.add_agent(nodes[1], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    (network, channels[0], sink)
}

fn consistent(network: &Network, id: ChannelId) {
    let c = network.counters(id);
    assert_eq!(c.offered, c.delivered + c.lost + c.queue_full + c.silenced, "{c:?}");
}

#[test]
fn a_chain_stores_and_forwards_to_the_nanosecond() {
    // Rates that do not divide the packets evenly into nanoseconds.
    let links = [spec(10, 5_000), spec(3, 1_000), spec(7, 250)];
    let (mut network, nodes, _) = chain(1, &links);
    let plan = (0..3).map(|i| (i, numbered(udp("10.0.0.0", 1, "10.0.0.3", 2, 1_000), i)));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let sink = network.add_agent(nodes[3], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(100 * MS));
    // 1 000 bytes: 800 000 ns; 2 666 666⅔ ns, the bottleneck; 1 142 857.14 ns; propagation 6 250 000 ns.
    let first = 800_000 + 2_666_666 + 1_142_857 + 6_250_000;
    // The bottleneck carries the thirds over from packet to packet; the last link starts afresh each time.
    assert_eq!(got(&network, sink), [(first, 0), (first + 2_666_667, 1), (first + 5_333_334, 2)]);
}

#[test]
fn a_queue_of_packets_one_of_bytes_and_one_of_a_delay_drop_the_tail() {
    let packets = LinkSpec { queue: Queue::Packets(3), ..spec(8, 0) };
    let (mut network, id, sink) = pair(packets, 10, 1_000);
    network.run_until(Time(100 * MS));
    // One is in transmission, three wait.
    assert_eq!(got(&network, sink), [(MS, 0), (2 * MS, 1), (3 * MS, 2), (4 * MS, 3)]);
    assert_eq!(network.counters(id).queue_full, 6);
    consistent(&network, id);
    let delay = LinkSpec { queue: Queue::Delay(Span(2 * MS)), ..spec(8, 0) };
    let (mut network, id, sink) = pair(delay, 10, 1_000);
    network.run_until(Time(100 * MS));
    assert_eq!(got(&network, sink), [(MS, 0), (2 * MS, 1), (3 * MS, 2)]);
    consistent(&network, id);

    let bytes = LinkSpec { queue: Queue::Bytes(2_500), ..spec(8, 0) };
    let (mut network, nodes, channels) = chain(1, &[bytes]);
    let sizes = [1_000, 1_000, 1_000, 600, 500, 1];
    let plan = sizes.into_iter().zip(0..);
    let plan = plan.map(|(bytes, i)| (0, numbered(udp("10.0.0.0", 1, "10.0.0.1", 2, bytes), i)));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let sink = network.add_agent(nodes[1], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(100 * MS));
    let arrived: Vec<_> = got(&network, sink).into_iter().map(|(_, number)| number).collect();
    assert_eq!(arrived, [0, 1, 2, 4]);
    consistent(&network, channels[0]);
}

#[test]
fn a_stalled_link_releases_what_it_held_at_once_and_in_order() {
    // Ten packets of 1 ms each with a delay of 10 ms: without a stall they arrive at 11 to 20 ms.
    let (mut network, id, sink) = pair(spec(8, 10_000), 10, 1_000);
    network.stall(id, Time(27 * MS / 2), Time(17 * MS));
    network.run_until(Time(100 * MS));
    let expected = [11, 12, 13, 17, 17, 17, 17, 18, 19, 20].map(|ms| ms * MS);
    let expected: Vec<_> = expected.into_iter().zip(0..).collect();
    assert_eq!(got(&network, sink), expected);
    consistent(&network, id);
}

#[test]
fn a_cut_loses_what_starts_while_it_lasts_and_spares_what_is_on_the_wire_or_waits_until_it_ends() {
    // Ten packets of 1 ms each, cut from 2.5 ms to 6.5 ms: the packets that start at 3, 4, 5 and 6 ms are lost.
    let (mut network, id, sink) = pair(spec(8, 10_000), 10, 1_000);
    let record = Record::default();
    network.observe(Box::new(record.clone()));
    network.schedule(Time(5 * MS / 2), Change::Cut(id, true));
    network.schedule(Time(13 * MS / 2), Change::Cut(id, false));
    network.run_until(Time(100 * MS));
    let arrived: Vec<_> = got(&network, sink).into_iter().map(|(_, number)| number).collect();
    assert_eq!(arrived, [0, 1, 2, 7, 8, 9]);
    let counters = network.counters(id);
    assert_eq!((counters.offered, counters.delivered, counters.silenced), (10, 6, 4));
    assert_eq!(counters.delivered_bytes, 6_000);
    consistent(&network, id);
    let lines = record.0.borrow();
    let dropped: Vec<_> = lines.iter().filter(|line| line.contains(" dropped ")).collect();
    assert_eq!(dropped.len(), 4);
    assert!(dropped.iter().all(|line| line.contains("Link(Silent)")), "{dropped:?}");
}

#[test]
fn what_is_sent_into_a_cut_is_lost_at_once_and_one_cut_within_another_changes_nothing() {
    let (mut network, nodes, channels) = chain(1, &[spec(8, 0)]);
    let id = channels[0];
    let plan = (0..10).map(|i| (i * 2 * MS, numbered(udp("10.0.0.0", 1, "10.0.0.1", 2, 1_000), i)));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let sink = network.add_agent(nodes[1], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    for (at, cut) in [(3, true), (5, true), (9, false), (11, false)] {
        network.schedule(Time(at * MS), Change::Cut(id, cut));
    }
    network.run_until(Time(100 * MS));
    let arrived: Vec<_> = got(&network, sink).into_iter().map(|(_, number)| number).collect();
    // Packets sent at 4, 6 and 8 ms are lost.
    assert_eq!(arrived, [0, 1, 5, 6, 7, 8, 9]);
    assert_eq!(network.counters(id).silenced, 3);
    consistent(&network, id);
}

#[test]
fn a_cut_is_remembered_for_packets_that_overtake_each_other() {
    // Jitter that reorders: packets from after the cut arrive before those lost in the cut are due.
    let jitter = Jitter::Uniform(Span::from_millis(40));
    let link = LinkSpec { jitter, reordering: true, ..spec(8, 50_000) };
    let (mut network, id, sink) = pair(link, 60, 1_000);
    let cuts = [(10, 20), (30, 35), (40, 45)];
    for (from, to) in cuts {
        network.schedule(Time(from * MS + 1), Change::Cut(id, true));
        network.schedule(Time(to * MS + 1), Change::Cut(id, false));
    }
    network.run_until(Time(1_000 * MS));
    let mut arrived: Vec<_> = got(&network, sink).into_iter().map(|(_, number)| number).collect();
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    let taken = |n: &u64| cuts.iter().any(|(from, to)| n > from && n <= to);
    assert_eq!(arrived, (0..60).filter(|n| !taken(n)).collect::<Vec<_>>());
    assert_eq!(network.counters(id).silenced, 20);
    consistent(&network, id);
}

/// A ring of five nodes with loss and jitter on every link, and traffic in all directions.
fn ring(seed: u64, loss_of_first: f64, record: &Record) -> (Network, Vec<ChannelId>) {
    let mut network = Network::new(seed);
    let nodes: Vec<_> = (0..5).map(|i| network.add_node(alloc::format!("n{i}"))).collect();
    let mut channels = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        let loss = Loss::Bernoulli(if i == 0 { loss_of_first } else { 0.1 });
        let jitter = Jitter::Normal(Span::from_micros(100));
        let spec = LinkSpec { loss, jitter, queue: Queue::Packets(20), ..spec(5, 2_000) };
        channels.push(link(&mut network, *node, nodes[(i + 1) % 5], spec).0);
        network.node_mut(*node).addresses.push(ip(&alloc::format!("10.0.0.{i}")));
    }
    network.route_all(|_| true);
    for (i, node) in nodes.iter().enumerate() {
        // Only to the neighbour, so that losses of one link do not affect another.
        let (from, to) = (alloc::format!("10.0.0.{i}"), alloc::format!("10.0.0.{}", (i + 1) % 5));
        let plan = (0..200).map(|n| (n * MS, numbered(udp(&from, 1, &to, 2, 500), n)));
        network.add_agent(*node, from.clone(), &[(UDP, 2)], Desk::sending(plan));
    }
    network.observe(Box::new(record.clone()));
    network.schedule(Time(50 * MS), Change::Cut(channels[2], true));
    network.schedule(Time(60 * MS), Change::Cut(channels[2], false));
    network.run_until(Time(1_000 * MS));
    (network, channels)
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_seed_others() {
    let hash = |seed| {
        let record = Record::default();
        ring(seed, 0.1, &record);
        record.hash()
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

#[test]
fn the_loss_of_one_channel_changes_nothing_in_another() {
    let (a, b) = (Record::default(), Record::default());
    let (with, channels) = ring(7, 0.5, &a);
    let (without, _) = ring(7, 0.0, &b);
    assert!(with.counters(channels[0]).lost > 50 && without.counters(channels[0]).lost == 0);
    for id in &channels[1..] {
        assert!(with.counters(*id).lost > 0);
        let of = |record: &Record| {
            let name = alloc::format!(" {id:?} ");
            record.0.borrow().iter().filter(|l| l.contains(&name)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(of(&a), of(&b));
    }
}

#[test]
fn seeds_of_runs_and_channels_do_not_make_up_for_each_other() {
    let seeds: Vec<_> = (0..20)
        .flat_map(|run| {
            let network = Network::new(run);
            (0..20)
                .flat_map(move |n| [network.seed_of(1, n), network.seed_of(2, n)])
                .collect::<Vec<_>>()
        })
        .collect();
    let mut unique = seeds.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), seeds.len());
}
