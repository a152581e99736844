//! The classic pcap format.

use std::io::Read;

use anyhow::{Context, bail};

use super::input::{ENDS_EARLY, Input, LinkType, PACKET_MAX, PCAP, Packet, Time};

/// The fields of the file header that apply to all packets.
pub(super) struct Pcap {
    link: LinkType,
    ns_per_tick: u32,
    /// Additional octets in each packet header, which are skipped.
    more: u32,
}

impl Pcap {
    pub(super) fn open(head: [u8; 4], input: &mut Input<impl Read>) -> anyhow::Result<Pcap> {
        input.is_little = !PCAP.contains(&u32::from_be_bytes(head));
        let words: [u32; 6] = input.words()?.context(ENDS_EARLY)?;
        let [magic, _, _, _, _, link] = words;
        let Some(form) = PCAP.iter().position(|known| *known == magic) else {
            bail!("no capture (pcap, pcapng)");
        };
        // If P is set, F is the length of the frame check sequence in units of 16 bits (draft-ietf-opsawg-pcap):
        // |   F   |R|P|    reserved     |           link type           |
        let check_octets = if link & 0x0400_0000 == 0 { 0 } else { (link >> 28) as usize * 2 };
        let ns_per_tick = if form == 1 { 1 } else { 1_000 };
        let more = if form == 2 { 8 } else { 0 };
        Ok(Pcap { link: LinkType { number: link as u16, check_octets }, ns_per_tick, more })
    }

    pub(super) fn next_packet(
        &mut self,
        number: u64,
        input: &mut Input<impl Read>,
    ) -> anyhow::Result<Option<Packet>> {
        let Some([seconds, ticks, captured, length]) = input.words()? else { return Ok(None) };
        if captured > PACKET_MAX {
            bail!("the capture is broken: a packet of {captured} bytes");
        }
        input.skip(self.more)?;
        let bytes = input.take(captured)?;
        // Some writers leave more than a second in the fraction; the excess is carried over.
        let ns = u64::from(ticks) * u64::from(self.ns_per_tick);
        let seconds = u64::from(seconds) + ns / 1_000_000_000;
        let time = Time { seconds, nanoseconds: (ns % 1_000_000_000) as u32 };
        Ok(Some(Packet::new(number, Some(time), self.link, bytes, length)))
    }
}
