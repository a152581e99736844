//! The join line in `docs/wire/signalling.md` is what the program writes.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use segue_daemon::identity::Join;
use segue_daemon::locator::Locator;
use segue_wire::enrol::Token;

const DOCUMENT: &str = include_str!("../../../docs/wire/signalling.md");

fn example(name: &str) -> &'static str {
    let start = format!("<!-- example: {name} -->\n```text\n");
    DOCUMENT.split_once(&start).unwrap().1.split_once("\n```").unwrap().0
}

#[test]
fn the_join_line_in_the_description_of_the_signalling_is_real() {
    let join = Join {
        name: "laptop".into(),
        anchor: ["192.0.2.1:5006", "[2001:db8::1]:5006"]
            .map(|a| Locator::parse(a, 0).unwrap())
            .into(),
        authority: vec![0x30, 0x82],
        token: Token(std::array::from_fn(|n| n as u8)),
    };
    assert_eq!(join.to_string(), example("join-line"));
    assert_eq!(example("join-line").parse::<Join>().unwrap(), join);
    let hex = example("join").split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap());
    assert_eq!(postcard::to_allocvec(&join).unwrap(), hex.collect::<Vec<u8>>());
}
