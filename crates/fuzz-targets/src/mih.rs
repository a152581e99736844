//! MIH frames.

use segue_wire::WireError;
use segue_wire::mih::{BitOrder, Frame, Profile, Tlv, View};

use crate::take::take;

/// A parsed frame parses to itself from its own encoding, which is stable and no longer than the input. A parser that
/// keeps unreadable values accepts everything that a strict one accepts. A truncated frame reports how many bytes it
/// needs. The first byte selects the profile.
pub(crate) fn mih(data: &[u8]) {
    let mut data = data;
    let [choice] = take(&mut data);
    let bit_order = if choice & 1 == 0 { BitOrder::LeastFirst } else { BitOrder::MostFirst };
    let profile = Profile { bit_order, keep_unreadable: choice & 2 != 0 };
    let (view, rest) = match View::split(data) {
        Ok(split) => split,
        Err(WireError::TooShort { got, min, .. }) => {
            return assert!(got == data.len() && got < min);
        }
        Err(error) => return assert_eq!(error, WireError::Version { got: data[0] >> 4 }),
    };
    assert_eq!(view.bytes().len() + rest.len(), data.len());
    let Ok(frame) = Frame::of(&view, &profile) else { return };
    let emitted = frame.emit(&profile).expect("what is read is no longer than what was read");
    assert!(emitted.len() <= view.bytes().len());
    assert_eq!(Frame::parse(&emitted, &profile).as_ref(), Ok(&frame));
    assert!(frame.reencodes(&emitted, &profile));
    let lenient = Profile { keep_unreadable: true, ..profile };
    assert_eq!(Frame::of(&view, &lenient).as_ref(), Ok(&frame));
    let is_known = |tlv: &Tlv| !matches!(tlv, Tlv::Unknown(_)) || !(1..64).contains(&tlv.kind());
    assert!(profile.keep_unreadable || frame.tlvs().iter().all(is_known));
    let short = View::parse(&view.bytes()[..view.bytes().len() - 1]);
    assert!(matches!(short, Err(WireError::TooShort { .. })));
    assert!(serde_json::to_value(&frame).is_ok());
}
