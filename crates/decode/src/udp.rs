//! UDP by its ports.

use std::borrow::Cow;

use segue_wire::mih::PORT as MIH;
use segue_wire::radius::{ACCOUNTING_PORT, PORT as RADIUS_PORT};
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT, stamp as wire};

use crate::element::{Found, Ported};
use crate::{mh, mih, own, radius, stamp};

/// Mobile IPv6 for dual stacks (RFC 5555).
const DSMIPV6: u16 = 4191;
/// Proxy Mobile IPv6 over IPv4 (RFC 5844): signalling and data.
const PMIPV6_CONTROL: u16 = 5436;
const PMIPV6_DATA: u16 = 5437;

const HEADER: usize = 8;

/// The ports of a datagram, and what it holds. `cut`: the capture kept only its beginning.
pub(crate) fn datagram(bytes: &[u8], cut: bool) -> Ported<'_> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Err(format!("UDP: {} bytes, at least {HEADER} needed", bytes.len()));
    };
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (source, destination, length) = (half(0), half(2), usize::from(half(4)));
    if length < HEADER || length > bytes.len() && !cut {
        return Err(format!("UDP: a length of {length} bytes is wrong, {} are there", bytes.len()));
    }
    let payload = &bytes[HEADER..length.min(bytes.len())];
    let ports = [destination, source];
    let port = ports.into_iter().find(|port| KNOWN.contains(port));
    let found = match port {
        Some(TUNNEL_PORT) => own::payload(payload, length - HEADER),
        Some(DSMIPV6) => vec![Found::Inner("UDP (RFC 5555)", Cow::Borrowed(payload))],
        Some(PMIPV6_CONTROL) => vec![Found::Message(mh::decode(payload, None))],
        Some(PMIPV6_DATA) => vec![pmipv6_data(payload)],
        Some(wire::PORT) => {
            vec![Found::Message(stamp::decode(payload, destination == wire::PORT))]
        }
        Some(SIGNAL_PORT) => not_decoded(SIGNAL_PORT, "signalling, encrypted"),
        Some(MIH) => vec![Found::Message(mih::decode(payload))],
        Some(_) => vec![Found::Message(radius::decode(payload))],
        None => vec![Found::Message(Err(format!("UDP port {destination}: not decoded")))],
    };
    Ok(((source, destination), found))
}

/// Ports that say what a datagram is; the first three may carry any of the others.
const KNOWN: [u16; 9] = [
    TUNNEL_PORT,
    PMIPV6_DATA,
    DSMIPV6,
    PMIPV6_CONTROL,
    wire::PORT,
    SIGNAL_PORT,
    MIH,
    RADIUS_PORT,
    ACCOUNTING_PORT,
];

fn not_decoded<'a>(port: u16, what: &str) -> Vec<Found<'a>> {
    vec![Found::Message(Err(format!("UDP port {port} ({what}): not decoded")))]
}

/// An inner packet, with a TLV header (RFC 5845) or without.
fn pmipv6_data(payload: &[u8]) -> Found<'_> {
    let inner = match payload {
        [0..=15, next_header, _, _, inner @ ..] if [4, 41].contains(next_header) => inner,
        inner => inner,
    };
    Found::Inner("UDP (RFC 5844)", Cow::Borrowed(inner))
}
