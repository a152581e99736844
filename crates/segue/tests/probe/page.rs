//! `--metrics`: the page of both ends, read by a parser that takes nothing but the format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Listener, PATIENT, Probing};

/// Values by metric and labels.
type Values = BTreeMap<(String, String), f64>;

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

/// A connection that cannot be accepted stays in the queue; the page's thread must not ask for it without
/// a pause.
#[test]
fn without_descriptors_the_page_waits_and_the_measurement_goes_on() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let target = listener.address.to_string();
    let options = ["--metrics", "127.0.0.1:0", "--no-realtime"];
    let mut probing = Probing::start(&[&[target.as_str()], &options[..], &PATIENT].concat());
    let metrics = probing.until(|line| line["type"] == "metrics");
    probing.until(|line| line["type"] == "sample");
    let pid = probing.0.child.id().to_string();
    // Below what it has: none is left.
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
    // The kernel has set one aside for the connection that is waited for already.
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
    waiting.set_read_timeout(None).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn without_being_asked_for_there_is_no_server() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    assert_eq!(listener.metrics, None);
}

pub fn scrape(address: &str) -> Values {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    parse(body)
}

/// Text format 0.0.4, strictly: HELP and TYPE once before the values of a metric, which stand together;
/// names and labels as they must be; counters end in `_total`; no value twice.
fn parse(text: &str) -> Values {
    assert!(text.ends_with('\n'), "the last line ends like any other");
    let (mut values, mut seen, mut current) =
        (Values::new(), BTreeSet::new(), None::<(String, String)>);
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            assert!(!words.is_empty() && seen.insert(name.to_owned()), "{line}");
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(help.take().as_deref(), Some(name), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').unwrap();
            let (metric, kind) = current.as_ref().unwrap();
            assert_eq!(name, metric, "{line}");
            is_name(name);
            check_labels(labels);
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && (kind == "gauge" || value >= 0.0), "{line}");
            assert!(values.insert((name.into(), labels.into()), value).is_none(), "twice: {line}");
        }
    }
    values
}

fn is_name(name: &str) {
    let mut chars = name.chars();
    let first = chars.next().unwrap();
    assert!(first.is_ascii_alphabetic() || first == '_', "{name}");
    assert!(chars.all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
}

fn check_labels(mut rest: &str) {
    let mut names = BTreeSet::new();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap();
        is_name(name);
        assert!(names.insert(name), "label twice: {name}");
        let mut escaped = false;
        let end = value.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        rest = &value[end.unwrap() + 1..];
        if !rest.is_empty() {
            rest = rest.strip_prefix(',').unwrap();
        }
    }
}
