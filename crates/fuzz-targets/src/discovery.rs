//! Neighbour discovery, and its display.

use segue_decode::{Bare, Capture, Element, Link, bare, packet};
use segue_linux::monitor::RouterOptions;
use segue_wire::WireError;
use segue_wire::nd::{
    Envelope, Message, NdOption, OptionView, Refusal, View, check, fill_checksum,
};

/// A message: it has exactly one interpretation and the corresponding type. A truncated message is rejected or is
/// shorter, and its display ends with the truncated option. A receiver accepts exactly the parsed message.
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
    match (&read, Message::parse_lossy(data)) {
        (Ok(message), lossy) => assert_eq!(lossy.as_ref(), Ok(message)),
        (Err(_), Ok(lossy)) => {
            let last = lossy.options().last();
            assert!(matches!(last, Some(NdOption::Malformed { .. })), "{lossy:?}");
        }
        (Err(_), Err(_)) => {}
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

/// Options of a router advertisement as forwarded by the kernel: they are within the message. A truncated message gives
/// the same options or none. Each known option is emitted as its original bytes.
pub(crate) fn router_options(data: &[u8]) {
    let whole = RouterOptions::parse(data);
    for length in 0..=data.len() {
        let read = RouterOptions::parse(&data[..length]);
        assert!(read.is_none() || read == whole);
    }
    let Some(RouterOptions { options, .. }) = whole else { return };
    assert!(options.is_empty() || data[16..].starts_with(&options));
    for option in OptionView::all(&options) {
        let read = NdOption::read(option);
        let mut out = Vec::new();
        read.emit(&mut out);
        let again = OptionView::all(&out).next().map(NdOption::read);
        assert_eq!(again, Some(read));
    }
}

/// Captures and packets: every packet gives a message or a reason of one line. The output is JSON that parses to
/// itself.
pub(crate) fn decode(data: &[u8]) {
    for link in (0..=u16::MAX).filter_map(Link::of) {
        for more in [0, 1] {
            told(&packet(1, link, data, data.len() + more));
        }
    }
    for kind in [Bare::MobilityHeader, Bare::Icmpv6, Bare::Segue, Bare::Mih, Bare::Radius] {
        told(&bare(kind, data));
    }
    let Some(magic) = data.first_chunk().filter(|magic| Capture::<&[u8]>::is(**magic)) else {
        return;
    };
    let Ok(mut capture) = Capture::open(*magic, data) else { return };
    let mut packets = 0;
    while let Ok(Some(read)) = capture.next_packet() {
        packets += 1;
        assert_eq!(read.number, packets);
        assert!(packets as usize <= data.len());
        assert!(read.bytes.len() <= read.length);
        let Some(link) = Link::of(read.link_type) else { continue };
        told(&packet(read.number, link, &read.bytes, read.length));
    }
}

fn told(elements: &[Element]) {
    assert!(!elements.is_empty());
    for element in elements {
        assert_eq!(element.message.is_some(), element.error.is_none());
        let error = element.error.as_deref().unwrap_or("none");
        assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
        let json = serde_json::to_string(element).expect("JSON");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["fields"], serde_json::to_value(&element.fields).expect("JSON"));
        let text = element.to_string();
        assert!(text.lines().all(|line| !line.contains(|c: char| c.is_control())), "{text:?}");
    }
}
