//! Compares our reading of captures of other implementations with tshark's: each Mobility Header and each neighbour
//! discovery message has the same fields, the options are in the same order, and the values are equal. Fields that
//! tshark does not know are listed in [`UNKNOWN_TO_TSHARK`]; every field of tshark has an entry in [`table`].
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod counts;
mod own;
mod pdml;
mod radius;
mod table;

use std::fs::File;
use std::path::{Path, PathBuf};

use segue_decode::{Capture, Element, Link, Tree, packet};

use table::Is;

/// Fields that we show and tshark does not.
const UNKNOWN_TO_TSHARK: &[(&str, &str)] = &[
    ("profile", "ours"),
    ("mh_type", "in the message's name"),
    ("type", "in the message's name, or in the option's"),
    ("refused", "a receiver's view"),
    ("length", "of a route option; lengths of tshark's options are not compared"),
];

/// Matches any value, where tshark shows only a part.
const ANYTHING: &str = "…";

/// A name (or several alternatives) and a value.
type Fact = (String, String);

#[test]
fn the_messages_of_umip_are_read_as_tshark_reads_them() {
    compare(&capture("umip.pcap"), [42, 92]);
}

#[test]
fn the_messages_of_oai_pmip_are_read_as_tshark_reads_them() {
    compare(&capture("oai-pmip.pcap"), [4, 8]);
}

#[test]
fn messages_of_our_own_are_read_as_tshark_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.pcap");
    own::write(&path);
    compare(&path, own::counts());
}

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name)
}

/// Compares a capture, which must hold this many Mobility Headers and ICMPv6 messages.
fn compare(path: &Path, counts: [usize; 2]) {
    let Some(theirs) = pdml::messages(path) else { return };
    let ours = elements(path);
    let mut compared = [0; 2];
    assert_eq!(ours.len(), theirs.len(), "elements and messages");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let at = format!("{}, packet {}", path.display(), theirs.packet);
        assert_eq!(ours.packet, theirs.packet, "{at}");
        assert_eq!(ours.source.as_deref(), Some(&*theirs.source), "{at}");
        assert_eq!(ours.destination.as_deref(), Some(&*theirs.destination), "{at}");
        let Some(message) = ours.message else {
            let kind = theirs.fields.iter().find(|field| field.name == "icmpv6.type");
            let kind = kind.map_or("none", |field| &field.show);
            assert!(["128", "129", "143"].contains(&kind), "{at}: {:?}", ours.error);
            continue;
        };
        let (ours_said, theirs_said) = (facts(ours), facts_of(theirs, &at));
        for (i, (ours, theirs)) in ours_said.iter().zip(&theirs_said).enumerate() {
            let same_name = theirs.0.split('|').any(|name| name == ours.0);
            let same = match theirs.1.strip_suffix(ANYTHING) {
                Some(beginning) => ours.1.starts_with(beginning),
                None => ours.1 == theirs.1,
            };
            assert!(same_name && same, "{at}, fact {i}: {ours:?}, tshark {theirs:?}");
        }
        assert_eq!(
            ours_said.len(),
            theirs_said.len(),
            "{at}: {ours_said:?}, tshark {theirs_said:?}"
        );
        assert!(ours.reencodes, "{at}: {message}");
        let is_mobility = ours_said.iter().any(|(name, _)| name == "payload_proto");
        compared[usize::from(!is_mobility)] += 1;
    }
    assert_eq!(compared, counts);
}

fn elements(path: &Path) -> Vec<Element> {
    let magic = std::fs::read(path).unwrap()[..4].try_into().unwrap();
    let mut capture = Capture::open(magic, File::open(path).unwrap()).unwrap();
    let mut elements = Vec::new();
    while let Some(read) = capture.next_packet().unwrap() {
        let link = Link::of(read.link_type).unwrap();
        elements.extend(packet(read.number, link, &read.bytes, read.length));
    }
    elements
}

/// Our facts about a message: fields in the order of the wire, those of the headers before it first.
fn facts(element: &Element) -> Vec<Fact> {
    let Tree::Object(fields) = &element.fields else { panic!("{:?}", element.fields) };
    let mut facts = Vec::new();
    let (headers, own): (Vec<_>, Vec<_>) =
        fields.iter().partition(|(_, value)| matches!(value, Tree::Object(_)));
    for (name, value) in &headers {
        let Tree::Object(inner) = value else { continue };
        inner.iter().for_each(|(field, value)| add(&mut facts, &format!("{name}.{field}"), value));
    }
    facts.push(("message".into(), plain(element.message.unwrap())));
    own.iter().for_each(|(name, value)| add(&mut facts, name, value));
    if facts.iter().any(|(name, _)| name == "payload_proto") {
        // tshark never verifies the checksum of a Mobility Header.
        let at = facts.iter().position(|(name, _)| name == "checksum_ok").unwrap();
        assert_eq!(facts.remove(at).1, "yes", "{element}");
        // On the wire, the type follows two octets that we show after the name.
        let name = facts.iter().position(|(name, _)| name == "message").unwrap();
        facts[name..name + 3].rotate_left(1);
    }
    facts
}

fn add(facts: &mut Vec<Fact>, name: &str, value: &Tree) {
    if UNKNOWN_TO_TSHARK.iter().any(|(known, _)| *known == name) {
        return;
    }
    match value {
        Tree::List(flags) if name == "flags" => {
            flags.iter().for_each(|flag| add(facts, "flag", flag));
        }
        Tree::List(items) => {
            for item in items {
                match item {
                    Tree::Object(fields) => {
                        fields.iter().for_each(|(name, value)| add(facts, name, value));
                    }
                    plain => add(facts, name, plain),
                }
            }
        }
        Tree::Bool(is_so) => facts.push((name.into(), if *is_so { "yes" } else { "no" }.into())),
        Tree::Number(number) | Tree::Named(number, _) => {
            facts.push((name.into(), number.to_string()));
        }
        Tree::Text(text) => facts.push((name.into(), text.clone())),
        Tree::Null => {}
        other => panic!("{name}: {other:?}"),
    }
}

/// tshark's facts about a message, with our names.
fn facts_of(message: &pdml::Message, at: &str) -> Vec<Fact> {
    let (mut facts, mut missing): (Vec<Fact>, Vec<String>) = (Vec::new(), Vec::new());
    for field in &message.fields {
        let pdml::Field { name, show, showname, value } = field;
        let ours = ["mip6.", "icmpv6.", "ipv6.opt.mipv6.", "ipv6.routing.mipv6."];
        if !ours.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        if table::NOT_COMPARED.iter().any(|(known, _)| known == name) {
            continue;
        }
        let found = table::TABLE.iter().find(|(known, _)| known == name);
        let Some((_, is)) = found else {
            missing.push(name.clone());
            continue;
        };
        let fact = match *is {
            Is::Message => {
                let (_, text) = showname.split_once(": ").unwrap();
                ("message".to_owned(), plain(text.rsplit_once(" (").unwrap().0))
            }
            Is::Field(names) => (names.join("|"), show.clone()),
            Is::Bytes(names) => (names.join("|"), value.clone()),
            Is::Checksum => ("checksum".into(), show.clone()),
            Is::ChecksumStatus => {
                ("checksum_ok".into(), if show == "1" { "yes" } else { "no" }.into())
            }
            Is::Flag(letter) if show == "1" => ("flag".into(), letter.into()),
            Is::Flag(_) => continue,
            Is::Option(name) => ("option".into(), name.into()),
            Is::OptionType => ("option".into(), table::option_name(show).into()),
            Is::Word(name, words) => {
                let (_, word) = words.iter().find(|(number, _)| number == show).unwrap();
                (name.into(), (*word).into())
            }
            Is::Truth(name) => (name.into(), if show == "1" { "yes" } else { "no" }.into()),
            Is::Timestamp => {
                let bits = u64::from_str_radix(value, 16).unwrap();
                facts.push(("seconds".into(), (bits >> 16).to_string()));
                ("fraction_65536ths".into(), (bits & 0xffff).to_string())
            }
            Is::Beginning(name) => (name.into(), format!("{value}{ANYTHING}")),
            Is::CutTimestamp if !showname.starts_with("Timestamp") => continue,
            Is::CutTimestamp => {
                facts.push(("option".into(), "timestamp".into()));
                facts.push(("seconds".into(), ANYTHING.into()));
                ("fraction_65536ths".into(), ANYTHING.into())
            }
        };
        // The bits of the preference are between flags on the wire; we show the flags first.
        let at = facts.len() - usize::from(fact.0 == "flag" && ends_with_preference(&facts));
        facts.insert(at, fact);
    }
    assert!(missing.is_empty(), "{at}: {missing:?} stand in neither table");
    facts
}

/// A message name as the type alone determines it, in a common spelling.
fn plain(name: &str) -> String {
    let name = name.strip_prefix("Proxy ").unwrap_or(name);
    let name = name.strip_suffix(" Indication").unwrap_or(name);
    name.replace("Acknowledgment", "Acknowledgement")
}

fn ends_with_preference(facts: &[Fact]) -> bool {
    facts.last().is_some_and(|(name, _)| name == "prf")
}
