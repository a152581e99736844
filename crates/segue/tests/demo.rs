//! Runs the demonstration in a shortened form: its promises must hold on this machine.

use std::process::Command;

use serde_json::Value;

/// Runs it with a short course. Returns the result as JSON, and whether it reported success.
fn demonstrate(datapath: &str) -> (Value, bool) {
    let out = tempfile::Builder::new().prefix("segue-demo").tempdir().expect("a directory");
    // Five seconds before the silence are judged: an idle path may wait that long for its next probe.
    let course = ["--silent-at", "8s", "--back-at", "11s", "--until", "15s"];
    let run = Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("COLUMNS", "1000")
        .args(["demo", "--json", "--datapath", datapath, "--out"])
        .arg(out.path())
        .args(course)
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    let result =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("a report");
    assert!(page.contains("<svg") && page.contains("Handovers"), "the report has plots and tables");
    let held = if run.status.success() { "It held: " } else { "It did not hold: " };
    assert!(
        page.contains(&format!("<p class=\"verdict\">{held}")),
        "the verdict is the exit status's"
    );
    assert!(page.contains(&format!("<code>segue demo --json --datapath {datapath} --out ")));
    let links: Vec<&str> =
        page.split("<a href=\"").skip(1).filter_map(|a| a.split('"').next()).collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(out.path().join(link).is_file(), "{link} lies beside the report");
    }
    assert!(!out.path().join("anchor.db").exists(), "the anchor's secrets are gone");
    (result, run.status.success())
}

#[test]
fn no_connection_breaks_and_the_flows_move_within_the_bound_and_back() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    for datapath in ["ebpf", "user"] {
        let (result, holds) = demonstrate(datapath);
        println!("{datapath}: {}", result["handovers"]);
        assert_eq!(result["tcp"]["connections_broken"], 0, "{result}");
        assert!(result["tcp"]["bytes"].as_u64() > Some(1_000_000), "{}", result["tcp"]);
        assert!(result["datapath"].as_str().is_some_and(|d| d.starts_with(datapath)), "{result}");
        let handovers = result["handovers"].as_array().expect("a list");
        // If a response is in flight when the silence begins, the uplink's outage is detected first.
        let forced = handovers.iter().find(|h| h["detection_ms"].is_number());
        let forced = forced.expect("a forced handover");
        let figure = |key: &str| forced[key].as_f64().unwrap_or_else(|| panic!("{key}: {forced}"));
        // A busy machine delays detection: allow one second for that, and print the figure.
        assert!(figure("detection_ms") <= figure("bound_ms") + 1_000.0, "{forced}");
        for key in ["at_s", "udp_gap_up_ms", "udp_gap_down_ms", "tcp_stall_ms", "packets_lost"] {
            assert!(figure(key) >= 0.0);
        }
        assert_eq!((&forced["from"], &forced["to"]), (&"wifi".into(), &"lte".into()), "{forced}");
        for path in result["paths"].as_array().expect("a list") {
            for key in ["rtt_ms", "owl_up", "owl_down"] {
                for value in ["imposed", "measured"] {
                    assert!(path[key][value].is_number(), "{key} {value}: {path}");
                }
            }
        }
        println!("{datapath}: all that is promised holds: {holds}");
    }
}

#[test]
fn the_demonstration_of_a_domain_makes_a_page_and_names_it() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let out = tempfile::Builder::new().prefix("segue-demo").tempdir().expect("a directory");
    let run = Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["demo", "pmip", "--out"])
        .arg(out.path())
        .output()
        .expect("the program runs");
    let (text, errors) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let report = out.path().join("report.html");
    assert!(text.contains(&format!("with plots: {}", report.display())), "{text}{errors}");
    assert!(errors.starts_with("Building the network"), "progress from the first second: {errors}");
    let page = std::fs::read_to_string(&report).expect("a report");
    let (_, steps) =
        page.split_once("<th scope=\"col\">verdict</th>").expect("verdicts come first");
    assert!(steps.contains("Wi-Fi goes without a word") && page.contains("<svg"), "{page}");
    for link in page.split("<a href=\"").skip(1).filter_map(|a| a.split('"').next()) {
        assert!(out.path().join(link).is_file(), "{link} lies beside the report");
    }
}
