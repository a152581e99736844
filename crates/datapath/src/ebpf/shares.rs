//! Flows of a hostile host against the programs: how many they learn from one host.

use std::net::{IpAddr, Ipv4Addr};

use segue_linux::clock::monotonic;
use segue_wire::DropReason;

use super::Role;
use super::convert::kernel_path;
use super::packets::{Lab, Outer, REDIRECT, SHOT, SLOT, data, inner_v4, path, to_us};
use super::tables::Tables;
use crate::{FLOW_PACE, FLOWS_AT_ONCE, PathSetup};

/// IPv4 data with the first packet of flow `n` from an address.
fn data_between(from: Ipv4Addr, n: u32) -> Vec<u8> {
    let mut inner = inner_v4(17, &[], 0);
    inner[12..16].copy_from_slice(&from.octets());
    inner[16..20].copy_from_slice(&(0xc000_0000 | n >> 16).to_be_bytes());
    inner[22..24].copy_from_slice(&(n as u16).to_be_bytes());
    data(&inner)
}

fn refused(tables: &Tables) -> u64 {
    tables.drops().get(&DropReason::TooManyFlows).copied().unwrap_or(0)
}

#[test]
fn a_host_that_opens_flows_at_full_rate_leaves_the_others_their_room() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let [hostile, other] = [1, 9].map(|last| Ipv4Addr::new(10, 8, 0, last));
    let owner = lab.tables.owner_of(hostile.into()).unwrap();
    // Each address has its own share; one path serves both.
    lab.tables.set_inner(other.into(), owner).unwrap();
    let opens = |from, n: u32| lab.ingress(&to_us(Outer::V4, &data_between(from, n))).0;

    let (tries, begun) = (FLOWS_AT_ONCE + 30_000, monotonic());
    let mut learned = 0;
    for n in 0..tries {
        lab.tables.set_alive(monotonic()).unwrap();
        match opens(hostile, n) {
            REDIRECT => learned += 1,
            verdict => assert_eq!(verdict, SHOT, "flow {n}"),
        }
    }
    let at_its_pace = monotonic().since(begun).0 / FLOW_PACE.0;
    println!("{learned} of {tries} learned, {at_its_pace} of them at the pace");
    assert!(learned >= FLOWS_AT_ONCE, "{learned}");
    // The programs' clock advances in steps of some milliseconds.
    assert!(u64::from(learned) <= u64::from(FLOWS_AT_ONCE) + at_its_pace + 32, "{learned}");
    assert_eq!(refused(&lab.tables), u64::from(tries - learned));

    // The host may continue its flows, and setting its address again gives it no new share.
    let kept = lab.tables.flows().pop().unwrap().key;
    let IpAddr::V4(far) = kept.src else { panic!("{kept}") };
    let kept = u32::from(far) << 16 | u32::from(kept.sport);
    lab.tables.set_inner(hostile.into(), owner).unwrap();
    let before = refused(&lab.tables);
    for n in 0..1_000 {
        assert_eq!(opens(hostile, kept), REDIRECT, "{n}");
    }
    let anew = (0..20_000).filter(|n| opens(hostile, tries + n) == REDIRECT).count();
    assert!(anew < 10_000 && refused(&lab.tables) > before, "{anew} with the address set anew");
    for n in 0..1_000 {
        assert_eq!(opens(other, n), REDIRECT, "flow {n} from another address");
    }
}

#[test]
fn an_address_that_goes_and_comes_back_has_no_new_share_whoever_has_it() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let [hostile, other] = [1, 9].map(|last| Ipv4Addr::new(10, 8, 0, last));
    let opens = |from, n: u32| lab.ingress(&to_us(Outer::V4, &data_between(from, n))).0;
    let own = |owner| {
        let config = PathSetup { owner, ..path(Role::Anchor) };
        lab.tables.set_path(SLOT, &kernel_path(&config, 0)).unwrap();
        lab.tables.set_inner(hostile.into(), owner).unwrap();
    };
    let owing = |n: u32| {
        lab.tables.set_alive(monotonic()).unwrap();
        let refused_before = refused(&lab.tables);
        let begun = (n..n + 20_000).filter(|n| opens(hostile, *n) == REDIRECT).count();
        assert!(begun < 10_000 && refused(&lab.tables) > refused_before, "{begun} begun");
    };
    own(7);
    let begun = (0..FLOWS_AT_ONCE).filter(|n| opens(hostile, *n) == REDIRECT).count();
    assert_eq!(begun, FLOWS_AT_ONCE as usize);
    lab.tables.remove_inner(hostile.into());
    assert_eq!(opens(hostile, 0), SHOT, "nobody has the address");
    own(8);
    owing(100_000);
    own(7);
    owing(120_000);
    // Another address that comes and goes owes nothing.
    for _ in 0..3 {
        lab.tables.set_inner(other.into(), 7).unwrap();
        for n in 0..1_000 {
            assert_eq!(opens(other, n), REDIRECT, "flow {n} from another address");
        }
        lab.tables.remove_inner(other.into());
    }
}
