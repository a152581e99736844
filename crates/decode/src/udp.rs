//! UDP, decoded by port number: messages and tunnels.

use std::borrow::Cow;

use segue_wire::mih::PORT as MIH;
use segue_wire::radius::{ACCOUNTING_PORT, DYNAMIC_PORTS, OLD_PORTS, PORT as RADIUS_PORT};
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT, stamp as wire};

use crate::element::{Found, Nothing, Ported};
use crate::{mh, mih, own, radius, stamp};

/// Dual-stack Mobile IPv6 (RFC 5555).
const DSMIPV6: u16 = 4191;
/// Proxy Mobile IPv6 over IPv4 (RFC 5844): signalling here, data below.
const PMIPV6_CONTROL: u16 = 5436;
const PMIPV6_DATA: u16 = 5437;
/// Other tunnels: RFC 4380, draft-massar-v6ops-ayiya, 3GPP TS 29.281, RFC 7348, RFC 8926.
const TEREDO: u16 = 3544;
const AYIYA: u16 = 5072;
const GTP_U: u16 = 2152;
const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
/// Ethertype of Ethernet frames in a tunnel.
const ETHERNET: u16 = 0x6558;

const HEADER: usize = 8;

/// Decodes a datagram: its ports and its contents. `cut`: the capture truncated it.
pub(crate) fn datagram(bytes: &[u8], cut: bool) -> Ported<'_> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        let error = format!("UDP: {} bytes, at least {HEADER} needed", bytes.len());
        return Err(Nothing::Broken(error));
    };
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (source, destination, length) = (half(0), half(2), usize::from(half(4)));
    if length < HEADER || length > bytes.len() && !cut {
        let there = bytes.len();
        let error = format!("UDP: a length of {length} bytes is wrong, {there} are there");
        return Err(Nothing::Broken(error));
    }
    let payload = &bytes[HEADER..length.min(bytes.len())];
    let ports = [destination, source];
    let port = ports.into_iter().find(|port| KNOWN.contains(port));
    let found = match port {
        Some(TUNNEL_PORT) => own::payload(payload, length - HEADER),
        Some(DSMIPV6) => vec![Found::Inner("UDP (RFC 5555)", Cow::Borrowed(payload))],
        Some(PMIPV6_CONTROL) => vec![Found::Message(mh::decode(payload, None))],
        Some(PMIPV6_DATA) => vec![pmipv6_data(payload)],
        Some(TEREDO) => tunnel("Teredo", teredo(payload)),
        Some(AYIYA) => tunnel("AYIYA", ayiya(payload)),
        Some(GTP_U) => tunnel("GTP-U", gtp_u(payload)),
        Some(VXLAN) => typed("VXLAN", ETHERNET, payload.get(8..)),
        Some(GENEVE) => geneve(payload),
        Some(wire::PORT) => {
            vec![Found::Message(stamp::decode(payload, destination == wire::PORT))]
        }
        Some(SIGNAL_PORT) => not_decoded("UDP port 5006 (signalling, encrypted)"),
        Some(MIH) => vec![Found::Message(mih::decode(payload))],
        Some(_) => vec![Found::Message(radius::decode(payload, cut))],
        None => not_decoded(&format!("UDP port {destination}")),
    };
    Ok(((source, destination), found))
}

/// Ports that identify the protocol of a datagram, including those of tunnels.
const KNOWN: [u16; 18] = [
    TUNNEL_PORT,
    PMIPV6_DATA,
    DSMIPV6,
    TEREDO,
    AYIYA,
    GTP_U,
    VXLAN,
    GENEVE,
    PMIPV6_CONTROL,
    wire::PORT,
    SIGNAL_PORT,
    MIH,
    RADIUS_PORT,
    ACCOUNTING_PORT,
    OLD_PORTS[0],
    OLD_PORTS[1],
    DYNAMIC_PORTS[0],
    DYNAMIC_PORTS[1],
];

fn not_decoded<'a>(what: &str) -> Vec<Found<'a>> {
    vec![Found::Message(Err(Nothing::other("UDP", what)))]
}

/// An inner packet, with a TLV header (RFC 5845) or without.
fn pmipv6_data(payload: &[u8]) -> Found<'_> {
    let inner = match payload {
        [0..=15, next_header, _, _, inner @ ..] if [4, 41].contains(next_header) => inner,
        inner => inner,
    };
    Found::Inner("UDP (RFC 5844)", Cow::Borrowed(inner))
}

/// The IP packet in a foreign tunnel, if one follows the header of the tunnel.
fn tunnel<'a>(form: &'static str, inner: Option<&'a [u8]>) -> Vec<Found<'a>> {
    match inner {
        Some(inner @ [0x40..=0x6f, ..]) => vec![Found::Inner(form, Cow::Borrowed(inner))],
        _ => not_decoded(&format!("{form} without an IP packet")),
    }
}

fn typed<'a>(form: &'static str, ethertype: u16, inner: Option<&'a [u8]>) -> Vec<Found<'a>> {
    match inner {
        Some(inner) => vec![Found::Typed(form, ethertype, inner)],
        None => not_decoded(&format!("{form}: a short header")),
    }
}

/// Skips the authentication header and the origin indication (RFC 4380, 5.1.1).
fn teredo(mut payload: &[u8]) -> Option<&[u8]> {
    if let [0, 1, id, authentication, ..] = payload {
        payload = payload.get(13 + usize::from(*id) + usize::from(*authentication)..)?;
    }
    if payload.starts_with(&[0, 0]) { payload.get(8..) } else { Some(payload) }
}

/// Skips an identity of 2^n octets and a signature of m words (draft-massar-v6ops-ayiya, 3).
fn ayiya(payload: &[u8]) -> Option<&[u8]> {
    let [identity, signature, ..] = payload else { return None };
    payload.get(8 + (1 << (identity >> 4)) + 4 * usize::from(signature >> 4)..)
}

/// A user packet (message type 255), after optional fields and extension headers (3GPP TS 29.281, 5.1).
fn gtp_u(payload: &[u8]) -> Option<&[u8]> {
    let [flags @ 0x30..=0x3f, 255, ..] = payload else { return None };
    if flags & 7 == 0 {
        return payload.get(8..);
    }
    let (mut at, mut extension) = (12, if flags & 4 == 0 { 0 } else { *payload.get(11)? });
    while extension != 0 {
        let length = 4 * usize::from(*payload.get(at)?);
        at += length;
        extension = if length == 0 { return None } else { *payload.get(at - 1)? };
    }
    payload.get(at..)
}

/// Skips the options, whose length the header gives in 4-octet words (RFC 8926, 3.4).
fn geneve(payload: &[u8]) -> Vec<Found<'_>> {
    let [words, _, high, low, ..] = payload else { return not_decoded("Geneve: a short header") };
    let inner = payload.get(8 + 4 * usize::from(words & 0x3f)..);
    typed("Geneve", u16::from_be_bytes([*high, *low]), inner)
}
