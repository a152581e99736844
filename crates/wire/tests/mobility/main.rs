//! Tests of the Mobility Header: random messages, tables from the RFCs, and refused messages.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod generate;
mod refused;
mod selector;
mod tables;

use proptest::prelude::*;
use segue_wire::WireError;
use segue_wire::mobility::option::BindingAuthorizationData;
use segue_wire::mobility::{
    Message, MobilityHeader, MobilityOption, Profile, authenticated_range, fill_checksum,
    verify_checksum,
};
use segue_wire::padded::RawOptions;

use generate::{message, profile};
use tables::{alignment, fixed_len};

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(message in message(), profile in profile()) {
        let bytes = message.emit(&profile).unwrap();
        prop_assert_eq!(Message::parse(&bytes, &profile), Ok(message.clone()));
        prop_assert!(message.reencodes(&bytes, &profile));
        let header = MobilityHeader::parse(&bytes, &profile).unwrap();
        prop_assert_eq!(usize::from(header.header_len()), bytes.len() / 8 - 1);
        prop_assert_eq!(header.message_type(), message.body.message_type());
        if profile == Profile::STRICT {
            prop_assert_eq!(bytes.len() % 8, 0);
        }
    }

    #[test]
    fn options_stand_where_the_table_says(message in message()) {
        let bytes = message.emit(&Profile::STRICT).unwrap();
        let start = fixed_len(bytes[2]);
        for option in RawOptions::new("options", &bytes[start..]) {
            let option = option.unwrap();
            let (at, len) = (start + option.at, option.data.len());
            let (n, offset) = alignment(option.kind, len);
            prop_assert_eq!(at % n, offset, "type {} at {}", option.kind, at);
            if matches!(option.kind, 5 | 21) {
                prop_assert_eq!(at + 2 + len, bytes.len());
            }
        }
    }

    /// The packet is truncated: Header Len states more than there is.
    #[test]
    fn a_cut_packet_holds_no_message(message in message()) {
        let bytes = message.emit(&Profile::STRICT).unwrap();
        for n in 0..bytes.len() {
            let refused = Message::parse(&bytes[..n], &Profile::STRICT);
            let cut = matches!(refused, Err(WireError::TooShort { what: "Mobility Header", got, .. }) if got == n);
            prop_assert!(cut, "{} of {}: {:?}", n, bytes.len(), refused);
        }
    }

    /// The message is truncated and Header Len adapted: only complete options from the front are read.
    #[test]
    fn a_cut_message_has_no_part_of_a_field(message in message()) {
        let mut bytes = message.emit(&Profile::STRICT).unwrap();
        for n in (8..bytes.len()).rev() {
            bytes[1] = (n / 8 - 1) as u8;
            match Message::parse(&bytes[..n], &Profile::OAI) {
                Err(WireError::TooShort { .. } | WireError::Length { .. }) => {}
                Err(error) => prop_assert!(false, "{error}"),
                Ok(read) => {
                    prop_assert!(n >= fixed_len(bytes[2]));
                    let mut whole = message.clone();
                    // This profile reads timestamps in another byte order.
                    let in_order = |option: &MobilityOption| !matches!(option, MobilityOption::Timestamp(_));
                    whole.options.retain(in_order);
                    let read: Vec<_> = read.options.into_iter().filter(in_order).collect();
                    prop_assert!(whole.options.starts_with(&read));
                    prop_assert!(n + 8 > bytes.len() || read.len() <= whole.options.len());
                }
            }
        }
    }

    #[test]
    fn a_checksum_tells_each_changed_octet(message in message(), at: usize, change in 1..=255u8) {
        let (source, destination) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut bytes = message.emit(&Profile::STRICT).unwrap();
        fill_checksum(source, destination, &mut bytes);
        prop_assert!(verify_checksum(source, destination, &bytes));
        prop_assert!(!verify_checksum(source, source, &bytes));
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(!verify_checksum(source, destination, &bytes));
        fill_checksum(source, destination, &mut bytes);
        prop_assert!(verify_checksum(source, destination, &bytes));
    }

    #[test]
    fn the_authenticator_stands_behind_what_it_covers(message in message(), authenticator: [u8; 12]) {
        let mut message = message;
        message.options.retain(|option| !matches!(option.kind(), 5 | 21));
        let bytes = message.emit(&Profile::STRICT).unwrap();
        prop_assert_eq!(authenticated_range(&bytes, &Profile::STRICT), Ok(None));
        let option = BindingAuthorizationData { authenticator };
        message.options.push(MobilityOption::BindingAuthorizationData(option));
        let bytes = message.emit(&Profile::STRICT).unwrap();
        let covered = authenticated_range(&bytes, &Profile::STRICT).unwrap().unwrap();
        prop_assert_eq!(covered.start, 0);
        prop_assert_eq!(&bytes[covered.end..], authenticator);
        prop_assert_eq!(&bytes[covered.end - 2..covered.end], [5, 12]);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..30u8) {
        let mut bytes = bytes;
        let _ = Message::parse(&bytes, &Profile::STRICT);
        // The same bytes with a header, so that body and option parsers are reached.
        let len = bytes.len();
        if len >= 8 {
            bytes[..3].copy_from_slice(&[59, (len / 8 - 1) as u8, kind]);
        }
        if let Ok(message) = Message::parse(&bytes, &Profile::OAI) {
            let emitted = message.emit(&Profile::OAI).unwrap();
            prop_assert_eq!(Message::parse(&emitted, &Profile::OAI), Ok(message));
        }
    }
}
