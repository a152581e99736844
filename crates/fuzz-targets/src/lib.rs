//! One function for each parser: it takes any bytes, hands them to the parser and panics if a property does not hold.
//! The fuzzer (`fuzz/`) calls these with generated inputs, an ordinary `cargo test` with the inputs kept in
//! `fuzz/corpus/`. `docs/fuzzing.md` lists the properties.

mod frames;
mod packets;
mod stamp;
mod stand_in;
mod take;
mod text;
mod tunnel;
mod values;

pub use frames::frame;
pub use packets::{coalesce, receive, segment};
pub use stamp::stamp;
pub use stand_in::stand_in;
pub use text::{
    anchor_config, certificate_request, control, host_config, join, lab_file, prefix, probe_key,
    scenario, units, video_trace,
};
pub use tunnel::{enrol, from_anchor, from_host, header, icmp, inner, probe, ride, size, upmt};
pub use values::{link, plan};

/// A target: takes any bytes, panics if a property does not hold.
pub type Target = fn(&[u8]);

/// Every target by the name of its directory in `fuzz/corpus/`.
pub const ALL: [(&str, Target); 29] = [
    ("header", header),
    ("probe", probe),
    ("ride", ride),
    ("size", size),
    ("icmp", icmp),
    ("upmt", upmt),
    ("inner", inner),
    ("from_host", from_host),
    ("from_anchor", from_anchor),
    ("enrol", enrol),
    ("certificate_request", certificate_request),
    ("receive", receive),
    ("segment", segment),
    ("coalesce", coalesce),
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
    ("stand_in", stand_in),
];
