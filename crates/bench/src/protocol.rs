//! The generator's requests, and the validation of answers.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use segue_wire::{Header, PacketType, Probe, ProbeKey};

/// Destination port of requests in all formats.
pub(crate) const SERVICE_PORT: u16 = 5005;
/// Source port of requests.
pub(crate) const GENERATOR_PORT: u16 = 40_005;
/// The responder's address.
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const ETHERNET: usize = 14;

/// Address of a client; all clients share the generator's device.
pub(crate) fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FAR.to_bits() + 10 + number)
}

/// The responder's cookie for a path.
pub(crate) fn cookie(slot: u32) -> u64 {
    0x5e60 << 48 | u64::from(slot)
}

/// The generator's index and cookie for a path, which responses carry.
pub(crate) fn peer(slot: u32) -> (u32, u64) {
    (slot + 0x10_0000, 0xa560 << 48 | u64::from(slot))
}

/// The two words of a path's key.
pub(crate) fn key_words(slot: u32) -> [u64; 2] {
    [0x0706_0504_0302_0100 ^ u64::from(slot), 0x0f0e_0d0c_0b0a_0908]
}

/// A path's key.
pub(crate) fn key(slot: u32) -> ProbeKey {
    let mut bytes = [0; 16];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(key_words(slot)) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    ProbeKey(bytes)
}

/// Format of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Segue's probe.
    Probe,
    /// Segue's probe, returned unchanged.
    Echo,
    /// MESSAGE with a Timestamp header, answered with 200 (RFC 3261, 3428).
    Sip,
}

/// Identifies the request of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) slot: u32,
    pub(crate) seq: u32,
}

impl Format {
    /// Writes the payload of a request; `now_us` is the sender's clock in microseconds.
    fn request(self, id: Id, from: Ipv4Addr, now_us: u32, payload: &mut Vec<u8>) {
        match self {
            Format::Probe | Format::Echo => {
                payload
                    .extend_from_slice(&request(id, now_us).seal(&header(id.slot), &key(id.slot)));
            }
            Format::Sip => payload.extend_from_slice(sip_message(id, from, now_us).as_bytes()),
        }
    }

    /// Validates an answer as a client would.
    pub(crate) fn answer(self, payload: &[u8]) -> Option<Id> {
        if self == Format::Sip {
            return sip_answer(payload);
        }
        let head = Header::parse(payload).ok()?;
        let slot = match self {
            Format::Echo => head.index,
            _ => head.index.checked_sub(peer(0).0)?,
        };
        let probe = Probe::open(payload, &key(slot)).ok()?;
        let id = Id { slot, seq: probe.seq };
        let expected = match self {
            Format::Echo => head == header(slot),
            // The counters started with the first request, or later if earlier requests were lost.
            _ => {
                head.packet_type == PacketType::Response
                    && head.cookie == peer(slot).1
                    && probe.sc == probe.seq
                    && (1..=probe.seq).contains(&probe.r)
                    && (1..=probe.seq).contains(&probe.ss)
            }
        };
        expected.then_some(id)
    }
}

fn header(slot: u32) -> Header {
    Header::new(PacketType::Request, 3, slot, cookie(slot))
}

/// A request with the echo of an answer that took 60 µs in transit and was held for 40 µs. The responder can therefore
/// average a round-trip time although nothing reads its answers.
fn request(id: Id, now_us: u32) -> Probe {
    Probe {
        seq: id.seq,
        t_sc: now_us,
        t_ss: now_us.wrapping_sub(100),
        dt: 40,
        sc: id.seq,
        ss: id.seq - 1,
        r: id.seq - 1,
        heard: 1,
        t_ka_ms: 500,
    }
}

fn sip_message(id: Id, from: Ipv4Addr, now_us: u32) -> String {
    let Id { slot, seq } = id;
    let mut text = String::with_capacity(512);
    let body = format!("sc={seq};ss={0};r={0};dt=40;heard=1;tka=500\r\n", seq - 1);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "MESSAGE sip:anchor@{FAR}:{SERVICE_PORT} SIP/2.0\r\n\
         Via: SIP/2.0/UDP {from}:{GENERATOR_PORT};branch=z9hG4bK{slot}-{seq}\r\n\
         From: <sip:path{slot}@{from}>;tag={slot}\r\n\
         To: <sip:anchor@{FAR}>\r\n\
         Call-ID: {slot}-{seq}@{from}\r\n\
         CSeq: {seq} MESSAGE\r\n\
         Max-Forwards: 70\r\n\
         Timestamp: {}.{:06}\r\n\
         Content-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{body}",
        now_us / 1_000_000,
        now_us % 1_000_000,
        body.len()
    );
    text
}

fn sip_answer(payload: &[u8]) -> Option<Id> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut lines = text.split("\r\n");
    if !lines.next()?.starts_with("SIP/2.0 200") {
        return None;
    }
    let (mut id, mut stamped) = (None, false);
    for line in lines {
        if let Some(call) = line.strip_prefix("Call-ID: ") {
            let (slot, seq) = call.split('@').next()?.split_once('-')?;
            id = Some(Id { slot: slot.parse().ok()?, seq: seq.parse().ok()? });
        }
        stamped |= line.starts_with("Timestamp: ");
    }
    id.filter(|_| stamped)
}

/// MAC addresses of the two ends of the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Macs {
    pub(crate) near: [u8; 6],
    pub(crate) far: [u8; 6],
}

/// Generates requests as whole frames, for each path in turn.
#[derive(Debug)]
pub(crate) struct Requests {
    format: Format,
    macs: Macs,
    clients: u32,
    last: Vec<u32>,
    next: u32,
}

impl Requests {
    /// Requests for paths 0 to `paths` − 1, distributed over `clients` addresses.
    pub(crate) fn new(format: Format, macs: Macs, paths: u32, clients: u32) -> Requests {
        Requests { format, macs, clients: clients.max(1), last: vec![0; paths as usize], next: 0 }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Overwrites `frame` with the next request.
    pub(crate) fn write(&mut self, now_us: u32, frame: &mut Vec<u8>) -> Id {
        let slot = self.next;
        self.next = (self.next + 1) % self.last.len() as u32;
        let last = &mut self.last[slot as usize];
        *last += 1;
        let id = Id { slot, seq: *last };
        let from = client(slot % self.clients);
        frame.clear();
        frame.resize(ETHERNET + 28, 0);
        self.format.request(id, from, now_us, frame);
        let len = frame.len() - ETHERNET - 28;
        fill_headers(&mut frame[..ETHERNET + 28], self.macs, from, len);
        id
    }
}

/// Ethernet, IPv4 and UDP header (without checksum) of a request with `len` bytes of payload.
pub(crate) fn fill_headers(headers: &mut [u8], macs: Macs, from: Ipv4Addr, len: usize) {
    let (ethernet, rest) = headers.split_at_mut(ETHERNET);
    let (ip, udp) = rest.split_at_mut(20);
    ethernet[..6].copy_from_slice(&macs.far);
    ethernet[6..12].copy_from_slice(&macs.near);
    ethernet[12..].copy_from_slice(&[0x08, 0x00]);
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&(len as u16 + 28).to_be_bytes());
    ip[4..12].copy_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..].copy_from_slice(&FAR.octets());
    let sum: u32 =
        ip.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    ip[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    udp[..2].copy_from_slice(&GENERATOR_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&SERVICE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(len as u16 + 8).to_be_bytes());
    udp[6..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_be_of_the_right_kind_number_and_key() {
        let id = Id { slot: 7, seq: 3 };
        let (index, cookie) = peer(7);
        let good = Header::new(PacketType::Response, 3, index, cookie);
        let probe = Probe { ss: 3, r: 3, ..request(id, 1000) };
        assert_eq!(Format::Probe.answer(&probe.seal(&good, &key(7))), Some(id));
        assert_eq!(Format::Probe.answer(&probe.seal(&good, &key(8))), None);
        let more = Probe { r: 4, ..probe };
        assert_eq!(Format::Probe.answer(&more.seal(&good, &key(7))), None);
        let asked = request(id, 1000).seal(&header(7), &key(7));
        assert_eq!(Format::Probe.answer(&asked), None);
        assert_eq!(Format::Echo.answer(&asked), Some(id));
    }

    #[test]
    fn a_sip_answer_names_its_request_and_gives_the_timestamp_back() {
        let ok = |stamp| format!("SIP/2.0 200 OK\r\nCall-ID: 7-3@10.9.0.11\r\n{stamp}\r\n");
        let id = Some(Id { slot: 7, seq: 3 });
        assert_eq!(Format::Sip.answer(ok("Timestamp: 0.001000").as_bytes()), id);
        assert_eq!(Format::Sip.answer(ok("").as_bytes()), None);
        assert_eq!(Format::Sip.answer(b"SIP/2.0 405 No\r\n"), None);
    }

    #[test]
    fn frames_number_each_path_and_sum_to_zero() {
        let mut requests = Requests::new(Format::Probe, Macs::default(), 2, 2);
        let mut frame = Vec::new();
        let ids: Vec<Id> = (0..4).map(|_| requests.write(1, &mut frame)).collect();
        assert_eq!(ids[2], Id { slot: 0, seq: 2 });
        assert_eq!(frame.len(), ETHERNET + 28 + Probe::PACKET_LEN);
        assert_eq!(frame[26..30], client(1).octets());
        let sum: u32 =
            frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
