use alloc::vec::Vec;

use super::tlv::{ClassOfService, DirectMeasurement, FollowUp, Writer, flags, kind, tlvs};
use super::*;
use proptest::prelude::*;

fn key() -> StampKey {
    StampKey::new(&core::array::from_fn::<u8, 32, _>(|i| i as u8))
}

fn sender() -> SenderPacket {
    SenderPacket {
        seq: 7,
        timestamp: Timestamp(0x0102_0304_0506_0708),
        error: ErrorEstimate::parse(0x8f01),
        ssid: 0x1234,
    }
}

fn reflector() -> ReflectorPacket {
    ReflectorPacket {
        seq: 5,
        timestamp: Timestamp(0x2122_2324_2526_2728),
        error: ErrorEstimate::parse(0x4002),
        ssid: 0x1234,
        receive: Timestamp(0x3132_3334_3536_3738),
        sender_seq: 7,
        sender_timestamp: Timestamp(0x0102_0304_0506_0708),
        sender_error: ErrorEstimate::parse(0x8f01),
        sender_ttl: 64,
    }
}

fn facts() -> Facts {
    Facts {
        receive: Timestamp(1),
        ttl: 61,
        tos: 46 << 2 | 1,
        error: ErrorEstimate::ntp(1_000_000, true),
        seq: Some(5),
        received: 9,
        sent: 6,
        follow_up: Some(FollowUp { seq: 4, timestamp: Timestamp(77), method: FollowUp::SOFTWARE }),
        dscps: 1 << 10,
    }
}

/// A request with all extensions that this crate can send.
fn extended(key: Option<&StampKey>, out: &mut [u8]) -> usize {
    let base = sender().emit(key, out).unwrap();
    let mut writer = Writer::new(&mut out[base..]);
    let wish = ClassOfService { dscp1: 10, ..ClassOfService::default() };
    let count = DirectMeasurement { sender_tx: 8, ..DirectMeasurement::default() };
    writer.push(kind::CLASS_OF_SERVICE, &wish.emit()).unwrap();
    writer.push(kind::DIRECT_MEASUREMENT, &count.emit()).unwrap();
    writer.push(kind::FOLLOW_UP, &[0; 16]).unwrap();
    writer.push(kind::LOCATION, &[0; 4]).unwrap();
    if let Some(key) = key {
        writer.seal(key, sender().seq).unwrap();
    }
    writer.pad(10).unwrap();
    base + writer.len()
}

#[test]
fn golden_bytes_of_an_unauthenticated_exchange() {
    let mut bytes = [0xff; BASE_LEN];
    assert_eq!(sender().emit(None, &mut bytes), Some(44));
    let head = [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 1, 0x12, 0x34];
    assert_eq!(bytes[..16], head);
    assert_eq!(bytes[16..], [0; 28]);
    assert_eq!(reflector().emit(None, &mut bytes), Some(44));
    let expected = [
        0, 0, 0, 5, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x40, 2, 0x12, 0x34, 0x31,
        0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 1, 0,
        0, 64, 0, 0, 0,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn golden_bytes_of_an_authenticated_exchange() {
    let mut bytes = [0xff; AUTHENTICATED_LEN];
    assert_eq!(sender().emit(Some(&key()), &mut bytes), Some(112));
    assert_eq!(bytes[..4], [0, 0, 0, 7]);
    assert_eq!(bytes[4..16], [0; 12]);
    assert_eq!(bytes[16..28], [1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 1, 0x12, 0x34]);
    assert_eq!(bytes[28..96], [0; 68]);
    // HMAC-SHA-256 of the 96 bytes above with the key 00 01 … 1f, computed with Python's hmac module.
    let mac = u128::from_be_bytes(bytes[96..].try_into().unwrap());
    assert_eq!(mac, MAC_OF_SENDER, "{mac:#034x}");
    assert_eq!(reflector().emit(Some(&key()), &mut bytes), Some(112));
    assert_eq!(bytes[24..32], [0x40, 2, 0x12, 0x34, 0, 0, 0, 0]);
    assert_eq!(
        bytes[32..52],
        [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]
    );
    assert_eq!(bytes[64..74], [1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 1]);
    assert_eq!(bytes[80], 64);
}

const MAC_OF_SENDER: u128 = 0xf6e1_5f8a_60e4_43d2_2b39_387c_ba73_1440;

#[test]
fn every_truncation_is_refused_and_every_flipped_bit_where_there_is_a_key() {
    for key in [None, Some(&key())] {
        let mut bytes = [0; AUTHENTICATED_LEN];
        let len = reflector().emit(key, &mut bytes).unwrap();
        assert_eq!(ReflectorPacket::parse(&bytes[..len], key), Ok((reflector(), &[][..])));
        let min = if key.is_some() { len } else { TWAMP_LIGHT_LEN };
        for n in 0..min {
            let error = ReflectorPacket::parse(&bytes[..n], key);
            assert!(matches!(error, Err(WireError::TooShort { .. })), "{n}");
            assert!(
                Request::open(&bytes[..n], key).is_err() && Reply::open(&bytes[..n], key).is_err()
            );
        }
    }
    let mut good = [0; AUTHENTICATED_LEN];
    sender().emit(Some(&key()), &mut good).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SenderPacket::parse(&bad, Some(&key())), Err(WireError::Mac), "bit {bit}");
    }
    assert!(SenderPacket::parse(&good, Some(&StampKey::new(b"another"))).is_err());
}

#[test]
fn a_packet_of_twamp_light_is_answered_in_its_own_length() {
    let mut request = [0; BASE_LEN];
    sender().emit(None, &mut request).unwrap();
    let request = &request[..TWAMP_LIGHT_LEN];
    let mut out = [0; 64];
    let answer = Request::open(request, None).unwrap().answer(&facts(), || Timestamp(2), &mut out);
    assert_eq!(answer, Some(Answer { len: TWAMP_LIGHT_LEN, dscp: 46 }));
    let reply = Reply::open(&out[..TWAMP_LIGHT_LEN], None).unwrap();
    assert_eq!((reply.packet.sender_seq, reply.packet.sender_ttl), (7, 61));
}

#[test]
fn padding_without_a_type_comes_back_as_it_was() {
    let mut request = [0; 100];
    sender().emit(None, &mut request).unwrap();
    request[60..].fill(9);
    let mut out = [0; 100];
    let answer = Request::open(&request, None).unwrap().answer(&facts(), || Timestamp(2), &mut out);
    assert_eq!(answer.unwrap().len, 100);
    assert_eq!(out[BASE_LEN..], request[BASE_LEN..]);
    let reply = Reply::open(&out, None).unwrap();
    assert_eq!((reply.packet.seq, reply.packet.timestamp), (5, Timestamp(2)));
    assert_eq!(reply.extensions, Extensions::default());
}

#[test]
fn a_reflector_fills_what_it_knows_and_marks_what_it_does_not() {
    for key in [None, Some(&key())] {
        let (mut request, mut out) = ([0; 256], [0; 256]);
        let len = extended(key, &mut request);
        let opened = Request::open(&request[..len], key).unwrap();
        assert_eq!(opened.packet, sender());
        let answer = opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
        assert_eq!(answer, Answer { len, dscp: 10 });
        let reply = Reply::open(&out[..len], key).unwrap();
        let expected = Extensions {
            class_of_service: Some(ClassOfService { dscp1: 10, dscp2: 46, ecn: 1, rp: 0 }),
            direct: Some(DirectMeasurement { sender_tx: 8, reflector_rx: 9, reflector_tx: 6 }),
            follow_up: facts().follow_up,
            unrecognised: 1,
            malformed: false,
            integrity: false,
        };
        assert_eq!(reply.extensions, expected);
        // With too little room there is no answer.
        assert_eq!(opened.answer(&facts(), || Timestamp(2), &mut out[..len - 1]), None);
    }
}

#[test]
fn a_class_that_is_not_permitted_is_told_and_not_used() {
    let (mut request, mut out) = ([0; 256], [0; 256]);
    let len = extended(None, &mut request);
    let strict = Facts { dscps: 0, ..facts() };
    let opened = Request::open(&request[..len], None).unwrap();
    let answer = opened.answer(&strict, || Timestamp(2), &mut out).unwrap();
    assert_eq!(answer.dscp, 46);
    let told = Reply::open(&out[..len], None).unwrap().extensions.class_of_service.unwrap();
    assert_eq!((told.rp, told.dscp1), (1, 10));
}

#[test]
fn a_stateless_reflector_repeats_the_number_and_has_no_follow_up() {
    let (mut request, mut out) = ([0; 256], [0; 256]);
    let len = extended(None, &mut request);
    let stateless = Facts { seq: None, ..facts() };
    let opened = Request::open(&request[..len], None).unwrap();
    opened.answer(&stateless, || Timestamp(2), &mut out).unwrap();
    let reply = Reply::open(&out[..len], None).unwrap();
    assert_eq!(reply.packet.seq, 7);
    assert_eq!(reply.extensions.follow_up, Some(FollowUp::default()));
}

#[test]
fn spoilt_extensions_are_marked_and_the_rest_is_copied() {
    let (mut request, mut out) = ([0; 256], [0; 256]);
    let len = extended(None, &mut request);
    // Direct Measurement with a length of 11: everything behind it stays unchanged.
    request[BASE_LEN + 8 + 3] = 11;
    let opened = Request::open(&request[..len], None).unwrap();
    opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
    assert_eq!(out[BASE_LEN], 0);
    assert_eq!(out[BASE_LEN + 8], flags::MALFORMED);
    assert_eq!(out[BASE_LEN + 9..len], request[BASE_LEN + 9..len]);
    let found = Reply::open(&out[..len], None).unwrap().extensions;
    assert!(found.malformed && found.class_of_service.is_some() && found.direct.is_none());
    // A length beyond the end of the packet.
    let len = extended(None, &mut request);
    request[BASE_LEN + 2] = 0xff;
    let opened = Request::open(&request[..len], None).unwrap();
    opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
    assert_eq!(out[BASE_LEN], flags::MALFORMED);
    assert_eq!(out[BASE_LEN + 1..len], request[BASE_LEN + 1..len]);
}

#[test]
fn extensions_whose_hmac_is_wrong_or_missing_come_back_marked_and_unused() {
    let key = key();
    let (mut request, mut out) = ([0; 256], [0; 256]);
    let len = extended(Some(&key), &mut request);
    // The flags of the HMAC TLV itself are the only byte that no HMAC covers.
    let unprotected = len - 10 - 20;
    for at in (AUTHENTICATED_LEN..len - 10).filter(|at| *at != unprotected) {
        let mut bad = request;
        bad[at] ^= 1;
        let opened = Request::open(&bad[..len], Some(&key)).unwrap();
        opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
        let found = Reply::open(&out[..len], Some(&key)).unwrap().extensions;
        assert_eq!(found, Extensions { integrity: true, ..Extensions::default() }, "byte {at}");
    }
    // Without a key nothing can be checked, so nothing is used.
    let base = sender().emit(None, &mut request).unwrap();
    let mut writer = Writer::new(&mut request[base..]);
    writer.push(kind::DIRECT_MEASUREMENT, &[0; 12]).unwrap();
    writer.seal(&key, 7).unwrap();
    let len = base + writer.len();
    let opened = Request::open(&request[..len], None).unwrap();
    opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
    let marked: Vec<u8> = tlvs(&out[base..len]).map(|tlv| tlv.unwrap().flags).collect();
    assert_eq!(marked, [flags::INTEGRITY; 2]);
    // Authenticated, without an HMAC TLV: only padding may be sent this way.
    let base = sender().emit(Some(&key), &mut request).unwrap();
    let mut writer = Writer::new(&mut request[base..]);
    writer.pad(20).unwrap();
    let len = base + writer.len();
    let opened = Request::open(&request[..len], Some(&key)).unwrap();
    opened.answer(&facts(), || Timestamp(2), &mut out).unwrap();
    assert!(!Reply::open(&out[..len], Some(&key)).unwrap().extensions.integrity);
}

#[test]
fn timestamps_of_both_formats_are_read_and_wrap() {
    let ns = 1_700_000_000_123_456_789;
    let ntp = Timestamp::ntp(ns);
    assert_eq!(ntp.0 >> 32, 1_700_000_000 + 2_208_988_800);
    assert_eq!(Timestamp::ntp(ns + 1_500_000_001).since(ntp, TimestampFormat::Ntp), 1_500_000_001);
    assert_eq!(ntp.since(Timestamp::ntp(ns + 7), TimestampFormat::Ntp), -7);
    let (late, early) = (Timestamp(5 << 32 | 1), Timestamp(4 << 32 | 999_999_999));
    assert_eq!(late.since(early, TimestampFormat::Ptp), 2);
    assert_eq!(
        Timestamp(0).since(Timestamp(0xffff_ffff << 32), TimestampFormat::Ntp),
        1_000_000_000
    );
}

#[test]
fn error_estimates_round_up() {
    assert_eq!(ErrorEstimate::ntp(0, true).emit(), [0x80, 1]);
    for ns in [1, 60, 1_000, 16_000_000, 5_000_000_000, u64::MAX] {
        let estimate = ErrorEstimate::ntp(ns, false);
        let told = estimate.seconds().unwrap() * 1e9;
        assert!(told >= ns as f64 && told <= ns as f64 * 1.02 + 1.0, "{ns}: {told}");
        assert_eq!(ErrorEstimate::parse(u16::from_be_bytes(estimate.emit())), estimate);
    }
}

proptest! {
    #[test]
    fn base_packets_round_trip(seq: u32, at: u64, error: u16, ssid: u16, ttl: u8, keyed: bool) {
        let key = key();
        let key = keyed.then_some(&key);
        let error = ErrorEstimate::parse(error);
        let packet = SenderPacket { seq, timestamp: Timestamp(at), error, ssid };
        let mut bytes = [0; AUTHENTICATED_LEN];
        let len = packet.emit(key, &mut bytes).unwrap();
        prop_assert_eq!(SenderPacket::parse(&bytes[..len], key), Ok((packet, &[][..])));
        let packet = ReflectorPacket {
            seq, timestamp: Timestamp(!at), error, ssid, receive: Timestamp(at ^ 5), sender_seq: !seq,
            sender_timestamp: Timestamp(at), sender_error: error, sender_ttl: ttl,
        };
        let len = packet.emit(key, &mut bytes).unwrap();
        prop_assert_eq!(ReflectorPacket::parse(&bytes[..len], key), Ok((packet, &[][..])));
    }

    #[test]
    fn nanoseconds_survive_ntps_format(ns in 0..u64::MAX / 2, later in 0u64..1 << 60) {
        let distance = Timestamp::ntp(ns + later).since(Timestamp::ntp(ns), TimestampFormat::Ntp);
        prop_assert_eq!(distance, later as i64);
    }
}
