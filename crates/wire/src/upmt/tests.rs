use alloc::vec;

use proptest::prelude::*;

use super::*;

fn probe() -> Probe {
    Probe { seq: 1, t_sc: 2, t_ss: 3, dt: 4, sc: 5, ss: 6, r: 7, heard: 0x8001, t_ka_ms: 0 }
}

fn packet(v6: bool) -> ProbePacket {
    let (host, anchor): (IpAddr, IpAddr) = if v6 {
        ("fd5e:67e0::2".parse().unwrap(), "2001:db8::1".parse().unwrap())
    } else {
        (Ipv4Addr::new(10, 77, 0, 2).into(), Ipv4Addr::new(192, 0, 2, 1).into())
    };
    ProbePacket { host, anchor, path: 3, response: false, flagged: false, probe: probe() }
}

fn trailer() -> Trailer {
    Trailer { version: 4, response: false, report: false, path: 3, probe: probe() }
}

#[test]
fn golden_bytes_of_a_probe() {
    let bytes = packet(false).emit();
    let header = [
        0x45, 0, 0, 56, 0x80, 1, 0x40, 0, 64, 17, 0xee, 0x63, 10, 77, 0, 2, 192, 0, 2, 1, 0xc3,
        0x85, 0xc3, 0x81, 0, 36, 0xac, 0x32,
    ];
    assert_eq!(bytes[..28], header, "{:02x?}", &bytes[..28]);
    let words = (1u32..=7).flat_map(u32::to_be_bytes);
    assert!(bytes[28..].iter().copied().eq(words));
}

#[test]
fn probes_of_every_kind_come_back_as_they_went() {
    for (v6, response, flagged) in [false, true]
        .into_iter()
        .flat_map(|a| [(a, false, false), (a, false, true), (a, true, false), (a, true, true)])
    {
        for path in [0, 15] {
            let sent = ProbePacket { response, flagged, path, ..packet(v6) };
            assert_eq!(ProbePacket::parse(&sent.emit()), Some(Ok(sent)));
        }
    }
}

#[test]
fn an_address_of_the_other_family_is_unspecified() {
    for v6 in [false, true] {
        let sent = ProbePacket { anchor: packet(!v6).anchor, ..packet(v6) };
        let got = ProbePacket::parse(&sent.emit()).unwrap().unwrap();
        assert!(got.anchor.is_unspecified());
        assert_eq!(ProbePacket { anchor: sent.anchor, ..got }, sent);
    }
}

#[test]
fn what_is_cut_lengthened_or_flipped_is_no_valid_probe() {
    for v6 in [false, true] {
        let good = packet(v6).emit();
        for n in 0..good.len() {
            assert!(!matches!(ProbePacket::parse(&good[..n]), Some(Ok(_))), "cut to {n}");
        }
        let long = [&good[..], &[0]].concat();
        assert!(!matches!(ProbePacket::parse(&long), Some(Ok(_))));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // IPv6 has no checksum over traffic class, flow label and hop limit.
            if v6 && !(4..8).contains(&bit) && matches!(bit / 8, 0..4 | 7) {
                continue;
            }
            assert!(!matches!(ProbePacket::parse(&bad), Some(Ok(_))), "bit {bit}");
        }
    }
}

#[test]
fn other_ports_are_data() {
    for (source, destination) in [(50_050, 53), (53, 50_049), (50_066, 50_049), (50_047, 50_050)] {
        let mut bytes = packet(false).emit();
        bytes[20..22].copy_from_slice(&u16::to_be_bytes(source));
        bytes[22..24].copy_from_slice(&u16::to_be_bytes(destination));
        assert_eq!(ProbePacket::parse(&bytes), None);
    }
}

#[test]
fn golden_bytes_of_a_trailer_whose_sum_is_zero() {
    let bytes = trailer().emit();
    assert_eq!(bytes[28..], [0x40, 3, 0x80, 1, 0x3f, 0xdf], "{:02x?}", &bytes[28..]);
    assert_eq!(sum(&bytes), 0xffff);
    // Also behind an odd number of bytes.
    let odd = [&[0x12, 0x34, 0x56][..], &bytes].concat();
    assert_eq!(sum(&odd), sum(&[0x12, 0x34, 0x56]));
}

#[test]
fn a_ride_gives_trailer_and_inner_packet_and_refuses_what_is_wrong() {
    for (version, response, report) in [(4, false, false), (6, true, false), (6, false, true)] {
        let sent = Trailer { version, response, report, ..trailer() };
        let ride = [&[0xf5, 9, 9][..], &sent.emit()].concat();
        assert_eq!(Form::of(&ride), Form::Ride);
        assert_eq!(Trailer::split(&ride), Ok((sent, &[0xf5, 9, 9][..])));
        assert_eq!(sent.restored(0xf5), version << 4 | 5);
        for bit in 24..ride.len() * 8 {
            let mut bad = ride.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Trailer::split(&bad).is_err(), "bit {bit}");
        }
        for n in 0..=Trailer::LEN {
            let error = WireError::TooShort { what: "ride", got: n, min: 35 };
            assert_eq!(Trailer::split(&vec![0xf4; n]), Err(error));
        }
    }
    let field = |trailer: Trailer| match Trailer::split(&[&[0xf4][..], &trailer.emit()].concat()) {
        Err(WireError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(Trailer { version: 5, ..trailer() }), "version");
    assert_eq!(field(Trailer { response: true, report: true, ..trailer() }), "flags");
    assert_eq!(field(Trailer { path: 16, ..trailer() }), "path");
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_parses_emits_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        if let Some(Ok(probe)) = ProbePacket::parse(&bytes) {
            prop_assert_eq!(ProbePacket::parse(&probe.emit()), Some(Ok(probe)));
        }
        if let Ok((trailer, inner)) = Trailer::split(&bytes) {
            prop_assert_eq!([inner, &trailer.emit()].concat(), bytes);
        }
    }
}
