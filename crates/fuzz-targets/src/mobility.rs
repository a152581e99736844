//! The Mobility Header and the extension headers around it.

use segue_wire::extension::{Chain, DestinationOptions, Header, Headers};
use segue_wire::mobility::{Message, Profile, authenticated_range, fill_checksum, verify_checksum};

use segue_wire::WireError;

use crate::take::take;

/// A parsed message parses to itself from its own encoding, which is stable. The data covered by an authenticator end
/// before it, and a computed checksum is correct. The first byte selects the profile.
pub(crate) fn mobility(data: &[u8]) {
    let mut data = data;
    let [choice] = take(&mut data);
    let profile = if choice & 1 == 0 { Profile::STRICT } else { Profile::OAI };
    let read = Message::parse(data, &profile);
    if let Ok(Some(covered)) = authenticated_range(data, &profile) {
        let behind = data.len() - covered.end;
        assert!(covered.start == 0 && (read.is_err() || behind == 12));
    }
    let Ok(message) = read else { return };
    let emitted = match message.emit(&profile) {
        Ok(emitted) => emitted,
        // With the padding that the sender omitted, the message is too long.
        Err(WireError::Length { got, .. }) => return assert!(got > 255),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(Message::parse(&emitted, &profile).as_ref(), Ok(&message));
    assert!(message.reencodes(&emitted, &profile));
    let (source, destination) = (1.into(), 2.into());
    let mut filled = emitted;
    fill_checksum(source, destination, &mut filled);
    assert!(verify_checksum(source, destination, &filled));
    assert!(serde_json::to_value(&message).is_ok());
}

/// Extension headers are consecutive and end within the packet. A truncated packet is rejected, and bytes after it have
/// no influence. Parsed options parse to themselves from their own encoding.
pub(crate) fn extension(data: &[u8]) {
    if let Ok(options) = DestinationOptions::parse(data) {
        match options.emit() {
            Ok(emitted) => assert_eq!(DestinationOptions::parse(&emitted), Ok(options)),
            Err(error) => assert!(matches!(error, WireError::Length { got, .. } if got > 2048)),
        }
    }
    let read = Chain::parse(data);
    let Ok(headers) = Headers::new(data) else { return assert!(read.is_err()) };
    let mut last = 0;
    for header in headers {
        let Ok((at, header)) = header else { return assert!(read.is_err()) };
        assert!(at > last && at <= data.len());
        last = at;
        if let (Header::Payload { next_header }, Ok(chain)) = (header, read) {
            assert_eq!((chain.payload_at, chain.next_header), (at, next_header));
        }
    }
    let Ok(chain) = read else { return };
    assert_eq!(chain.payload(data).len(), chain.payload_end - chain.payload_at);
    assert_eq!(Chain::parse(&data[..chain.payload_end]), read);
    assert!(Chain::parse(&data[..chain.payload_end - 1]).is_err());
}
