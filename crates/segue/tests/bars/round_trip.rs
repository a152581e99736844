//! Round-trip times reported by tunnels and by the probe, compared with the emulator's timestamps.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::DemoNet;
use segue_wire::TUNNEL_PORT;
use serde_json::Value;

use super::stage::{PATIENCE, Plan, Stage, path};
use super::{DATAPATHS, late, shared, together, truth};

/// The port of our `segue probe --listen`, different from the tunnel's.
pub(crate) const PROBE_PORT: u16 = 5_007;
/// The main time constant in these tests.
pub(crate) const TAU: Span = Span::from_secs(1);
/// A machine that delays a thread by more than this may delay a packet between two timestamps by more than the bar.
pub(crate) const STILL: Span = Span::from_millis(5);
/// Number of samples of the averages, and the interval between them.
const LOOKS: usize = 25;
const LOOK: Duration = Duration::from_millis(150);

/// A running `segue probe`.
pub(crate) struct Probe(Child);

impl Probe {
    /// Starts a measurement from the host.
    pub(crate) fn start(net: &DemoNet, args: &[&str]) -> Probe {
        let mut command = net.host().command(env!("CARGO_BIN_EXE_segue"));
        command.args(["probe", "--json"]).args(args).stdout(Stdio::piped());
        Probe(command.spawn().unwrap())
    }

    /// Waits until the process ends by itself; returns all its lines.
    pub(crate) fn finish(mut self) -> Vec<Value> {
        let mut output = self.0.stdout.take().unwrap();
        let (sink, text) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            sink.send(text)
        });
        let text = text.recv_timeout(PATIENCE).expect("the probe ends");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a listener that answers probes at the anchor.
pub(crate) fn listen(net: &DemoNet) -> Probe {
    let mut command = net.anchor().command(env!("CARGO_BIN_EXE_segue"));
    command.args(["probe", "--json", "--listen", &format!("[::]:{PROBE_PORT}")]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("listening"), "{ready}");
    Probe(child)
}

#[test]
fn round_trip_times_are_those_that_the_emulator_stamped() {
    let Some(_share) = shared() else { return };
    for rtt_ms in [[10, 60], [20, 200]] {
        let cases =
            DATAPATHS.into_iter().flat_map(|datapath| [(datapath, false), (datapath, true)]);
        together(cases, |(datapath, v6)| {
            late::fairly("round-trip times", STILL, || measure(rtt_ms, datapath, v6));
        });
    }
}

fn measure(rtt_ms: [u64; 2], datapath: &'static str, v6: bool) -> Result<(), String> {
    let family = if v6 { "IPv6" } else { "IPv4" };
    let name = format!(
        "rtt{}{}",
        if v6 { "six" } else { "four" },
        if rtt_ms[0] == 10 { "a" } else { "b" }
    );
    let plan = Plan { rtt_ms, v6, ..Plan::new(&name, datapath, (20, 50)) };
    let stage = Stage::running(plan);
    let _listener = listen(&stage.net);
    let (v4_address, v6_address) = DemoNet::ANCHOR;
    let target = match v6 {
        true => format!("[{v6_address}]:{PROBE_PORT}"),
        false => format!("{v4_address}:{PROBE_PORT}"),
    };
    let args = |access| {
        [target.as_str(), "-I", access, "-i", "50ms", "-k", "60", "-w", "6s"].map(str::to_owned)
    };
    let names = [DemoNet::WIFI, DemoNet::LTE];
    let probes = names.map(|name| {
        let args = args(name);
        Probe::start(&stage.net, &args.each_ref().map(String::as_str))
    });
    std::thread::sleep(Duration::from_secs(2));
    let mut said: [Vec<(Time, f64)>; 2] = Default::default();
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK);
        let status = stage.status("host").unwrap();
        let now = Time(status["now_ns"].as_u64().unwrap());
        for (said, name) in said.iter_mut().zip(names) {
            said.push((now, path(&status, name)["rtt_ms"][0].as_f64().unwrap()));
        }
    }
    let lines = probes.map(Probe::finish);
    for (i, name) in names.into_iter().enumerate() {
        let log = stage.access(name).take_log();
        let imposed = truth::round_trips(&log, TUNNEL_PORT);
        let tunnel =
            said[i].iter().map(|(at, s)| (*s, truth::average(&imposed, TAU, *at).unwrap()));
        judge(&format!("{datapath} tunnel over {family}"), rtt_ms[i], tunnel.collect())?;

        let imposed = truth::round_trips(&log, PROBE_PORT);
        let samples = lines[i].iter().filter(|line| line["type"] == "sample");
        let probe = samples.zip(&imposed).skip(60).map(|(sample, (at, _))| {
            let s = sample["rtt_ewma_ms"][0].as_f64().unwrap();
            (s, truth::average(&imposed, TAU, *at).unwrap())
        });
        judge(&format!("segue probe over {family}"), rtt_ms[i], probe.collect())?;
    }
    Ok(())
}

/// Compares reported averages with the true ones: the median, and nine of ten samples. Not all samples, because on a
/// busy machine a packet may wait between two timestamps.
pub(crate) fn judge(what: &str, rtt_ms: u64, pairs: Vec<(f64, f64)>) -> Result<(), String> {
    let mut errors: Vec<f64> = pairs.iter().map(|(said, imposed)| (said - imposed).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let imposed = pairs.iter().map(|(_, imposed)| imposed).sum::<f64>() / pairs.len() as f64;
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    let bar = f64::min(1.0, 0.02 * imposed);
    let (looks, within) = (errors.len(), errors.iter().filter(|error| **error <= bar).count());
    let text = format!(
        "RTT {rtt_ms} ms, {what}: imposed {imposed:.3} ms, error of the average median {median:.3} worst \
         {worst:.3} ms (bar {bar:.3}), within it {within} of {looks} looks"
    );
    println!("{text}");
    if median <= bar && 10 * within >= 9 * looks { Ok(()) } else { Err(text) }
}
