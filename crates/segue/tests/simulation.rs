//! `segue sim run` as a user runs it: every example, and traces as tshark decodes them.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

#[test]
fn every_example_runs_twice_to_the_same_bytes() {
    let mut found = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".toml") else { continue };
        // These files configure daemons and test networks.
        let options: &[&str] = match name {
            "lab" | "cells" => continue,
            name if segue::cmd::roles::installed().any(|role| role.name == name) => continue,
            "million" => &["--set", "population.hosts=2000", "--duration", "40s"],
            "paper4-tree" => &["--duration", "3s", "--links"],
            "sweep" => &["--duration", "15s", "--links", "--set", "link.radio.down.loss=1%"],
            _ => &["--duration", "15s", "--links"],
        };
        found += 1;
        let run = |seed| {
            let example = example(name);
            self::run(&[&[&example, "--json", "--seed", seed], options].concat())
        };
        let (first, second) = (run("1"), run("1"));
        assert!(first.status.success(), "{name}: {}", text(&first.stderr));
        if name == "million" {
            let found: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
            let verdicts = found["verdicts"].as_array().unwrap();
            assert!(verdicts.len() > 5, "{verdicts:?}");
            for verdict in verdicts {
                assert!(verdict["bar"].as_str().is_some_and(|bar| !bar.is_empty()), "{verdict}");
            }
        }
        assert!(first.stdout.len() > 500 && first.stdout == second.stdout, "{name}");
        assert!(run("2").stdout != first.stdout, "{name}: the seed does nothing");
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn a_radio_walks_through_cells_and_a_gap_between_them_costs_what_lies_in_it() {
    let lost = |walk: &str| {
        let results = results(&format!("{CELLS}{walk}"));
        assert_eq!(results["phone.registered"], 1, "{results}");
        assert_eq!(results["call.down.sent"], 300, "{results}");
        300 - results["call.down.received"].as_u64().unwrap()
    };
    // The call spans three of the handovers, at 4, 6 and 8 s, and has 50 packets per second.
    let (overlap, short, long) =
        (lost("overlap = \"300ms\""), lost("gap = \"200ms\""), lost("gap = \"500ms\""));
    assert!(overlap <= 6, "{overlap}");
    assert!((30..=60).contains(&short), "{short}");
    assert!((40..=50).contains(&(long - short)), "{short} {long}");
}

#[test]
fn a_stock_host_walks_from_gateway_to_gateway_and_its_call_and_download_go_on() {
    let run = |duration: &str| -> serde_json::Value {
        let output = run(&[&example("pmip-walk"), "--json", "--duration", duration]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let count = |results: &serde_json::Value, name: &str| results[name].as_u64().unwrap();
    let ends = ["8s", "12s", "20s"].map(run);
    let [at_first, without, at_second] = &ends;
    for results in &ends {
        assert_eq!(results["alice.addresses"], at_first["alice.addresses"]);
        assert_eq!(count(results, "download.timeouts"), 0);
    }
    // 4 s over cellular, and 8 s in the second cell.
    let got = |results| count(results, "download.delivered_bytes");
    assert!(got(without) > got(at_first) + 1_500_000 && got(at_second) > got(without) + 5_000_000);
    // One direction is lost with the cell; the other until the host has learned of a better router, 34 ms later.
    for (way, most) in [("down", 2), ("up", 4)] {
        let lost = |results| count(results, &format!("call.{way}.lost"));
        assert!(lost(without) <= most && lost(at_second) <= most + 2, "{way}: {at_second}");
    }
    let handovers = at_second["lma.handovers"].as_array().unwrap();
    let said = |key: &str| handovers.iter().map(|row| &row[key]).collect::<Vec<_>>();
    assert_eq!(said("cause"), ["left", "moved"]);
    assert_eq!(said("flows"), [2, 2]);
    assert_eq!(said("mn_id"), ["alice@example.org"; 2]);
}

#[test]
fn nothing_for_a_host_is_lost_when_a_function_tells_beforehand_that_it_leaves() {
    let run = |more: &[&str]| -> serde_json::Value {
        let output = run(&[&[example("pmip-mih").as_str(), "--json"], more].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let count = |results: &serde_json::Value, name: &str| results[name].as_u64().unwrap();
    let lost = |results| ["down", "up"].map(|way| count(results, &format!("call.{way}.lost")));
    let told = run(&[]);
    assert_eq!(lost(&told), [0, 0], "{told}");
    assert_eq!(count(&told, "lma.handovers_going_down"), 6);
    let surprised = run(&["--set", "lma.lma.functions=[]"]);
    assert!(lost(&surprised)[1] >= 6, "{surprised}");
    assert_eq!(count(&surprised, "lma.handovers_going_down"), 0);
}

#[test]
fn a_rebound_translator_gives_the_host_another_address_and_its_tunnel_goes_on() {
    let still = results(BEHIND_A_NAT);
    let event = "[[event]]\nat = \"4s\"\nrebind = \"box\"\naddress = \"192.0.2.2\"\n";
    let rebound = results(&format!("{BEHIND_A_NAT}{event}"));
    for results in [&still, &rebound] {
        assert_eq!(results["phone.registered"], 1, "{results}");
    }
    let lost = |results: &serde_json::Value| {
        let got = results["call.down.received"].as_u64().unwrap();
        results["call.down.sent"].as_u64().unwrap() - got
    };
    assert!(lost(&rebound) >= lost(&still), "{rebound}");
    // The host misses the downlink's stream after 40 ms. The anchor adopts the new address from a question that echoes
    // the answer to the previous question: a round trip and a few milliseconds.
    assert!(lost(&rebound) - lost(&still) <= 9, "{} {}", lost(&rebound), lost(&still));
}

#[test]
fn recorded_losses_are_those_of_the_file() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("losses", "# every fourth\n0 0 0 lost\n");
    write("s.toml", &format!("{TWO}loss = {{ trace = \"losses\" }}\n{CALL}"));
    let file = directory.path().join("s.toml").display().to_string();
    let output = run(&[&file, "--json", "--links"]);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |key: &str| results[key].as_u64().unwrap();
    for way in ["up", "down"] {
        let offered = count(&format!("link.wire.{way}.offered"));
        assert_eq!(count(&format!("link.wire.{way}.lost")), offered / 4, "{way}");
        assert!(offered > 200, "{offered}");
    }
    write("losses", "0\n1 2");
    refused(&[&file], ":9: link.wire.loss: losses:2: \"2\" is none of 0, 1, kept, lost");
}

#[test]
fn what_cannot_be_run_is_refused_in_one_line() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
    write("good.toml", format!("{TWO}{CALL}").as_bytes());
    write("binary.toml", &[0xff, 0, 1, 2]);
    write("deep.toml", format!("x = {}", "[".repeat(100_000)).as_bytes());
    write("long.toml", &b"# a\n".repeat(3 << 20));
    for (name, words) in [
        ("binary.toml", "it is no UTF-8 text"),
        ("deep.toml", ":1: x: cannot recurse further"),
        ("long.toml", "it has more than 8 MiB"),
        ("", "Is a directory"),
        ("no\nsuch.toml", "No such file"),
    ] {
        refused(&[&path(name)], words);
    }
    let good = path("good.toml");
    for (set, words) in [
        ("link.wire.rate=1e300bit", "is too much"),
        ("link.wire.delay=3650000d", "is too long"),
        ("link.wire.queue=99999999999", "up to 4294967295"),
        ("link.wire.loss=nan", "is not a number"),
        ("voip.call.packet_interval=0s", "must be above 0"),
        ("voip.call.name=\"../x,y\"", "a name has letters, digits, - and _"),
        ("duration=0s", "a run of no time"),
        ("seed=-1", "must be 0 or more"),
    ] {
        refused(&[&good, "--set", set], words);
    }
    let trace = format!("--trace={}", path("no/such/t"));
    refused(&[&good, &trace], "No such file");
}

#[test]
fn a_run_in_which_time_stands_still_ends_with_a_line() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.toml");
    let greedy = "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\n";
    std::fs::write(&path, format!("{TWO}{greedy}")).unwrap();
    let named = "tcp.t.to: time stops: wire has neither delay nor rate";
    refused(&[&path.display().to_string()], named);
    let check = Command::new(env!("CARGO_BIN_EXE_segue")).arg("check").arg(&path).output().unwrap();
    assert_eq!(check.status.code(), Some(2), "{}", text(&check.stderr));
    let said = [text(&check.stdout), text(&check.stderr)].concat();
    assert!(said.contains("wire has neither delay nor rate"), "{said}");
    // Either key makes time pass on the link.
    for key in ["delay = \"1ms\"", "rate = \"1mbit\""] {
        std::fs::write(&path, format!("{TWO}{key}\n{greedy}")).unwrap();
        let ran = run(&[&path.display().to_string(), "--duration", "50ms"]);
        assert!(ran.status.success(), "{key}: {}", text(&ran.stderr));
    }
    // A file of this length is as good as endless.
    std::fs::write(&path, format!("{TWO}{greedy}bytes = 1000000000000\n")).unwrap();
    refused(
        &[&path.display().to_string()],
        "the run gets no further than 0.000 ms, with 10000000 events at that instant",
    );
}

#[test]
fn a_run_writes_time_series_and_a_page() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    let at = out.display().to_string();
    let ran = run(&[&example("handover"), "--out", &at]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(text(&ran.stdout), text(&run(&[&example("handover")]).stdout));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let series = read("series.csv");
    let mut lines = series.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1_000);
    let column = |name: &str| -> Vec<Option<f64>> {
        let place = names.iter().position(|known| *known == name);
        let place = place.unwrap_or_else(|| panic!("no {name} in {names:?}"));
        rows.iter().map(|row| row[place].parse().ok()).collect()
    };
    let times = column("time_s");
    assert_eq!((times[0], times[999]), (Some(0.03), Some(30.0)));
    // Between 12.5 s and 22 s all traffic uses cellular.
    let mean = |name: &str, from: usize, to: usize| {
        let values: Vec<f64> = column(name)[from..to].iter().flatten().copied().collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    assert!(mean("link.wifi.down.received_bps", 100, 400) > 1e6);
    assert_eq!(mean("link.wifi.down.received_bps", 417, 733), 0.0);
    assert!(mean("link.lte.down.received_bps", 450, 733) > 1e6);
    assert!((5.0..20.0).contains(&mean("link.wifi.down.delay_ms", 100, 400)));
    assert!(mean("download.window_packets", 100, 400) > 2.0);
    assert!(mean("link.lte.down.queue_packets", 450, 733) >= 0.0);
    assert!(column("link.wifi.down.lost").iter().flatten().sum::<f64>() > 10.0);
    // The sum over all time slices equals the link's counter.
    let counted = run(&[&example("handover"), "--json", "--links"]);
    let counted: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
    let bits: f64 =
        column("link.lte.down.received_bps").iter().flatten().map(|bps| bps * 0.03).sum();
    let bytes = counted["link.lte.down.delivered_bytes"].as_f64().unwrap();
    assert!((bits / 8.0 - bytes).abs() < 1.0, "{bits} {bytes}");
    let page = read("report.html");
    for words in
        ["States", "Handovers", "Congestion windows", "moved from wifi to lte", "up.r_g711"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(read("events.csv").contains("path wifi down"));
    assert_eq!(&std::fs::read(out.join("series.parquet")).unwrap()[..4], b"PAR1");
    let results: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(results["call.up.sent"], 1400);
    refused(&[&example("million"), "--out", &at], "--out");
}

#[test]
fn handovers_of_a_host_are_counted_without_a_list_of_instants() {
    let file = std::fs::read_to_string(root().join("examples/handover.toml")).unwrap();
    let listed = "handovers = [\"12s\"]\n";
    assert!(file.contains(listed));
    let found = results(&file.replace(listed, ""));
    // Away from the Wi-Fi, for each direction at a separate instant, and back.
    let count = |key: &str| found[key].as_u64().unwrap();
    assert_eq!(count("alice.handovers"), 4, "{found}");
    assert!((2..=4).contains(&count("call.up.handovers")), "{found}");
    assert_eq!(count("call.up.handovers"), count("call.down.handovers"));
    assert!(count("call.up.handover_lost") > 0, "{found}");
    assert_eq!(results(&file)["call.up.handovers"], 1);
}

#[test]
fn nodes_that_must_forward_and_links_that_carry_nothing_are_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.toml").display().to_string();
    let stderr = |scenario: &str| {
        std::fs::write(&path, scenario).unwrap();
        let output = run(&[&path]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let idle = format!(
        "{TWO}delay = \"1ms\"\n[[link]]\nname = \"spare\"\nends = [\"a\", \"b\"]\ndelay = \"9ms\"\n{CALL}"
    );
    let said = stderr(&idle);
    assert!(said.contains("segue: note: link spare carried no packet\n"), "{said}");
    assert!(!said.contains("link wire"), "{said}");
}

/// Two nodes and a perfect link. The link's table is left open for further keys.
const TWO: &str = "duration = \"5s\"
[[node]]
name = \"a\"
[[node]]
name = \"b\"
[[link]]
name = \"wire\"
ends = [\"a\", \"b\"]
";

const CALL: &str = "[[voip]]\nname = \"call\"\nfrom = \"a\"\nto = \"b\"\n";

/// A Segue host that alternates between two cells, with a call from 3 s to 9 s. The walk's table is left open for
/// further keys.
const CELLS: &str = r#"duration = "10s"
[[node]]
name = "mobile"
[[node]]
name = "west"
transit = true
[[node]]
name = "east"
transit = true
[[node]]
name = "core"
transit = true
[[node]]
name = "desk"
[[link]]
name = "w"
ends = ["core", "west"]
delay = "5ms"
[[link]]
name = "e"
ends = ["core", "east"]
delay = "5ms"
[[link]]
name = "lan"
ends = ["core", "desk"]
[[cell]]
name = "cw"
router = "west"
prefix = "10.20.0.0/24"
delay = "1ms"
[[cell]]
name = "ce"
router = "east"
prefix = "10.21.0.0/24"
delay = "1ms"
[[anchor]]
name = "anchor"
node = "core"
[[host]]
name = "phone"
node = "mobile"
anchor = "anchor"
[[voip]]
name = "call"
from = "mobile"
to = "desk"
start = "3s"
stop = "9s"
[[walk]]
node = "mobile:air"
cells = ["cw", "ce"]
period = "2s"
"#;

/// A Segue host behind a translator calls the anchor's neighbour from 2 s to 8 s.
const BEHIND_A_NAT: &str = r#"duration = "9s"
[[node]]
name = "mobile"
[[node]]
name = "box"
transit = true
[[node]]
name = "core"
transit = true
[[node]]
name = "desk"
[[link]]
name = "wifi"
ends = ["mobile", "box"]
addresses = [["10.1.0.2"], []]
delay = "5ms"
[[link]]
name = "dsl"
ends = ["box", "core"]
addresses = [["192.0.2.1"], []]
delay = "10ms"
[[link]]
name = "lan"
ends = ["core", "desk"]
[[nat]]
node = "box"
inside = ["wifi"]
[[anchor]]
name = "anchor"
node = "core"
[[host]]
name = "phone"
node = "mobile"
anchor = "anchor"
[[voip]]
name = "call"
from = "mobile"
to = "desk"
start = "2s"
stop = "8s"
"#;

/// The results of a scenario.
fn results(scenario: &str) -> serde_json::Value {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, scenario).unwrap();
    let output = run(&[&path.display().to_string(), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts one error line with these words, exit status 2, and nothing on standard output.
fn refused(arguments: &[&str], words: &str) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.trim_end().lines().count() == 1 && error.contains(words), "{words}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn a_trace_changes_nothing_and_has_what_was_lost() {
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let scenario = example("handover");
    let plain = run(&[&scenario, "--duration", "14s", "--json"]);
    let option = format!("--trace={prefix}");
    let traced = run(&[&scenario, "--duration", "14s", "--json", &option]);
    assert_eq!(text(&plain.stdout), text(&traced.stdout), "{}", text(&traced.stderr));
    let log = std::fs::read_to_string(format!("{prefix}.log")).unwrap();
    for part in
        ["registered, inner addresses 10.7.0.2", "lost on wifi.up, link silent: ", "silent for "]
    {
        assert!(log.contains(part), "{part}");
    }
    assert!(log.lines().all(|line| line.split(' ').next().unwrap().len() >= 11));
}

#[test]
fn a_trace_without_a_prefix_has_the_name_of_its_scenario() {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.args(["sim", "run", &example("handover"), "--duration", "1s", "--trace"]);
    let output = command.current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["handover.pcapng", "handover.log"] {
        assert!(directory.path().join(name).metadata().unwrap().len() > 0, "{name}");
    }
}

#[test]
fn wireshark_finds_nothing_wrong_in_a_trace_and_the_retransmissions_that_were() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark");
        return;
    }
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let trace = format!("--trace={prefix}");
    let options = ["--duration", "14s", "--json", "--snaplen", "65535", "--trace-at", "server"];
    let scenario = example("handover");
    let arguments = [&[scenario.as_str(), trace.as_str()], &options[..]].concat();
    let results: serde_json::Value = serde_json::from_slice(&run(&arguments).stdout).unwrap();
    let capture = format!("{prefix}.pcapng");
    expect_clean(&capture);
    let again =
        fields(&capture, "tcp.analysis.retransmission || tcp.analysis.out_of_order", "tcp.seq");
    let sent = results["download.retransmissions"].as_u64().unwrap();
    assert!(sent > 0 && !again.is_empty(), "{sent} sent again, {} seen", again.len());
    assert!(again.len() as u64 <= sent, "{sent} sent again, {} seen", again.len());
}

#[test]
fn wireshark_reads_probes_and_tunnels_by_the_description_of_their_format() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark");
        return;
    }
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let trace = format!("--trace={prefix}");
    let options = ["--duration", "4s", "--snaplen", "65535", "--trace-at", "phone:wifi"];
    run(&[&[example("handover").as_str(), trace.as_str()], &options[..]].concat());
    let capture = format!("{prefix}.pcapng");
    expect_clean(&capture);
    let requests = fields(&capture, "segue.type == 2", "segue.probe.seq");
    let numbers: Vec<u32> = requests.iter().map(|text| text.parse().unwrap()).collect();
    assert!(
        numbers.len() > 20 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    assert!(fields(&capture, "segue.type == 3", "segue.probe.seq").len() > 20);
    // Inner data: the packets of the call, 20 ms of G.711 with headers.
    assert!(fields(&capture, "segue.type == 0 && udp.length == 180", "ip.src").len() > 50);
}

#[test]
fn wireshark_reads_a_domain_of_proxy_mobile_ipv6_and_finds_nothing_wrong() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark");
        return;
    }
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let trace = format!("--trace={prefix}");
    let at = ["--trace-at", "phone", "--trace-at", "lte-router"];
    let options = [&["--duration", "14s", "--json", "--snaplen", "65535"], &at[..]].concat();
    run(&[&[example("pmip-walk").as_str(), trace.as_str()], &options[..]].concat());
    let capture = format!("{prefix}.pcapng");
    expect_clean(&capture);
    let found = fields(&capture, "icmpv6.checksum.status == 0", "frame.number");
    assert!(found.is_empty(), "{found:?}");
    // PBU and PBA, and the anchor's notification about the host's other interface with its acknowledgement.
    let mut messages = fields(&capture, "mip6.mhtype", "mip6.mhtype");
    messages.sort_unstable_by_key(|kind| kind.parse::<u8>().unwrap());
    messages.dedup();
    for kind in ["5", "6", "19", "20"] {
        assert!(messages.iter().any(|known| known == kind), "{kind}: {messages:?}");
    }
    // The advertisement goes to one host only, with the prefix of its other interface, and has high preference while
    // that interface is away.
    let advertised = "icmpv6.type == 134 && icmpv6.opt.prefix == 2001:db8:0:1::";
    let preferences = fields(&capture, advertised, "icmpv6.nd.ra.flag.prf");
    let high = preferences.iter().filter(|preference| *preference == "1").count();
    assert!(high > 0 && high < preferences.len(), "{preferences:?}");
    // During that time the call uses the other gateway's tunnel: IPv6 in IPv6.
    let within = "ipv6.nxt == 41 && udp.dstport == 49152 && ipv6.dst == 2001:db8::5e:ff:fe00:1";
    assert!(fields(&capture, within, "frame.number").len() > 150);
    let log = std::fs::read_to_string(format!("{prefix}.log")).unwrap();
    for part in ["(left), flows that were placed: 2", "default route over lte"] {
        assert!(log.contains(part), "{part}");
    }
}

/// Asserts that no packet is malformed and every checksum is right.
fn expect_clean(capture: &str) {
    let wrong = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || \
                 tcp.checksum.status == 0 || segue.malformed";
    let found = fields(capture, wrong, "frame.number");
    assert!(found.is_empty(), "{} packets, the first {:?}", found.len(), found.first());
    let right = "(ipv6 || ip.checksum.status == 1) && udp.checksum.status == 1";
    let right = fields(capture, right, "frame.number");
    assert!(right.len() > 50, "{}", right.len());
}

/// The values of a field in all packets that match a display filter.
fn fields(capture: &str, filter: &str, field: &str) -> Vec<String> {
    let lua = format!("lua_script:{}", root().join("docs/wire/segue.lua").display());
    let mut command = Command::new("tshark");
    command.args(["-X", &lua, "-r", capture, "-Y", filter, "-T", "fields", "-e", field]);
    for checked in ["ip", "udp", "tcp"] {
        command.args(["-o", &format!("{checked}.check_checksum:TRUE")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{filter}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.args(["sim", "run"]).args(arguments).output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> String {
    root().join(format!("examples/{name}.toml")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
