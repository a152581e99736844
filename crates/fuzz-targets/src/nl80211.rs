//! Wi-Fi messages of the kernel. Their information elements were received over the air.

use segue_linux::nl80211::{found_of, peer_of};

/// An SSID does not exceed the maximum length, and a truncated message gives nothing that the whole one does not
/// contain.
pub(crate) fn nl80211(data: &[u8]) {
    let whole = found_of(data);
    for length in 0..=data.len() {
        let cut = &data[..length];
        if let Some(peer) = peer_of(cut) {
            assert!(data.windows(6).any(|six| six == peer.mac));
        }
        if let Some(found) = found_of(cut) {
            assert!(found.ssid.len() <= 32);
            assert_eq!(Some(found), whole);
        }
    }
}
