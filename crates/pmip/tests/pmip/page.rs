//! The hex dumps in `docs/wire/pmip-options.md` match what the machines send.

use segue_pmip::{LmaConfig, PROBE, VENDOR};
use segue_wire::mobility::{Body, HeartbeatFlags, Message, MobilityOption, Profile};

use crate::domain::*;
use crate::flows::{first_packet, flow, two};

const PAGE: &str = include_str!("../../../../docs/wire/pmip-options.md");

/// A hex dump of the page.
fn example(name: &str) -> Vec<u8> {
    let start = format!("<!-- example: {name} -->\n```text\n");
    let dump = PAGE.split_once(&start).unwrap().1.split_once("\n```").unwrap().0;
    dump.split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect()
}

/// The bytes of a message's vendor-specific option; at most padding follows it.
fn option(message: &Message) -> Vec<u8> {
    let bytes = message.emit(&Profile::STRICT).unwrap();
    let head = [&[19][..], &[0], &VENDOR.to_be_bytes()].concat();
    let at = bytes.windows(6).position(|w| w[0] == head[0] && w[2..] == head[2..]).unwrap();
    bytes[at..at + 2 + usize::from(bytes[at + 1])].to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    words.chunks(16).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn own_options_are_sent_as_the_page_says() {
    let (mut domain, [first, _]) = two(lma_config());
    first_packet(&mut domain, flow(first, 1));
    domain.detach(0, station(1));
    domain.run(s(2.0));
    let is_notice = |body: &Body| matches!(body, Body::UpdateNotification(_));
    let (_, last) = domain.sent_by(LMA, is_notice).pop().unwrap();
    assert_eq!(hex(&option(last)), hex(&example("preference")));

    let config = LmaConfig { keepalive: Some(segue_keepalive::Config::default()), ..lma_config() };
    let (domain, _) = two(config);
    let has = |message: &Message| {
        message.options.iter().any(
            |option| matches!(option, MobilityOption::VendorSpecific(own) if own.sub_type == PROBE),
        )
    };
    for (name, from, flags) in
        [("request", LMA, HeartbeatFlags(0)), ("answer", mag(0), HeartbeatFlags::RESPONSE)]
    {
        let sent = domain.sent_by(from, |body| matches!(body, Body::Heartbeat(_)));
        let first = sent.into_iter().find(|(_, message)| {
            has(message) && matches!(&message.body, Body::Heartbeat(beat) if beat.flags == flags)
        });
        assert_eq!(hex(&option(first.unwrap().1)), hex(&example(name)), "{name}");
    }
}
