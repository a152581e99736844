//! Reads a page of metrics with a strict parser of the Prometheus format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Values by metric and labels.
pub(crate) type Values = BTreeMap<(String, String), f64>;

/// The values of the page served over this connection.
pub(crate) fn scrape_over(stream: TcpStream) -> Values {
    parse(&page_over(stream))
}

/// Requests the page over this connection.
pub(crate) fn page_over(mut stream: TcpStream) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

/// Parses text format 0.0.4 strictly: HELP and TYPE once before the values of a metric, which are
/// grouped; valid names and labels; counters end in `_total`; no value occurs twice.
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
