//! Tests of MIH frames: random ones, captured ones, values byte by byte, refused ones, and comparison with tshark.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod captures;
mod dissector;
mod generate;
mod refused;
mod values;

use proptest::prelude::*;
use segue_wire::WireError;
use segue_wire::mih::tlv::Unknown;
use segue_wire::mih::{Frame, MessageId, Payload, Profile, Tlv, View};

use generate::{frame, profile, tlv};

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(frame in frame(), profile in profile()) {
        let bytes = frame.emit(&profile).unwrap();
        prop_assert_eq!(Frame::parse(&bytes, &profile), Ok(frame.clone()));
        prop_assert!(frame.reencodes(&bytes, &profile));
        let (view, rest) = View::split(&bytes).unwrap();
        prop_assert!(rest.is_empty() && view.bytes() == bytes);
        prop_assert_eq!(view.message_id(), frame.message_id);
        prop_assert_eq!(view.transaction_id(), frame.transaction_id);
        prop_assert!(serde_json::to_value(&frame).is_ok());
    }

    #[test]
    fn a_cut_frame_is_refused_with_the_length_that_it_needs(frame in frame()) {
        let bytes = frame.emit(&Profile::STRICT).unwrap();
        for n in 0..bytes.len().min(600) {
            let min = if n < 8 { 8 } else { bytes.len() };
            let refused = Err(WireError::TooShort { what: "MIH frame", got: n, min });
            prop_assert_eq!(Frame::parse(&bytes[..n], &Profile::STRICT), refused);
        }
        let longer = [&bytes[..], &[0]].concat();
        let refused = Err(WireError::Length { what: "MIH frame", got: longer.len() });
        prop_assert_eq!(Frame::parse(&longer, &Profile::STRICT), refused);
        prop_assert_eq!(View::split(&longer).unwrap().1, [0]);
    }

    /// The frame is truncated and its length adapted: only complete TLVs from the front are read.
    #[test]
    fn a_cut_payload_has_no_part_of_a_tlv(tlvs in proptest::collection::vec(tlv(), 1..4)) {
        let frame = Frame::new(MessageId::LINK_UP, 1, tlvs);
        let emitted = frame.emit(&Profile::STRICT);
        prop_assume!(emitted.is_ok());
        let bytes = emitted.unwrap();
        for n in 8..bytes.len().min(600) {
            let mut cut = bytes[..n].to_vec();
            cut[6..8].copy_from_slice(&((n - 8) as u16).to_be_bytes());
            match Frame::parse(&cut, &Profile::STRICT) {
                Err(WireError::TooShort { what: "MIH frame's TLVs", .. }) => {}
                Err(error) => prop_assert!(false, "{error}"),
                Ok(read) => prop_assert!(
                    frame.tlvs().starts_with(read.tlvs()) && read.tlvs().len() < frame.tlvs().len()
                ),
            }
        }
    }

    /// The value of a TLV is truncated and all lengths adapted: the TLV is refused, or kept as raw bytes.
    #[test]
    fn a_cut_value_is_refused(tlv in tlv(), profile in profile()) {
        let open = matches!(tlv, Tlv::Unknown(_) | Tlv::InfoQueryBinaryDataList(_) | Tlv::InfoResponseBinaryDataList(_));
        prop_assume!(!open);
        let kind = tlv.kind();
        let emitted = Frame::new(MessageId::LINK_UP, 1, vec![tlv.clone()]).emit(&profile);
        prop_assume!(emitted.is_ok());
        let bytes = emitted.unwrap();
        let head = match bytes[9] {
            length @ 129.. => 10 + usize::from(length & 0x7f),
            _ => 10,
        };
        for n in 0..(bytes.len() - head).min(400) {
            let part = bytes[head..head + n].to_vec();
            let cut = Tlv::Unknown(Unknown { kind, data: part });
            let frame = Frame::new(MessageId::LINK_UP, 1, vec![cut]);
            let bytes = frame.emit(&profile).unwrap();
            let read = Frame::parse(&bytes, &profile);
            if profile.keep_unreadable {
                prop_assert_eq!(read, Ok(frame));
            } else {
                let short = matches!(read, Err(WireError::TooShort { what, got, .. }) if what == tlv.name() && got == n);
                prop_assert!(short, "{:?} of {:?}", read, tlv);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..70u8, profile in profile()) {
        let _ = Frame::parse(&bytes, &profile);
        // The same bytes in a TLV of a complete frame, so that value parsers are reached.
        let tlv = Tlv::Unknown(Unknown { kind, data: bytes });
        let bytes = Frame::new(MessageId::LINK_UP, 1, vec![tlv]).emit(&profile).unwrap();
        if let Ok(frame) = Frame::parse(&bytes, &profile) {
            let emitted = frame.emit(&profile).unwrap();
            prop_assert_eq!(Frame::parse(&emitted, &profile), Ok(frame));
        }
    }
}

#[test]
fn a_fragment_is_kept_as_it_came() {
    let part = vec![1, 6, 5, b'm'];
    for (number, more, head) in
        [(0, true, [0x11, 0]), (1, true, [0x11, 2]), (127, false, [0x10, 254])]
    {
        let payload = Payload::Fragment { number, more, part: part.clone() };
        let frame = Frame { payload, ..Frame::new(MessageId::GET_INFORMATION, 7, vec![]) };
        let bytes = frame.emit(&Profile::STRICT).unwrap();
        assert_eq!(bytes, [&head[..], &[0x44, 1, 0, 7, 0, 4, 1, 6, 5, b'm']].concat());
        assert_eq!(Frame::parse(&bytes, &Profile::STRICT), Ok(frame));
    }
}
