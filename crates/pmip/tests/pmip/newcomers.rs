//! Storms of unknown hosts, and messages that were delayed.

use segue_clock::{Span, Time};
use segue_ip::Input;
use segue_mobility::Pool;
use segue_pmip::{Identity, LinkLayer, MagInput, NodeId, Refusal};
use segue_wire::mobility::Status;

use crate::attacks::{by_solicitation, solicitation};
use crate::domain::*;

/// Solicitations per millisecond of the storm.
const A_MS: u64 = 3;

/// A link-layer address that is used once.
fn forged(n: u64) -> LinkLayer {
    let [.., a, b, c, d] = n.to_be_bytes();
    LinkLayer::mac([6, 0x5e, a, b, c, d])
}

/// Sends a storm that starts at `domain.now` and lasts `ms` milliseconds.
fn storm(domain: &mut Domain, ms: u64) {
    for _ in 0..ms {
        let at = domain.now.0;
        for n in 0..A_MS {
            domain.at_mag(0, solicitation("fe80::bad", forged(at + n).0));
        }
        domain.run(domain.now + Span::from_millis(1));
    }
}

fn served(domain: &Domain, station: &LinkLayer) -> bool {
    domain.mags[0].served_at(LINK).any(|other| other == station)
}

#[test]
fn a_host_attaches_in_a_storm_of_solicitations_with_random_addresses() {
    let mut domain = by_solicitation();
    storm(&mut domain, 5_000);
    let before = domain.mags[0].stations().count();
    assert!(before <= 32 + 50, "{before} of 15 000 were served");
    assert!(domain.mags[0].refused()[&Refusal::Paced] > 14_000);
    domain.here.insert((0, LINK, station(1)));
    domain.at_mag(0, solicitation("fe80::1", station(1).0));
    storm(&mut domain, 100);
    assert!(served(&domain, &station(1)), "it has answered the question");
    // A host that does not answer waits for the rate limit, which admits one in 100 ms.
    storm(&mut domain, 50);
    domain.at_mag(0, solicitation("fe80::2", station(2).0));
    storm(&mut domain, 100);
    assert!(!served(&domain, &station(2)));
}

#[test]
fn a_host_that_answers_late_or_without_a_question_has_answered_nothing() {
    let mut domain = by_solicitation();
    storm(&mut domain, 1_050);
    domain.at_mag(0, solicitation("fe80::1", station(1).0));
    storm(&mut domain, 300);
    let heard = MagInput::Heard { interface: LINK, station: station(1), link_local: None };
    domain.at_mag(0, Input::Own(heard));
    assert!(!served(&domain, &station(1)));
}

#[test]
fn hosts_with_a_name_and_those_of_a_function_wait_for_nobody() {
    let mut config = mag_config(0);
    config.accesses[0].by = segue_pmip::AttachBy::Solicitation;
    let named = Identity { node: NodeId::nai("alice"), anchor: None, prefixes: Vec::new() };
    config.identities.as_mut().unwrap().known.insert(station(1), named);
    let mut domain = Domain::of(lma_config(), vec![config]);
    storm(&mut domain, 1_000);
    domain.at_mag(0, solicitation("fe80::1", station(1).0));
    let told = MagInput::Attached { interface: LINK, station: station(2), link_local: None };
    domain.at_mag(0, Input::Own(told));
    storm(&mut domain, 10);
    assert!(served(&domain, &station(1)) && served(&domain, &station(2)));
}

#[test]
fn a_storm_leaves_half_of_the_places_to_hosts_that_answer() {
    let mut config = mag_config(0);
    config.accesses[0].by = segue_pmip::AttachBy::Solicitation;
    config.capacity = 40;
    let pool = Pool::prefixes("2001:db8::/48".parse().unwrap(), 64, 1).unwrap();
    let lma = segue_pmip::LmaConfig { pool, ..lma_config() };
    let mut domain = Domain::of(lma, vec![config]);
    storm(&mut domain, 10_000);
    assert_eq!(domain.mags[0].stations().count(), 21);
    domain.here.insert((0, LINK, station(1)));
    domain.at_mag(0, solicitation("fe80::1", station(1).0));
    domain.run(domain.now + Span::from_millis(10));
    assert!(served(&domain, &station(1)));
}

#[test]
fn waiting_in_a_queue_is_no_difference_of_clocks() {
    for waits in [false, true] {
        let mut domain = Domain::new(1);
        domain.cut = true;
        domain.now = Time::ZERO + Span::from_secs(10);
        domain.attach(0, station(1));
        let mut update = domain.packets.last().unwrap().clone();
        domain.cut = false;
        domain.now += Span::from_secs(5);
        update.waited_ns = if waits { Span::from_secs(5).0 } else { 0 };
        domain.at_lma(Input::Datagram(update));
        let name = Status::TIMESTAMP_MISMATCH.name().unwrap();
        assert_eq!(domain.refused(name), u64::from(!waits));
        assert_eq!(domain.lma.sessions().count(), usize::from(waits));
    }
}
