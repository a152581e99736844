//! `--metrics`: the pages of both ends, read by a strict parser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::exposition::{Values, scrape_over};
use super::{Listener, PATIENT, Probing};

#[test]
fn both_ends_serve_what_they_measure_in_the_format_of_prometheus() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let target = listener.address.to_string();
    let mut probing = Probing::start(
        &[&[target.as_str(), "--metrics", "127.0.0.1:0", "--tau", "1s,500ms"], &PATIENT[..]]
            .concat(),
    );
    let metrics = probing.until(|line| line["type"] == "metrics");
    let seq = |line: &Value| line["seq"].as_u64();
    probing.until(|line| line["type"] == "sample" && seq(line) >= Some(25));

    let page = scrape(metrics["address"].as_str().unwrap());
    let label = format!("target=\"{target}\"");
    let value = |name: &str, more: &str| {
        let labels = if more.is_empty() { label.clone() } else { format!("{label},{more}") };
        *page
            .get(&(name.into(), labels.clone()))
            .unwrap_or_else(|| panic!("{name} {labels}: {page:?}"))
    };
    assert!(value("segue_rtt_seconds", "") < 60.0);
    assert!(value("segue_rtt_uncertainty_seconds", "") > 0.0);
    assert!(value("segue_rtt_average_seconds", "tau=\"0.5s\"") > 0.0);
    assert_eq!(value("segue_loss_ratio", "direction=\"up\",tau=\"1s\""), 0.0);
    assert_eq!(value("segue_path_state", "state=\"up\""), 1.0);
    assert_eq!(value("segue_path_state", "state=\"down\""), 0.0);
    assert!(value("segue_probes_received_total", "") >= 25.0);
    assert!(value("segue_packets_sent_total", "direction=\"down\"") >= 24.0);

    let page = scrape(listener.metrics.as_deref().unwrap());
    assert_eq!(page[&("segue_sessions".into(), String::new())], 1.0);
    let of = |name: &str| page.iter().filter(|((n, _), _)| n == name).count();
    assert_eq!((of("segue_rtt_seconds"), of("segue_path_state")), (1, 3));
}

#[test]
fn both_ends_of_stamp_serve_what_they_measure_under_the_same_names() {
    let metrics = ["--metrics", "127.0.0.1:0"];
    let reflector =
        Listener::start(&[&["--stamp", "--listen", "127.0.0.1:0"], &metrics[..]].concat());
    let target = reflector.address.to_string();
    let mut probing =
        Probing::start(&[&["--stamp", &target, "--direct"], &metrics[..], &PATIENT].concat());
    let address = probing.until(|line| line["type"] == "metrics");
    probing.until(|line| line["type"] == "sample" && line["seq"].as_u64() >= Some(25));

    let page = scrape(address["address"].as_str().unwrap());
    let value = |name: &str, more: &str| {
        let labels = format!("target=\"{target}\"{more}");
        page[&(name.to_owned(), labels)]
    };
    assert!((0.0..60.0).contains(&value("segue_rtt_seconds", "")));
    for way in ["both", "up", "down"] {
        assert!(value("segue_jitter_seconds", &format!(",direction=\"{way}\"")) >= 0.0);
    }
    for way in ["up", "down"] {
        let way = format!(",direction=\"{way}\"");
        let sent = value("segue_packets_sent_total", &way);
        assert!(sent >= 24.0 && value("segue_packets_received_total", &way) <= sent);
    }
    let received = value("segue_probes_received_total", "");
    assert!(received >= 25.0 && value("segue_probes_sent_total", "") >= received);

    let page = scrape(reflector.metrics.as_deref().unwrap());
    let stamp = "protocol=\"stamp\"".to_owned();
    assert_eq!(page[&("segue_sessions".into(), stamp)], 1.0);
    let sent: Vec<_> = page.iter().filter(|((n, _), _)| n == "segue_probes_sent_total").collect();
    assert!(sent.len() == 1 && *sent[0].1 >= received, "{page:?}");
}

/// A connection that cannot be accepted stays in the queue, so the server thread must pause before
/// it tries again.
#[test]
fn without_descriptors_the_page_waits_and_the_measurement_goes_on() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let target = listener.address.to_string();
    let options = ["--metrics", "127.0.0.1:0", "--no-realtime"];
    let mut probing = Probing::start(&[&[target.as_str()], &options[..], &PATIENT].concat());
    let metrics = probing.until(|line| line["type"] == "metrics");
    probing.until(|line| line["type"] == "sample");
    let pid = probing.0.child.id().to_string();
    // A limit below the number in use, so no descriptor is left.
    let limit = |descriptors: &str| {
        let limit = format!("--nofile={descriptors}:1000");
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
        status.is_ok_and(|status| status.success())
    };
    if !limit("3") {
        println!("skipped: needs prlimit");
        return;
    }
    // Processor time, user and system, in hundredths of a second.
    let spent = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let address = metrics["address"].as_str().unwrap();
    // The kernel has already reserved a descriptor for the accept in progress; use it up.
    scrape(address);
    let before = spent();
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    waiting.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    assert!(waiting.read(&mut [0; 1]).is_err(), "there was a descriptor for it");
    let spent = spent() - before;
    assert!(spent < 30, "{spent} hundredths of 2 s of processor time");
    probing.until(|line| line["type"] == "sample");
    assert!(limit("1000"));
    waiting.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn without_being_asked_for_there_is_no_server() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    assert_eq!(listener.metrics, None);
}

/// Reads the page at this address.
pub(crate) fn scrape(address: &str) -> Values {
    scrape_over(TcpStream::connect(address).unwrap())
}
