//! Silent outages behind the first hop, in both directions or in one, and recovery from them.

use std::time::Duration;

use segue_clock::Span;
use segue_lab::Direction;
use serde_json::Value;

use crate::over_both;
use crate::traffic::{Stream, Voice, correspondents};
use crate::world::{Daemon, K, PERIOD_MS, World, path, wait_for};

over_both! { alone:
    a_silent_outage_moves_all_flows_and_breaks_none
    an_outage_of_the_uplink_alone_moves_both_ends
    an_outage_of_the_downlink_alone_moves_both_ends
}

/// Scheduling delay that a busy machine may add to the protocol's time.
const SCHEDULING_MS: f64 = 1_000.0;

/// Whether a flow uses `name`: bound to it, or redirected to it.
fn carried_by(flow: &Value, name: &str) -> bool {
    match flow["via"].as_str() {
        Some(via) => via == name,
        None => flow["path"] == name,
    }
}

fn all_carried_by(daemon: &Daemon, flows: &[String], name: &str) -> bool {
    flows.iter().all(|port| daemon.flow(&[port]).is_some_and(|flow| carried_by(&flow, name)))
}

/// Milliseconds from an instant to the first matching event of `daemon`.
fn after(daemon: &Daemon, since_ns: u64, what: &str, fits: impl Fn(&Value) -> bool) -> f64 {
    let mut found = None;
    wait_for(what, || {
        let status = daemon.status();
        found = status["events"].as_array().unwrap().iter().find_map(|event| {
            let at = event["at_ns"].as_u64().unwrap();
            (at >= since_ns && fits(event)).then(|| (at - since_ns) as f64 / 1e6)
        });
        found.is_some()
    });
    found.unwrap()
}

fn is_down(event: &Value) -> bool {
    event["kind"] == "path_state" && event["path"] == "wifi" && event["detail"] == "down"
}

fn is_up(event: &Value) -> bool {
    event["kind"] == "path_state" && event["path"] == "wifi" && event["detail"] == "up"
}

struct Running {
    world: World,
    anchor: Daemon,
    host: Daemon,
    stream: Stream,
    voice: Voice,
    /// Ports by which the flows are identified at both ends.
    ports: Vec<String>,
}

impl Running {
    fn start(datapath: &'static str) -> Option<Running> {
        let world = World::new(datapath)?;
        let (anchor, host) = world.running();
        let [v4, v6] = correspondents();
        let (node, cn) = (world.net.host(), world.net.cn());
        let stream = Stream::start(node, cn, v4, Duration::from_millis(10));
        let voice = Voice::start(node, cn, v6);
        let ports = [stream.host, voice.host].map(|end| format!(":{}", end.port())).to_vec();
        stream.flows_on(40_000);
        wait_for("all flows over wifi", || {
            all_carried_by(&host, &ports, "wifi") && all_carried_by(&anchor, &ports, "wifi")
        });
        Some(Running { world, anchor, host, stream, voice, ports })
    }

    fn silence(&self, ways: &[Direction], silent: bool) -> u64 {
        let at = ways.iter().map(|way| self.world.net.wifi().set_silent(*way, silent)).min();
        at.unwrap().0
    }

    fn recovers(&self, since_ns: u64) {
        let periods = (10 * PERIOD_MS) as f64;
        let back = after(&self.host, since_ns, "wifi is up again", is_up);
        println!(
            "  wifi up again {back:.0} ms after the end of the outage (10 periods: {periods})"
        );
        assert!(back <= periods + 20.0 + SCHEDULING_MS, "{back}");
        wait_for("all flows over wifi again", || {
            all_carried_by(&self.host, &self.ports, "wifi")
                && all_carried_by(&self.anchor, &self.ports, "wifi")
        });
        self.stream.flows_on(40_000);
        self.voice.flows_on(20);
    }
}

fn a_silent_outage_moves_all_flows_and_breaks_none(datapath: &'static str) {
    let Some(running) = Running::start(datapath) else { return };
    let Running { anchor, host, stream, voice, ports, .. } = &running;
    let bound = path(&host.status(), "wifi")["bound_ms"].as_f64().unwrap();
    assert!(bound >= ((K + 1) * PERIOD_MS) as f64 + 10.0, "T_Rmax with its round trip: {bound}");
    voice.mark();
    let at = running.silence(&Direction::ALL, true);
    let near = after(host, at, "the host notices", is_down);
    let far = after(anchor, at, "the anchor notices", is_down);
    voice.flows_on(20);
    let gaps = voice.gap_ms();
    println!("{datapath}: noticed after {near:.0} ms (host) and {far:.0} ms (anchor)");
    println!("  T_Rmax {bound:.0} ms; longest gaps of voice up and down {gaps:?} ms");
    for taken in [near, far] {
        assert!(taken <= bound + SCHEDULING_MS, "{taken} ms");
    }
    wait_for("flows over lte at both ends", || {
        all_carried_by(host, ports, "lte") && all_carried_by(anchor, ports, "lte")
    });
    println!("  TCP: 40 kB more after {:?}", stream.flows_on(40_000));
    let at = running.silence(&Direction::ALL, false);
    running.recovers(at);
}

fn an_outage_of_the_uplink_alone_moves_both_ends(datapath: &'static str) {
    one_way(datapath, Direction::Up);
}

fn an_outage_of_the_downlink_alone_moves_both_ends(datapath: &'static str) {
    one_way(datapath, Direction::Down);
}

/// Both directions of every flow continue within T_Rmax plus a period plus the other path's delay.
fn one_way(datapath: &'static str, dead: Direction) {
    let Some(running) = Running::start(datapath) else { return };
    let Running { host, stream, voice, .. } = &running;
    let bound = path(&host.status(), "wifi")["bound_ms"].as_f64().unwrap();
    let other = Span::from_millis(30).as_millis_f64();
    let allowed = bound + PERIOD_MS as f64 + other + 20.0 + SCHEDULING_MS;
    if dead == Direction::Down {
        // By then loss has an average: the value of the first interval.
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    voice.mark();
    let at = running.silence(&[dead], true);
    let noticed = after(host, at, "the host notices", is_down);
    voice.flows_on(20);
    let gaps = voice.gap_ms();
    println!("{datapath}: {} dead, noticed after {noticed:.0} ms", dead.name());
    println!("  T_Rmax {bound:.0} ms; longest gaps of voice up and down {gaps:?} ms");
    assert!(noticed <= allowed && gaps.iter().all(|gap| *gap as f64 <= allowed), "{allowed}");
    stream.flows_on(40_000);
    if dead == Direction::Down {
        std::thread::sleep(std::time::Duration::from_secs(3));
    }
    let at = running.silence(&[dead], false);
    running.recovers(at);
    if dead == Direction::Down {
        running.leaves_it_out();
    }
}

impl Running {
    /// An outage of seconds must not affect either end's long-term average of downlink loss.
    fn leaves_it_out(&self) {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let [own, anchors] = [&self.host, &self.anchor]
            .map(|daemon| path(&daemon.status(), "wifi")["owl_down"][1].as_f64().unwrap());
        println!("  loss downwards over 10 s: host {own:.3}, anchor {anchors:.3}");
        assert!(anchors < 0.12 && (own - anchors).abs() < 0.08, "{own} {anchors}");
    }
}
