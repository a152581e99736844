//! Runs every application between two nodes.

mod meter;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_netem::{LinkSpec, Loss};

use super::*;
use crate::tcp::{Config, Variant};
use segue_sim::net::{CellConfig, Change, RadioConfig, Walk};
use segue_sim::packet::{Packet, UDP};
use segue_sim::results::{Results, Value};

const MS: u64 = 1_000_000;

#[test]
fn without_load_the_delay_is_that_of_the_path_and_its_variance_is_zero_by_either_reading() {
    // 200 bytes at 10 Mbit/s and 5 ms.
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    let of_links = Forwarding::Links(vec![(Some(10_000_000), Span(5 * MS))]);
    assert_eq!(path_of(&run.network, run.nodes.0, &packet(200)), Some(of_links.clone()));
    let links = MeterConfig { forwarding: of_links, ..MeterConfig::default() };
    let call = |meter| VoipConfig { meter, ..VoipConfig::g711() };
    run.add("a", call(links).pair(&ends(0), 1).unwrap());
    run.network.run_until(Time(5_000 * MS));
    let down = run.measured("down");
    assert_eq!((down.delay.min_ns(), down.delay.max_ns()), (Some(5_160_000), Some(5_160_000)));
    assert_eq!((down.variance.min_ns(), down.variance.max_ns()), (Some(0), Some(0)));
    assert_eq!((down.forwarding, down.variance_base_ns()), (Some(Span(5_160_000)), 0));

    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    run.add("a", call(MeterConfig::default()).pair(&ends(0), 1).unwrap());
    let results = run.until(5_000);
    assert_eq!(float(&results, "a.down.delay_variance_ms_max"), 0.0);
    assert_eq!(float(&results, "a.down.delay_variance_above_0us_ratio"), 0.0);
    assert_eq!(float(&results, "a.down.forwarding_ms_minimum"), 5.16);
    assert_eq!(float(&results, "a.down.jitter_ms_max"), 0.0);
}

#[test]
fn paths_that_differ_there_and_back_have_a_forwarding_delay_each() {
    let mut run = Run::new(link(10_000_000, 5), link(1_000_000, 50));
    let links = |from, src: IpAddr, dst: IpAddr| {
        links_of(&run.network, from, &Packet { src, dst, ..packet(200) }).unwrap()
    };
    let up = links(run.nodes.0, FIRST, SECOND);
    let down = links(run.nodes.1, SECOND, FIRST);
    let forwarding = Forwarding::EachWay { up, down };
    let meter = MeterConfig { forwarding, ..MeterConfig::default() };
    run.add("a", VoipConfig { meter, ..VoipConfig::g711() }.pair(&ends(0), 1).unwrap());
    let results = run.until(1_000);
    for (direction, forwarding) in [("up", 5.16), ("down", 51.6)] {
        let of = |name: &str| float(&results, &["a.", direction, ".", name].concat());
        assert_eq!((of("forwarding_ms_of_links"), of("delay_variance_ms_max")), (forwarding, 0.0));
    }
}

#[test]
fn the_delay_of_a_queue_is_found_to_the_nanosecond() {
    // Frames of three datagrams of 1 000 bytes, 1 040 on the wire, which take 1 ms at 8.32 Mbit/s: the second
    // waits 1 ms, the third 2 ms.
    let mut run = Run::new(link(8_320_000, 5), link(8_320_000, 5));
    let forwarding = Forwarding::Links(vec![(Some(8_320_000), Span(5 * MS))]);
    let meter = MeterConfig { forwarding, ..MeterConfig::default() };
    let video = VideoConfig { max_payload_bytes: 1_000, meter, ..still(3_000) };
    run.add("v", video.pair(&ends(0)).unwrap());
    run.network.run_until(Time(1_000 * MS));
    let down = run.measured("down");
    // 25 frames have arrived; the 26th is in flight.
    assert_eq!(bins(&down.variance), [(0, 25), (MS as i64, 25), (2 * MS as i64, 25)]);
    assert_eq!(bins(&down.jitter), [(-2 * MS as i64, 24), (MS as i64, 50)]);
}

#[test]
fn paced_datagrams_of_a_frame_meet_no_queue() {
    let mut run = Run::new(link(8_320_000, 5), link(8_320_000, 5));
    let video = VideoConfig { max_payload_bytes: 1_000, paced: true, ..still(3_000) };
    run.add("v", video.pair(&ends(0)).unwrap());
    run.network.run_until(Time(1_000 * MS));
    let down = run.measured("down");
    assert_eq!(
        (down.delay.min_ns(), down.delay.max_ns()),
        (Some(6 * MS as i64), Some(6 * MS as i64))
    );
    assert_eq!(down.counts.received, 75, "25 frames have arrived, the 26th is on its way");
}

#[test]
fn exactly_the_packets_of_a_loss_list_are_lost() {
    let lossy = LinkSpec { loss: Loss::Exact(vec![3, 4, 100]), ..link(10_000_000, 5) };
    let mut run = Run::new(link(10_000_000, 5), lossy);
    run.add("a", VoipConfig::g729().pair(&ends(0), 1).unwrap());
    let results = run.until(10_000);
    assert_eq!(int(&results, "a.down.lost"), 3);
    assert_eq!(int(&results, "a.up.lost"), 0);
    let (sent, on_the_way) = (int(&results, "a.down.sent"), int(&results, "a.down.undecided"));
    let ratio = 3.0 / (sent - on_the_way) as f64;
    assert_eq!((on_the_way < 2, float(&results, "a.down.loss_ratio")), (true, ratio));
    // Among 497 consecutive arrivals there are two gaps.
    let down = run.measured("down");
    assert_eq!(down.jitter.count(), down.counts.received - 3);
}

#[test]
fn an_outage_at_a_handover_is_found_at_that_handover() {
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    let at = |ms: u64| Time(ms * MS);
    let meter =
        MeterConfig { handovers: [1_000, 2_000, 3_000].map(at).to_vec(), ..MeterConfig::default() };
    run.add("a", VoipConfig { meter, ..VoipConfig::g711() }.pair(&ends(0), 1).unwrap());
    // One packet every 20 ms: two in any 40 ms, five in any 100 ms.
    for (from, to) in [(1_000, 1_040), (3_000, 3_100)] {
        run.network.schedule(at(from), Change::Cut(run.channels.1, true));
        run.network.schedule(at(to), Change::Cut(run.channels.1, false));
    }
    let results = run.until(10_000);
    let lost: Vec<_> = run.measured("down").handovers.records().iter().map(|h| h.lost).collect();
    assert_eq!(lost, [2, 0, 5]);
    assert_eq!(int(&results, "a.down.handovers"), 3);
    assert_eq!(int(&results, "a.down.handover_lost_max"), 5);
    for (k, share) in [("0", 1.0), ("1", 0.0), ("2", 1.0), ("5", 1.0), ("20_or_more", 0.0)] {
        let name = alloc::format!("a.down.handover_lost_{k}_ratio");
        assert_eq!(float(&results, &name), share / 3.0, "{k}");
    }
    assert_eq!(int(&results, "a.up.handover_lost"), 0);
}

#[test]
fn handovers_of_a_walk_are_seen_at_the_interfaces_with_a_gap_and_with_an_overlap() {
    for (gap, overlap, lost) in [(0, 0, 0), (200, 0, 10), (0, 200, 0)] {
        let mut network = Network::new(1);
        let fixed = network.add_node("fixed");
        network.node_mut(fixed).addresses.push(SECOND);
        let mut cells = Vec::new();
        for i in 0..2u32 {
            let router = network.add_node(["r0", "r1"][i as usize]);
            let ends = [(fixed, i + 1), (router, 1)];
            for (node, _) in ends {
                network.add_interface(node, alloc::format!("eth{i}"));
            }
            network.connect(ends[0], ends[1], link(10_000_000, 1), link(10_000_000, 1)).unwrap();
            let gateway = Some(IpAddr::V4(Ipv4Addr::new(10, 1, i as u8, 1)));
            let air = link(10_000_000, 1);
            let (down, up, prefix) = (air.clone(), air, None);
            cells.push(network.add_cell(CellConfig { router, gateway, prefix, down, up }).unwrap());
        }
        let mobile = network.add_node("mobile");
        let interface = network.add_interface(mobile, "wlan0");
        network.node_mut(mobile).adapters[0].interface.addresses.push(FIRST);
        let radio = RadioConfig { node: mobile, interface, at_once: 2 };
        let radio = network.add_radio(radio).unwrap();
        network.route_all(|_| true);
        let (gap, overlap) = (Span(gap * MS), Span(overlap * MS));
        let walk = Walk { gap, overlap, ..Walk::new(cells, Span(1_000 * MS), 4) };
        network.walk(radio, &walk).unwrap();
        let pair = VoipConfig::g711().pair(&ends(0), 1).unwrap();
        let (first, _) = pair.add(&mut network, (mobile, fixed), "a");
        network.run_until(Time(10_000 * MS));
        let end: &Endpoint = network.agent(first).unwrap();
        let up = end.meter("up").unwrap().finished(network.now());
        let found: Vec<_> = up.handovers.records().iter().map(|h| (h.at.0 / MS, h.lost)).collect();
        let expected = [1_000, 2_000, 3_000, 4_000].map(|at| (at, lost));
        assert_eq!(found, expected, "gap {gap}, overlap {overlap}");
    }
}

#[test]
fn the_worst_delay_and_jitter_of_each_handover_are_found_by_either_reading() {
    // A datagram every 20 ms takes 5 ms; the one at 1 s takes 25 ms, the one at 2 s takes 45 ms.
    let worst = |forwarding| {
        let handovers = [1_000, 2_000].map(|ms| Time(ms * MS)).to_vec();
        let config = MeterConfig { forwarding, handovers, ..MeterConfig::default() };
        let delay_ms = |i| match i {
            50 => Some(25),
            100 => Some(45),
            _ => Some(5),
        };
        let meter = played(config, 150, delay_ms);
        let mut results = Results::new();
        report::stream("", Kind::Voice, &meter.finished(Time(20_000 * MS)), &mut results);
        ["handover_worst_delay_variance_ms_mean", "handover_worst_jitter_ms_mean"]
            .map(|name| float(&results, name))
    };
    assert_eq!(worst(Forwarding::Minimum), [30.0, 30.0]);
    assert_eq!(worst(Forwarding::Links(vec![(None, Span(4 * MS))])), [31.0, 30.0]);
}

#[test]
fn a_call_sends_fifty_packets_a_second_each_way_and_is_rated_by_the_e_model() {
    let mut run = Run::new(link(10_000_000, 100), link(10_000_000, 100));
    run.add("a", VoipConfig::g711().pair(&ends(0), 1).unwrap());
    let results = run.until(60_000);
    assert_eq!((int(&results, "a.up.sent"), int(&results, "a.down.sent")), (3_000, 3_000));
    // 100.16 ms: R = 93.2 - 0.024 · 100.16.
    assert!((float(&results, "a.down.r_g711") - 90.796).abs() < 1e-3);
    // G.107, Annex B: 1 + 0.035 R + R (R - 60) (100 - R) 7·10⁻⁶.
    assert!((float(&results, "a.down.mos_g711") - 4.358).abs() < 1e-3);
    let mbit = float(&results, "a.up.received_bps") / 80_000.0;
    assert!((0.99..=1.0).contains(&mbit), "{mbit}");
}

#[test]
fn talk_spurts_have_the_means_that_are_cited() {
    for spurts in [Spurts::P59, Spurts::GOODMAN_WEI] {
        let config = VoipConfig { spurts: Some(spurts), ..VoipConfig::g711() };
        let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
        run.add("a", config.pair(&ends(0), 7).unwrap());
        let hours = 4;
        let results = run.until(hours * 3_600_000);
        // A spurt of length L takes as many packets as intervals begin in it: 1/(1 - e^(-20 ms/talk)) on average.
        // A packet's interval is complete before the pause can end.
        let per_spurt = 1.0 / (1.0 - libm::exp(-0.020 / spurts.talk_s));
        let cycles = hours as f64 * 3_600.0 / (spurts.talk_s + spurts.pause_s);
        for direction in ["up", "down"] {
            let sent = int(&results, &["a.", direction, ".sent"].concat()) as f64;
            let share = sent / (cycles * per_spurt);
            // About 6 000 cycles: a standard deviation of about 1 %.
            assert!((0.96..1.04).contains(&share), "{spurts:?} {direction}: {share}");
        }
        assert_ne!(int(&results, "a.up.sent"), int(&results, "a.down.sent"));
    }
}

#[test]
fn a_video_carries_the_bytes_of_its_trace_over_and_over() {
    let trace = Trace::mpeg();
    let (bytes, frames) = (trace.bytes(), trace.frames().len() as u64);
    let datagrams: u64 = trace.frames().iter().map(|f| u64::from(f.bytes.div_ceil(1_440))).sum();
    let rounds = 3;
    let stop = trace.period() * rounds;
    let config = VideoConfig {
        trace: Arc::new(trace),
        period: Period { start: Span(7), stop: Some(stop + Span(7)) },
        ..VideoConfig::default()
    };
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    run.add("v", config.pair(&ends(0)).unwrap());
    let results = run.until(100_000);
    assert_eq!(int(&results, "v.down.received"), rounds * datagrams);
    assert_eq!(int(&results, "v.down.received_bytes"), rounds * (bytes + 40 * datagrams));
    assert_eq!(run.measured("down").counts.frames_whole, rounds * frames);
    assert_eq!(float(&results, "v.down.frame_loss_ratio"), 0.0);
}

#[test]
fn a_lost_datagram_breaks_its_frame_and_no_other() {
    let lossy = LinkSpec { loss: Loss::Exact(vec![4, 5, 9]), ..link(8_320_000, 5) };
    let mut run = Run::new(link(8_320_000, 5), lossy);
    let video = VideoConfig {
        max_payload_bytes: 1_000,
        period: Period { start: Span::ZERO, stop: Some(Span(200 * MS)) },
        ..still(3_000)
    };
    run.add("v", video.pair(&ends(0)).unwrap());
    // Frames 0 to 4 consist of three datagrams each; 1 and 3 are incomplete.
    assert_eq!(float(&run.until(10_000), "v.down.frame_loss_ratio"), 0.4);
}

#[test]
fn a_conference_sends_pictures_at_the_rate_of_its_profile_and_speech_both_ways() {
    let config = ConferenceConfig::default();
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    run.add("c", config.pair(&ends(0), 3).unwrap());
    let results = run.until(600_000);
    for direction in ["up", "down"] {
        let of =
            |stream: &str, what| int(&results, &["c.", stream, "_", direction, ".", what].concat());
        let headers = 40 * of("video", "sent");
        let rate = (of("video", "sent_bytes") - headers) as f64 * 8.0 / 600.0;
        // 528 frames with a variation of 0.4: a standard deviation of 2 %.
        assert!((0.92..1.08).contains(&(rate / 64_000.0)), "{direction}: {rate}");
        assert_eq!(of("voice", "sent"), 30_000);
        assert_eq!(of("voice", "lost") + of("video", "lost"), 0);
    }
    assert_ne!(int(&results, "c.video_up.sent_bytes"), int(&results, "c.video_down.sent_bytes"));
}

#[test]
fn a_page_takes_the_time_that_request_and_answer_take() {
    let config = WebConfig {
        main_bytes: Dist::Constant(1_000.0),
        objects: Dist::Constant(0.0),
        reading_s: Dist::Constant(1.0),
        parsing_s: Dist::Constant(0.0),
        tcp: Config { delayed_ack: None, ..Config::modern(Variant::NewReno) },
        ..WebConfig::default()
    };
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    run.add("w", config.pair(&ends(0), 1).unwrap());
    let results = run.until(10_000);
    // 390 bytes up in 0.312 ms; the acknowledgement of 40 bytes in 0.032 ms before 1 040 bytes in 0.832 ms down;
    // plus twice 5 ms: a page every 1.011 s.
    let browser: &Browser = run.network.agent(run.agent).unwrap();
    assert_eq!(browser.loads().min_ns(), Some(11_176_000));
    assert_eq!(browser.loads().max_ns(), Some(11_176_000));
    assert_eq!((int(&results, "w.pages"), int(&results, "w.delivered_bytes")), (10, 10_000));
}

#[test]
fn pages_and_their_objects_have_the_sizes_of_their_distributions() {
    let config = WebConfig {
        pages: Some(300),
        reading_s: Dist::Exponential { mean: 1.0 },
        ..WebConfig::default()
    };
    let mut run = Run::new(link(100_000_000, 1), link(100_000_000, 1));
    run.add("w", config.pair(&ends(0), 4).unwrap());
    let results = run.until(3_600_000);
    let browser: &Browser = run.network.agent(run.agent).unwrap();
    let (sizes, embedded) = (browser.object_sizes(), browser.embedded());
    assert_eq!((int(&results, "w.pages"), int(&results, "w.pages_asked")), (300, 300));
    let objects = sizes.count() as f64;
    assert_eq!(sizes.count(), 300 + libm::round(embedded.mean_ns().unwrap() * 300.0) as u64);
    assert!(sizes.min_ns() >= Some(50) && sizes.max_ns() <= Some(2_000_000));
    assert!(embedded.min_ns() >= Some(0) && embedded.max_ns() <= Some(53));
    // Standard deviation of the number of objects: about 10, so 0.6 for the mean of 300 pages.
    let mean = embedded.mean_ns().unwrap();
    assert!((3.8..7.5).contains(&mean), "{mean}");
    let bytes = libm::round(sizes.mean_ns().unwrap() * objects) as u64;
    assert_eq!(int(&results, "w.delivered_bytes"), bytes, "every object has arrived");
    assert!(float(&results, "w.page_load_s_max") >= float(&results, "w.main_object_s_mean"));
}

#[test]
fn files_follow_one_another_and_a_file_takes_its_time() {
    let config = FtpConfig {
        file_bytes: Some(1_000),
        files: Some(3),
        pause: Span(100 * MS),
        tcp: Config { delayed_ack: None, ..Config::modern(Variant::NewReno) },
        ..FtpConfig::default()
    };
    for upload in [false, true] {
        let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
        run.add("f", FtpConfig { upload, ..config.clone() }.pair(&ends(0)).unwrap());
        let results = run.until(10_000);
        assert_eq!((int(&results, "f.files"), int(&results, "f.delivered_bytes")), (3, 3_000));
        // 1 040 bytes at 10 Mbit/s and 5 ms.
        assert_eq!(float(&results, "f.file_s_min"), 0.005_832);
        assert_eq!(float(&results, "f.file_s_max"), 0.005_832);
        assert_eq!(int(&results, "f.sent"), 3);
    }
}

#[test]
fn pages_and_files_arrive_whole_over_links_that_lose() {
    let lossy = LinkSpec { loss: Loss::Bernoulli(0.03), ..link(2_000_000, 20) };
    for variant in Variant::ALL {
        let tcp = Config::modern(variant);
        let mut run = Run::new(lossy.clone(), lossy.clone());
        let reading_s = Dist::Constant(0.1);
        let web = WebConfig { pages: Some(20), reading_s, tcp, ..WebConfig::default() };
        run.add("w", web.pair(&ends(0), 1).unwrap());
        let ftp =
            FtpConfig { file_bytes: Some(50_000), files: Some(10), tcp, ..FtpConfig::default() };
        run.add("f", ftp.pair(&ends(40)).unwrap());
        let results = run.until(3_000_000);
        let browser: &Browser = run.network.agent(run.agent).unwrap();
        let sizes = browser.object_sizes();
        let bytes = libm::round(sizes.mean_ns().unwrap() * sizes.count() as f64) as u64;
        assert_eq!(int(&results, "w.pages"), 20, "{variant:?}");
        assert_eq!(int(&results, "w.delivered_bytes"), bytes, "{variant:?}");
        assert_eq!((int(&results, "f.files"), int(&results, "f.delivered_bytes")), (10, 500_000));
        assert!(int(&results, "f.retransmissions") > 0 && int(&results, "w.retransmissions") > 0);
    }
}

#[test]
fn a_greedy_transfer_fills_the_link() {
    let mut run = Run::new(link(10_000_000, 5), link(10_000_000, 5));
    run.add("f", FtpConfig::default().pair(&ends(0)).unwrap());
    let results = run.until(10_000);
    // Twenty segments of 1 480 bytes exceed the 12 500 bytes of a round trip; 1 440 bytes of each are data.
    let share = float(&results, "f.goodput_bps") / 10e6;
    assert!((0.95..1_440.0 / 1_480.0).contains(&share), "{share}");
    assert_eq!(int(&results, "f.files"), 0);
}

#[test]
fn the_same_seed_gives_the_same_results_and_another_seed_others() {
    let everything = |seed| {
        let lossy = LinkSpec { loss: Loss::Bernoulli(0.01), ..link(2_000_000, 20) };
        let mut run = Run::with_seed(lossy.clone(), lossy, seed);
        let spurts = Some(Spurts::P59);
        run.add("a", VoipConfig { spurts, ..VoipConfig::g711() }.pair(&ends(0), seed).unwrap());
        run.add("v", VideoConfig::default().pair(&ends(10)).unwrap());
        run.add("c", ConferenceConfig::default().pair(&ends(20), seed).unwrap());
        run.add("w", WebConfig::ns2().pair(&ends(30), seed).unwrap());
        run.add("f", FtpConfig::default().pair(&ends(40)).unwrap());
        run.until(20_000)
    };
    let first = everything(1);
    assert_eq!(first, everything(1));
    assert_ne!(first, everything(2));
    let names =
        |results: &Results| results.iter().map(|(n, _)| String::from(n)).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&everything(2)), "runs of a scenario are rows of one table");
}

#[test]
fn what_makes_no_application_is_refused_by_its_key() {
    let key = |error: Result<Pair, BadConfig>| error.err().map(|error| error.key);
    let call = VoipConfig { packet_interval: Span::ZERO, ..VoipConfig::g711() };
    assert_eq!(key(call.pair(&ends(0), 1)), Some("packet_interval"));
    let spurts = Some(Spurts { talk_s: 1.0, pause_s: -1.0 });
    let call = VoipConfig { spurts, ..VoipConfig::g711() };
    assert_eq!(key(call.pair(&ends(0), 1)), Some("pause"));
    let video = VideoConfig { max_payload_bytes: 0, ..VideoConfig::default() };
    assert_eq!(key(video.pair(&ends(0))), Some("max_payload_bytes"));
    let pictures = PictureProfile { rate_bps: 0, ..PictureProfile::default() };
    let conference = ConferenceConfig { pictures, ..ConferenceConfig::default() };
    assert_eq!(key(conference.pair(&ends(0), 1)), Some("rate_bps"));
    let web = WebConfig { reading_s: Dist::Exponential { mean: f64::NAN }, ..WebConfig::default() };
    assert_eq!(key(web.pair(&ends(0), 1)), Some("reading"));
    let ftp = FtpConfig { file_bytes: Some(0), ..FtpConfig::default() };
    assert_eq!(key(ftp.pair(&ends(0))), Some("file_bytes"));
}

/// Plays a datagram every 20 ms from 0; each takes this many milliseconds or is lost.
fn played(config: MeterConfig, count: u64, delay_ms: impl Fn(u64) -> Option<u64>) -> Meter {
    let mut events: Vec<(Time, Option<u64>)> = Vec::new();
    for i in 0..count {
        let sent = Time(i * 20 * MS);
        events.push((sent, None));
        events.extend(delay_ms(i).map(|ms| (sent + Span(ms * MS), Some(i))));
    }
    events.sort();
    let mut meter = Meter::new(&config, Direction::Down);
    for (at, event) in events {
        match event {
            None => _ = meter.sent(at, 200, 0),
            Some(seq) => meter.arrived(at, seq),
        }
    }
    meter
}

fn bins(histogram: &Histogram) -> Vec<(i64, u64)> {
    histogram.bins_ns().collect()
}

fn int(results: &Results, name: &str) -> u64 {
    match results.get(name) {
        Some(Value::Int(value)) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

fn float(results: &Results, name: &str) -> f64 {
    match results.get(name) {
        Some(Value::Float(value)) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn ends(offset: u16) -> Ends {
    Ends { first: (FIRST, 1_000 + offset), second: (SECOND, 2_000 + offset) }
}

fn link(rate_bps: u64, delay_ms: u64) -> LinkSpec {
    LinkSpec { rate_bps: Some(rate_bps), delay: Span(delay_ms * MS), ..LinkSpec::default() }
}

/// Frames of equal size every 40 ms.
fn still(bytes: u32) -> VideoConfig {
    let frame = |i: u64| Frame { at: Span(i * 40 * MS), kind: FrameType::I, bytes };
    let trace = Trace::new((0..2).map(frame).collect()).unwrap();
    VideoConfig { trace: Arc::new(trace), ..VideoConfig::default() }
}

fn packet(bytes: u32) -> Packet {
    Packet::new(UDP, (FIRST, 1), (SECOND, 2), bytes, Datagram { seq: 0, tag: 0 })
}

/// Two nodes, and the links between them in both directions.
struct Run {
    network: Network,
    nodes: (NodeId, NodeId),
    channels: (segue_sim::net::ChannelId, segue_sim::net::ChannelId),
    /// The first end added.
    agent: AgentId,
}

impl Run {
    fn new(there: LinkSpec, back: LinkSpec) -> Run {
        Run::with_seed(there, back, 1)
    }

    fn with_seed(there: LinkSpec, back: LinkSpec, seed: u64) -> Run {
        let mut network = Network::new(seed);
        let nodes = (network.add_node("first"), network.add_node("second"));
        for (node, address) in [(nodes.0, FIRST), (nodes.1, SECOND)] {
            network.node_mut(node).addresses.push(address);
            network.add_interface(node, "eth0");
        }
        let channels = network.connect((nodes.0, 1), (nodes.1, 1), there, back).unwrap();
        network.route_all(|_| true);
        Run { network, nodes, channels, agent: AgentId(0) }
    }

    fn add(&mut self, name: &str, pair: Pair) {
        pair.add(&mut self.network, self.nodes, name);
    }

    fn until(&mut self, ms: u64) -> Results {
        self.network.run_until(Time(ms * MS));
        self.network.results()
    }

    /// Measurements of the first application in a direction.
    fn measured(&self, direction: &str) -> Measured {
        let end: &Endpoint = self.network.agent(self.agent).unwrap();
        end.meter(direction).unwrap().finished(self.network.now())
    }
}
