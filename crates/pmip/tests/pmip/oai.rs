//! Messages of OAI-PMIPv6-FM's gateway get the answers that its own anchor gave, byte for byte.

use segue_clock::{DayClock, Machine, Span, Time, UnixTime};
use segue_ip::{Datagram, Input, Output, Prefix};
use segue_mobility::Pool;
use segue_pmip::{Allowed, Lma, LmaConfig, MOBILITY};
use segue_wire::mobility::{Message, MobilityOption, Profile};

use crate::domain::lma_config;

const CAPTURE: &str = include_str!("../../../wire/tests/captures/oai-pmip.hex");

/// A captured packet as a datagram.
fn datagram(line: &str) -> Datagram {
    let digits = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    let packet: Vec<u8> = (0..line.len()).step_by(2).map(digits).collect();
    let address = |at: usize| {
        let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap();
        (octets.into(), 0)
    };
    assert_eq!(packet[6], MOBILITY);
    let (from, to, protocol) = (address(8), address(24), MOBILITY);
    Datagram {
        waited_ns: 0,
        interface: None,
        from,
        to,
        protocol,
        hop_limit: 64,
        bytes: packet[40..].to_vec(),
    }
}

fn sent_at(datagram: &Datagram) -> UnixTime {
    let message = Message::parse(&datagram.bytes, &Profile::OAI).unwrap();
    let stamp = message.options.iter().find_map(|option| match option {
        MobilityOption::Timestamp(at) => {
            Some(UnixTime::from_timestamp(at.seconds, at.fraction_65536ths))
        }
        _ => None,
    });
    stamp.unwrap()
}

#[test]
fn its_updates_are_answered_as_its_own_anchor_answered_them() {
    let lines = CAPTURE.lines().filter(|line| !line.starts_with('#'));
    let packets: Vec<Datagram> = lines.map(datagram).collect();
    let [first, one, second, two] = &packets[..] else { panic!("four packets") };
    let address = first.to.0;
    let prefix = Prefix::host(first.from.0);
    let mut lma = Lma::new(LmaConfig {
        address,
        pool: Pool::prefixes("2001:100::/32".parse().unwrap(), 64, 0).unwrap(),
        gateways: vec![Allowed { prefix, profile: Profile::OAI }],
        clock: DayClock::new(Time::ZERO, sent_at(first)),
        ..lma_config()
    });
    lma.handle(Time::ZERO, Input::Interfaces(Vec::new()));
    for (n, (asked, expected)) in [(first, one), (second, two)].into_iter().enumerate() {
        // The captured timestamps have no fraction, only seconds.
        let now = Time::ZERO + sent_at(asked).since(sent_at(first)) + Span::from_millis(1);
        lma.handle(now, Input::Datagram(asked.clone()));
        let answers = std::iter::from_fn(|| lma.poll()).filter_map(|output| match output {
            Output::Send(answer, _) => Some(answer),
            _ => None,
        });
        let answer = answers.last().unwrap();
        assert_eq!((answer.from, answer.to), (expected.from, expected.to));
        assert_eq!(answer.bytes, expected.bytes, "answer {n}: {:?}", lma.refused());
    }
    let all: Vec<_> = lma.sessions().map(|(.., session)| session.prefixes.clone()).collect();
    assert_eq!(all, [["2001:100:4:5000::/64".parse::<Prefix>().unwrap()]]);
}
