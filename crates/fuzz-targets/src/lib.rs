//! One function for each parser. It takes arbitrary bytes, passes them to the parser, and panics if a property does not
//! hold. The fuzzer (`fuzz/`) calls it with generated inputs, and an ordinary `cargo test` with the inputs stored in
//! `fuzz/corpus/`. `docs/fuzzing.md` lists the properties.

mod discovery;
mod frames;
mod mih;
mod mobility;
mod nl80211;
mod packets;
mod radius;
mod relay;
mod stamp;
mod stand_in;
mod take;
mod text;
mod tunnel;
mod values;

use segue_echo::Message;

use discovery::{decode, nd, router_options};
use frames::frame;
use mih::mih;
use mobility::{extension, mobility};
use nl80211::nl80211;
use packets::{coalesce, receive, segment};
use radius::radius;
use relay::relay;
use stamp::stamp;
use stand_in::stand_in;
use text::{
    anchor_config, certificate_request, control, host_config, join, lab_file, prefix, probe_key,
    scenario, units, video_trace,
};
use tunnel::{enrol, from_anchor, from_host, header, icmp, inner, probe, ride, size, upmt};
use values::{link, plan};

/// A target: takes arbitrary bytes, and panics if a property does not hold.
pub type Target = fn(&[u8]);

/// All targets, by the name of their directory in `fuzz/corpus/`.
pub const ALL: &[(&str, Target)] = &[
    ("header", header),
    ("probe", probe),
    ("ride", ride),
    ("size", size),
    ("icmp", icmp),
    ("nd", nd),
    ("router_options", router_options),
    ("decode", decode),
    ("upmt", upmt),
    ("inner", inner),
    ("from_host", from_host),
    ("from_anchor", from_anchor),
    ("enrol", enrol),
    ("certificate_request", certificate_request),
    ("receive", receive),
    ("segment", segment),
    ("coalesce", coalesce),
    ("relay", relay),
    ("join", join),
    ("host_config", host_config),
    ("anchor_config", anchor_config),
    ("control", control),
    ("lab_file", lab_file),
    ("scenario", scenario),
    ("probe_key", probe_key),
    ("units", units),
    ("video_trace", video_trace),
    ("prefix", prefix),
    ("plan", plan),
    ("link", link),
    ("frame", frame),
    ("stamp", stamp),
    ("mobility", mobility),
    ("extension", extension),
    ("mih", mih),
    ("nl80211", nl80211),
    ("radius", radius),
    ("stand_in", stand_in),
    ("echo", |data| reads_back(data, Message::parse, Message::emit)),
];

/// Runs a target on an input.
///
/// # Panics
/// No such target, or a property does not hold.
pub fn run(name: &str, data: &[u8]) {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (_, target) = found.expect("a target's name");
    target(data);
}

/// Messages of one datagram each: every parsed message, from the whole input or a prefix, is emitted as the same bytes.
fn reads_back<M>(data: &[u8], parse: fn(&[u8]) -> Option<M>, emit: fn(&M) -> Vec<u8>) {
    for n in 0..=data.len() {
        if let Some(message) = parse(&data[..n]) {
            assert_eq!(emit(&message), data[..n]);
        }
    }
}
