//! The names of messages, and the selection of messages by name (`--only`).

use std::collections::BTreeSet;

use segue_wire::mih::MessageId;
use segue_wire::mobility::MessageType;
use segue_wire::nd::Kind;
use segue_wire::radius::Code;

use crate::{mh, mih, radius};

/// Messages of the Mobility Header that share their type with others.
const MOBILITY: [&str; 6] = [
    mh::MESSAGE,
    "Proxy Binding Update",
    "Proxy Binding Acknowledgement",
    "Binding Revocation Indication",
    "Binding Revocation Acknowledgement",
    "Flow Mobility Initiate",
];
const SEGUE: [&str; 5] =
    ["Segue Data", "Segue Ride", "Segue Request", "Segue Response", "Segue Size"];
const UPMT: [&str; 3] = ["UPMT Request", "UPMT Response", "UPMT Ride"];
const STAMP: [&str; 2] = ["STAMP Session-Sender packet", "STAMP Session-Reflector packet"];

/// Maximum number of similar names that the error for an unknown name suggests.
const OFFERED: usize = 3;

/// The groups of messages, each with the names of its messages.
fn groups() -> [(&'static str, Vec<&'static str>); 7] {
    let bytes = || 0..=u8::MAX;
    let mobility = bytes().filter_map(|kind| MessageType(kind).name()).chain(MOBILITY);
    let nd = bytes().filter_map(|kind| Kind::of(kind).map(Kind::name));
    let mih = (0..=u16::MAX).filter_map(|id| MessageId(id).name()).chain([mih::FRAME]);
    let radius = bytes().filter_map(|code| Code(code).name()).chain([radius::PACKET]);
    [
        ("mobility", mobility.collect()),
        ("nd", nd.collect()),
        ("mih", mih.collect()),
        ("radius", radius.collect()),
        ("segue", SEGUE.into()),
        ("upmt", UPMT.into()),
        ("stamp", STAMP.into()),
    ]
}

/// Selected messages, by name.
#[derive(Clone, Debug)]
pub(crate) struct Chosen(BTreeSet<&'static str>);

impl Chosen {
    /// Parses the name of a group or of a message, ignoring case and anything but letters and digits.
    ///
    /// # Errors
    /// One line: no group or message has this name.
    pub(crate) fn of(text: &str) -> Result<Chosen, String> {
        let wanted = key(text);
        let groups = groups();
        let names = || groups.iter().flat_map(|(_, names)| names.iter().copied());
        let group = groups.iter().find(|(group, _)| key(group) == wanted);
        let chosen: BTreeSet<&str> = match group {
            Some((_, names)) => names.iter().copied().collect(),
            None => names().filter(|name| key(name) == wanted).collect(),
        };
        if !chosen.is_empty() {
            return Ok(Chosen(chosen));
        }
        let near: BTreeSet<&str> =
            names().filter(|name| !wanted.is_empty() && key(name).contains(&wanted)).collect();
        let near: Vec<&str> = near.into_iter().take(OFFERED).collect();
        Err(if near.is_empty() {
            let groups = groups.map(|(group, _)| group).join(", ");
            format!("no such message: take one of {groups}, or a name such as binding-update")
        } else {
            format!("no such message: did you mean {}?", near.join(", "))
        })
    }

    pub(crate) fn has(&self, message: &str) -> bool {
        self.0.contains(message)
    }
}

/// A name in lower case, with only its letters and digits.
fn key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
