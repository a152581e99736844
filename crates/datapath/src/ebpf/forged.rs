//! Forged and repeated data packets against a host's programs.

use segue_linux::clock::monotonic;
use segue_wire::{DropReason, Header, PacketType, age};

use super::Role;
use super::packets::{COOKIE, Lab, Outer, REDIRECT, SHOT, SLOT, header, inner_v4, to_us};

/// Data to this host that state an age.
fn data(cookie: u64, age: u8) -> Vec<u8> {
    // A host's programs look at the destination.
    let mut inner = inner_v4(17, &[], 0);
    inner[12..20].copy_from_slice(&[10, 8, 0, 2, 10, 8, 0, 1]);
    let head = Header { age, cookie, ..header(PacketType::Data) };
    to_us(Outer::V4, &[&head.emit()[..], &inner].concat())
}

#[test]
fn an_age_without_the_cookie_says_nothing_and_one_with_it_nothing_of_the_future() {
    let Some(lab) = Lab::new(Role::Host) else { return };
    let heard = || {
        let host = lab.tables.host(SLOT).unwrap();
        (host.heard_back_ns, host.data_in_ns, host.heard_ns, host.data_packets)
    };
    for stated in 0..=255 {
        assert_eq!(lab.ingress(&data(COOKIE ^ 1, stated)).0, SHOT);
    }
    assert_eq!(heard(), (0, 0, 0, 0), "nothing of it is kept");
    assert_eq!(lab.tables.drops(), [(DropReason::Cookie, 256)].into());

    // A missing age, and one too old to be true.
    for stated in [0, 255] {
        assert_eq!(lab.ingress(&data(COOKIE, stated)).0, REDIRECT);
        assert_eq!(heard().0, 0, "age {stated}");
    }
    for stated in [200, 100, 1] {
        let begun = monotonic().0;
        assert_eq!(lab.ingress(&data(COOKIE, stated)).0, REDIRECT);
        let (back, now) = (heard().0, monotonic().0);
        let said = age::decode(stated).unwrap();
        assert!(back <= now - said, "age {stated}: {back} at {now}");
        // The programs' clock advances in steps of some milliseconds.
        assert!(back + said + 20_000_000 >= begun, "age {stated}: {back} at {now}");
    }
    // Older news does not replace newer news.
    let newest = heard().0;
    assert_eq!(lab.ingress(&data(COOKIE, 250)).0, REDIRECT);
    assert_eq!(heard().0, newest);
}

/// Data packets have no sequence numbers: TCP and TLS detect repetitions themselves.
#[test]
fn data_that_are_repeated_arrive_again() {
    let Some(lab) = Lab::new(Role::Host) else { return };
    let packet = data(COOKIE, 1);
    let first = lab.ingress(&packet);
    assert_eq!(first.0, REDIRECT);
    for n in 2..=20 {
        assert_eq!(lab.ingress(&packet), first);
        assert_eq!(lab.state().rx_packets, n, "and count");
    }
    assert!(lab.tables.drops().is_empty());
}
