//! RADIUS packets.

use segue_wire::WireError;
use segue_wire::radius::{Packet, Secret, View};

/// A parsed packet is emitted as the bytes that were parsed. A truncated packet is reported as such. A sealed reply is
/// accepted with its request and secret only.
pub(crate) fn radius(data: &[u8]) {
    if let Ok(lossy) = View::lossy(data) {
        assert!(data.starts_with(lossy.bytes()) && lossy.bytes().ends_with(lossy.rest()));
    }
    let view = match View::parse(data) {
        Ok(view) => {
            assert_eq!(View::lossy(data), Ok(view));
            assert!(view.rest().is_empty());
            view
        }
        Err(WireError::TooShort { got, min, .. }) => {
            return assert!(got == data.len() && got < min);
        }
        Err(error) => return assert!(matches!(error, WireError::Length { .. })),
    };
    assert!(data.starts_with(view.bytes()));
    let packet = Packet::of(&view);
    assert_eq!(packet.emit().as_deref(), Ok(view.bytes()));
    for attribute in &packet.attributes {
        // The conversions must not panic for any value.
        let _ = (attribute.to_integer(), attribute.to_integer64(), attribute.to_address());
        if let Some(prefix) = attribute.to_prefix() {
            assert_eq!(prefix, prefix.network());
        }
    }
    let cut = View::parse(&view.bytes()[..view.bytes().len() - 1]);
    assert!(matches!(cut, Err(WireError::TooShort { .. })));
    let (secret, other) = (Secret::new(b"a secret"), Secret::new(b"another"));
    let request = [0x5a; 16];
    for with_message_authenticator in [false, true] {
        let Ok(sealed) = packet.seal_reply(&request, &secret, with_message_authenticator) else {
            return;
        };
        let sealed = View::parse(&sealed).expect("what is sealed can be read");
        let seen = sealed.check_reply(&request, &secret, with_message_authenticator);
        // Without this requirement, a Message-Authenticator from the original packet may be wrong after sealing.
        assert!(!with_message_authenticator || seen.is_ok());
        assert!(sealed.check_reply(&[0; 16], &secret, false).is_err());
        assert!(sealed.check_reply(&request, &other, false).is_err());
    }
}
