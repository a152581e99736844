//! TCP, decoded by port number. Segments are decoded one by one, without reassembly.

use segue_wire::mih::PORT;

use crate::element::{Found, Nothing, Ported};
use crate::mih;

const HEADER: usize = 20;

/// Decodes a segment: its ports and its contents.
pub(crate) fn segment(bytes: &[u8]) -> Ported<'_> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        let error = format!("TCP: {} bytes, at least {HEADER} needed", bytes.len());
        return Err(Nothing::Broken(error));
    };
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let ports = (half(0), half(2));
    if ports.0 != PORT && ports.1 != PORT {
        return Ok((ports, vec![Found::Message(Err(Nothing::other("TCP", "TCP")))]));
    }
    let header_len = usize::from(header[12] >> 4) * 4;
    let payload = bytes.get(header_len..).filter(|_| header_len >= HEADER);
    let payload = payload
        .ok_or_else(|| Nothing::Broken(format!("TCP: a header of {header_len} bytes is wrong")))?;
    let found = match payload {
        [] => vec![Found::Message(Err(Nothing::other("TCP", "TCP without data")))],
        payload => mih::stream(payload),
    };
    Ok((ports, found))
}
