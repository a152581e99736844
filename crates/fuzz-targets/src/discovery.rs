//! Neighbour discovery.

use segue_wire::WireError;
use segue_wire::nd::{Envelope, Message, Refusal, View, check, fill_checksum};

/// A message: what is read has one reading and its own type; one that is cut is refused or is shorter; what a
/// receiver accepts is what was read.
pub(crate) fn nd(data: &[u8]) {
    let read = Message::parse(data);
    if let Ok(message) = &read {
        let emitted = message.emit();
        assert_eq!(emitted[0], data[0]);
        assert_eq!(Message::parse(&emitted).as_ref(), Ok(message));
        let view = View::new(data).expect("a message that was read");
        let kinds: Vec<u8> = view.options().map(|option| option.kind).collect();
        let read: Vec<u8> = message.options().iter().map(|option| option.kind()).collect();
        assert_eq!(kinds, read);
    }
    for n in 0..data.len().min(128) {
        match View::new(&data[..n]) {
            Ok(view) => assert!(data.starts_with(&[view.kind() as u8]) && n >= 8),
            Err(WireError::TooShort { got, min, .. }) => assert!(got < min && got <= n),
            Err(WireError::Type { got }) => assert_eq!(got, data[0]),
            Err(WireError::Field { field, got }) => assert_eq!((field, got), ("option length", 0)),
            Err(error) => panic!("{error}"),
        }
    }
    let mut data = data.to_vec();
    let (source, destination) = ([0xfe; 16].into(), [0xff; 16].into());
    let envelope = Envelope { source, destination, hop_limit: 255 };
    if let Ok(message) = &read {
        data[1] = 0;
        fill_checksum(source, destination, &mut data);
        match check(&data, &envelope) {
            Ok(accepted) => assert_eq!(accepted, *message),
            Err(Refusal::Address { .. } | Refusal::Solicited) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }
}
