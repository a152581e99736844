//! The flows that an anchor's programs permit hosts to begin, and the packets with pool addresses
//! that they refuse outside the tunnel.

use segue_linux::clock::monotonic;
use segue_wire::DropReason;

use super::Role;
use super::packets::{
    Lab, Outer, PORT, REDIRECT, SHOT, UNSPEC, data, frame, inner_v4, inner_v6, to_us,
};
use crate::{Reach, Services};

/// Hosts in these pools may not reach each other; the path's own addresses are 10.8.0.1 and fd08::1.
fn guarded() -> Option<Lab> {
    let lab = Lab::new(Role::Anchor)?;
    let pools = ["10.8.0.0/23", "fd08::/112"].map(|pool| pool.parse().unwrap());
    let reach = Reach { hosts: false, anchor: Services::Ping, routed: true };
    lab.tables.set_reach(reach, &pools).unwrap();
    lab.tables.set_alive(monotonic()).unwrap();
    Some(lab)
}

fn dropped(lab: &Lab, reason: DropReason) -> u64 {
    lab.tables.drops().get(&reason).copied().unwrap_or(0)
}

/// The first packet of a flow to fd08::`last`, or to a neighbouring network.
fn to_v6(last: u16, elsewhere: bool) -> Vec<u8> {
    let mut inner = inner_v6(&[], 17);
    inner[38..40].copy_from_slice(&last.to_be_bytes());
    inner[37] = u8::from(elsewhere);
    inner
}

fn to_v4(third: u8) -> Vec<u8> {
    let mut inner = inner_v4(17, &[], 0);
    inner[18] = third;
    inner
}

#[test]
fn a_flow_to_an_address_of_a_pool_that_nobody_has_is_one_to_another_host() {
    let Some(lab) = guarded() else { return };
    let begin = |inner: &[u8]| lab.ingress(&to_us(Outer::V4, &data(inner))).0;
    // Within the pools, including the last address of each.
    for (n, away) in [to_v4(0), to_v4(1), to_v6(2, false), to_v6(0xffff, false)].iter().enumerate()
    {
        assert_eq!(begin(away), SHOT, "{away:02x?}");
        assert_eq!(dropped(&lab, DropReason::NotAllowed), n as u64 + 1);
    }
    assert!(lab.tables.flows().is_empty(), "nothing was learned");
    // The host registers: it was not possible to prepare a flow to it.
    for own in ["10.8.0.2", "fd08::2"] {
        lab.tables.set_inner(own.parse().unwrap(), 99).unwrap();
    }
    for there in [to_v4(0), to_v6(2, false)] {
        assert_eq!(begin(&there), SHOT);
    }
    // Addresses next to the pools are routed.
    for routed in [to_v4(2), to_v6(2, true)] {
        assert_eq!(begin(&routed), REDIRECT, "{routed:02x?}");
    }
    assert_eq!(dropped(&lab, DropReason::NotAllowed), 6);
}

#[test]
fn plain_packets_from_a_pool_are_dropped_whoever_has_the_address() {
    let Some(lab) = guarded() else { return };
    let verdict = |outer, from: &str| {
        let plain = frame(outer, from.parse().unwrap(), outer.address(2), PORT + 1, &[0; 40]);
        lab.ingress(&plain).0
    };
    let refused = [
        (Outer::V4, ["10.8.0.1", "10.8.0.77", "10.8.1.255"]),
        (Outer::V6, ["fd08::1", "fd08::77", "fd08::ffff"]),
    ];
    for (outer, sources) in refused {
        for from in sources {
            assert_eq!(verdict(outer, from), SHOT, "{from}");
        }
    }
    assert_eq!(dropped(&lab, DropReason::PastTunnel), 6);
    for (outer, from) in
        [(Outer::V4, "10.8.2.0"), (Outer::V4, "10.9.0.77"), (Outer::V6, "fd08::1:1")]
    {
        assert_eq!(verdict(outer, from), UNSPEC, "{from}");
    }
}

#[test]
fn without_a_pool_no_address_is_of_one() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    lab.tables.set_reach(Reach { hosts: false, ..Reach::EVERYTHING }, &[]).unwrap();
    lab.tables.set_alive(monotonic()).unwrap();
    for inner in [to_v4(0), to_v6(2, false)] {
        assert_eq!(lab.ingress(&to_us(Outer::V4, &data(&inner))).0, REDIRECT);
    }
    assert!(lab.tables.drops().is_empty());
}
