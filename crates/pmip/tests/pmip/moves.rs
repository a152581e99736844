//! Hosts that move between gateways and between interfaces.

use segue_clock::Span;
use segue_ip::{Input, LinkEvent};
use segue_pmip::{Identity, MagInput, Report};
use segue_wire::mobility::option::Handoff;

use crate::domain::*;

/// A domain whose gateways take interfaces 1 and 2 for one host and use this handoff indicator.
fn of_one_host(mags: usize, handoff: Handoff) -> Domain {
    let configs = (0..mags).map(|n| {
        let mut config = mag_config(n);
        config.accesses[0].handoff = handoff;
        let identities = config.identities.as_mut().unwrap();
        for n in [1, 2] {
            let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
            identities.known.insert(station(n), identity);
        }
        config
    });
    Domain::of(lma_config(), configs.collect())
}

#[test]
fn an_interface_that_comes_to_another_gateway_keeps_its_prefix() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.attach(1, station(1));
    domain.run(s(1.004));
    assert_eq!(domain.leads(prefix), Some(mag(0).into()));
    domain.run(s(1.02));
    assert_eq!(domain.prefix(1, &station(1)), prefix);
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
    assert_eq!(domain.given[0].brings(prefix), [mag(1)], "the former gateway brings nothing more");
    let moved = Report::Moved {
        node: node(1),
        link_layer: station(1),
        from: mag(0).into(),
        to: mag(1).into(),
    };
    assert!(domain.reports.contains(&moved));
    assert_eq!(domain.lma.tunnels().count(), 1);
    // The previous gateway was notified and has dropped its state.
    assert_eq!(domain.mags[0].stations().count(), 0);
    let revoked =
        Report::Left { node: node(1), link_layer: station(1), why: segue_pmip::Why::Revoked };
    assert!(domain.reports.contains(&revoked));
    domain.run(s(30.0));
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
    assert_eq!(domain.refused("stale"), 0, "the anchor knows what is acknowledged");
}

#[test]
fn late_packets_of_a_host_that_has_moved_on_do_not_take_it_back() {
    let (interface, link_local) = (LINK, None);
    let heard = || {
        let station = station(1);
        Input::Own(MagInput::Heard { interface, station, link_local })
    };
    let moved = || {
        let mut domain = Domain::new(2);
        domain.attach(0, station(1));
        domain.run(s(1.0));
        domain.attach(1, station(1));
        domain.run(s(2.0));
        domain
    };
    let mut domain = moved();
    domain.at_mag(0, heard());
    domain.run(s(4.5));
    assert_eq!(domain.mags[0].stations().count(), 0, "heard within 3 s");
    domain.at_mag(0, heard());
    domain.run(s(5.5));
    assert_eq!(domain.mags[0].stations().count(), 1, "heard 3 s later: it is back");
    // A link that comes up brings the hosts that are heard on it.
    let mut domain = moved();
    let up = LinkEvent::Up { interface, poa: None };
    domain.at_mag(0, Input::Link(up));
    domain.at_mag(0, heard());
    domain.run(s(2.5));
    assert_eq!(domain.mags[0].stations().count(), 1);
}

#[test]
fn a_prefix_waits_for_its_interface_for_ten_seconds_bound_and_an_hour_at_rest() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.detach(0, station(1));
    domain.run(s(5.0));
    // Its traffic is dropped, but the binding still exists.
    assert_eq!((domain.leads(prefix), domain.lma.sessions().count()), (None, 1));
    domain.attach(0, station(1));
    domain.run(s(6.0));
    assert_eq!((domain.prefix(0, &station(1)), domain.lma.sessions().count()), (prefix, 1));
    domain.detach(0, station(1));
    domain.run(s(20.0));
    assert_eq!(domain.lma.sessions().count(), 0);
    assert!(domain.given[0].0.is_empty(), "{:?}", domain.given[0].0);
    domain.run(s(3_600.0));
    domain.attach(0, station(2));
    domain.attach(0, station(1));
    domain.run(s(3_601.0));
    assert_eq!(domain.prefix(0, &station(1)), prefix);
    assert_ne!(domain.prefix(0, &station(2)), prefix);
}

#[test]
fn each_interface_of_a_host_has_a_prefix_and_takes_over_when_the_other_leaves() {
    let mut domain = of_one_host(2, Handoff::NEW_INTERFACE);
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let [first, second] = [domain.prefix(0, &station(1)), domain.prefix(1, &station(2))];
    assert_ne!(first, second);
    assert!(domain.asks(first) && domain.asks(second), "each flow may go over either");
    // The host may send from either prefix over either gateway.
    assert_eq!(domain.given[0].brings(first), [mag(0), mag(1)]);
    let mut bids: Vec<u16> = domain.lma.sessions().map(|(.., session)| session.bid).collect();
    bids.sort_unstable();
    assert_eq!(bids, [1, 2]);
    domain.detach(0, station(1));
    domain.run(s(1.1));
    assert_eq!(domain.leads(first), Some(mag(1).into()), "its traffic goes over the other at once");
    assert_eq!(domain.given[0].brings(first), [mag(1)]);
    // The prefix stays with the host long after the binding has ended, because the host has another binding.
    domain.run(s(8_000.0));
    assert_eq!(domain.lma.sessions().count(), 1);
    assert_eq!(domain.leads(first), Some(mag(1).into()));
    domain.attach(0, station(1));
    domain.run(s(8_001.0));
    assert_eq!(domain.prefix(0, &station(1)), first);
    assert!(domain.asks(first));
}

#[test]
fn a_handoff_between_interfaces_takes_the_prefix_along() {
    let mut domain = of_one_host(2, Handoff::BETWEEN_INTERFACES);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.attach(1, station(2));
    domain.run(s(2.0));
    assert_eq!((domain.prefix(1, &station(2)), domain.lma.sessions().count()), (prefix, 1));
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
    // If the first interface returns as a different one, it gets a new prefix.
    let mut config = mag_config(0);
    config.accesses[0].handoff = Handoff::NEW_INTERFACE;
    config.identities.clone_from(&domain.mags[0].config().identities);
    domain.mags[0] = segue_pmip::Mag::new(config);
    domain.given[1] = Given::default();
    domain.has_link(0);
    domain.attach(0, station(1));
    domain.run(s(3.0));
    assert_ne!(domain.prefix(0, &station(1)), prefix);
}

#[test]
fn an_unknown_handoff_waits_for_the_end_of_the_other_binding_but_not_for_long() {
    for leaves in [true, false] {
        let mut domain = of_one_host(2, Handoff::UNKNOWN);
        domain.attach(0, station(1));
        domain.run(s(1.0));
        let prefix = domain.prefix(0, &station(1));
        domain.attach(1, station(2));
        domain.run(s(1.5));
        assert_eq!(domain.prefixes(1, &station(2)), [], "it waits");
        if leaves {
            domain.detach(0, station(1));
        }
        domain.run(s(1.52));
        assert_eq!(domain.prefixes(1, &station(2)).len(), usize::from(leaves));
        domain.run(s(2.6));
        let own = domain.prefix(1, &station(2));
        assert_eq!(own == prefix, leaves);
        assert_eq!(domain.lma.sessions().count(), if leaves { 1 } else { 2 });
        // The gateway retransmitted while the anchor waited; only one prefix was assigned for it.
        let given =
            domain.lma.sessions().map(|(.., session)| session.prefixes.len()).sum::<usize>();
        assert_eq!(given, if leaves { 1 } else { 2 });
    }
}

#[test]
fn interfaces_that_share_have_the_same_prefixes() {
    let mut domain = of_one_host(2, Handoff::NEW_INTERFACE_SHARING_PREFIXES);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(2.0));
    let prefix = domain.prefix(0, &station(1));
    assert_eq!(domain.prefix(1, &station(2)), prefix);
    assert_eq!(domain.lma.sessions().count(), 2);
    assert_eq!(domain.given[0].brings(prefix), [mag(0), mag(1)]);
    domain.detach(0, station(1));
    domain.run(s(2.0) + Span::from_millis(20));
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
    domain.run(s(30.0));
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
}

#[test]
fn a_gateway_that_has_one_interface_back_is_still_told_that_the_other_has_gone() {
    let mut domain = of_one_host(3, Handoff::NEW_INTERFACE);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(1.0));
    domain.detach(0, station(1));
    domain.run(s(2.0));
    domain.ways.insert(mag(0), Way { loses_one_of: Some(1), ..Way::default() });
    domain.attach(1, station(1));
    domain.attach(2, station(2));
    domain.run(s(2.5));
    assert_eq!(domain.prefixes(0, &station(2)).len(), 1, "it was not reached");
    domain.ways.clear();
    domain.attach(0, station(1));
    domain.run(s(6.0));
    let there = [1, 2].map(|n| domain.prefixes(0, &station(n)).len());
    assert_eq!(there, [1, 0]);
    assert_eq!(domain.lma.sessions().count(), 2);
}

#[test]
fn a_gateway_that_has_forgotten_a_host_says_so_to_its_anchor() {
    let mut domain = of_one_host(2, Handoff::NEW_INTERFACE);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.detach(0, station(1));
    domain.run(s(6.0));
    domain.attach(1, station(1));
    domain.run(s(12.0));
    assert_eq!(domain.prefixes(1, &station(1)).len(), 1);
    assert!(domain.mags[0].refused().is_empty(), "{:?}", domain.mags[0].refused());
}
