//! STAMP: arbitrary requests to the reflector, and arbitrary replies to the sender.

use segue_wire::stamp::tlv::{self, FollowUp, kind};
use segue_wire::stamp::{Facts, Reply, Request, StampKey, TWAMP_LIGHT_LEN, Timestamp, base_len};

use crate::take::take;

/// The reflector replies to packets with the length and the HMAC of a request, with the same length, and changes only
/// the fields that it must fill in. Its reply parses to the original numbers. The first byte selects whether there is a
/// key and whether HMACs are corrected.
pub(crate) fn stamp(data: &[u8]) {
    let mut data = data;
    let [choice, tos, dscp] = take(&mut data);
    let key = StampKey::new(b"a key for the fuzzer");
    let key = (choice & 1 != 0).then_some(&key);
    let mut bytes = data.to_vec();
    if let (Some(key), true) = (key, choice & 2 != 0) {
        mend(&mut bytes, key);
    }
    let _ = Reply::open(&bytes, key);
    let Ok(request) = Request::open(&bytes, key) else {
        return assert!(key.is_some() || bytes.len() < TWAMP_LIGHT_LEN);
    };
    let facts = Facts {
        receive: Timestamp(1),
        ttl: 9,
        tos,
        seq: (choice & 4 != 0).then_some(77),
        received: 5,
        sent: 6,
        follow_up: (choice & 8 != 0).then_some(FollowUp { seq: 76, ..FollowUp::default() }),
        dscps: 1 << (dscp & 63),
        ..Facts::default()
    };
    let mut out = vec![0; bytes.len()];
    let answer = request.answer(&facts, || Timestamp(2), &mut out).expect("room for the answer");
    assert_eq!(answer.len, bytes.len());
    assert!(answer.dscp == tos >> 2 || answer.dscp == dscp & 63);
    let reply = Reply::open(&out, key).expect("what we answer is an answer");
    assert_eq!(reply.packet.sender_seq, request.packet.seq);
    assert_eq!(reply.packet.ssid, request.packet.ssid);
    assert_eq!(reply.packet.seq, facts.seq.unwrap_or(request.packet.seq));
    let base = base_len(key).min(out.len());
    if tlv::is_padding(&bytes[base..]) {
        assert_eq!(out[base..], bytes[base..]);
    }
    for (asked, told) in tlv::tlvs(&bytes[base..]).zip(tlv::tlvs(&out[base..])) {
        let (Ok(asked), Ok(told)) = (asked, told) else { break };
        assert_eq!((asked.kind, asked.value.len()), (told.kind, told.value.len()));
        if !matches!(told.kind, kind::CLASS_OF_SERVICE..=kind::HMAC) {
            assert_eq!(asked.value, told.value);
        }
    }
}

/// Sets the correct HMAC in a request's base packet, so that the target reaches the extensions.
fn mend(bytes: &mut [u8], key: &StampKey) {
    use segue_wire::stamp::SenderPacket;
    if bytes.len() < base_len(Some(key)) {
        return;
    }
    let seq = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let packet = SenderPacket { seq, ..SenderPacket::default() };
    packet.emit(Some(key), bytes).expect("room for the base packet");
    // A sealed extension before those of the input.
    let rest = &mut bytes[base_len(Some(key))..];
    let mut writer = tlv::Writer::new(rest);
    if writer.push(kind::DIRECT_MEASUREMENT, &[0; 12]).is_some() {
        let _ = writer.seal(key, seq);
    }
}
