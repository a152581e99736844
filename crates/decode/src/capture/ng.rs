//! pcapng: reads the blocks of packets and interfaces, and skips all others.

use std::io::Read;

use anyhow::{Context, bail};

use super::input::{Input, LinkType, PACKET_MAX, PCAPNG, Packet, Time};

/// Maximum number of interfaces in a section: their list is the only state that grows with a capture.
const INTERFACES_MAX: usize = 65_536;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Option codes of an interface description.
const TIME_RESOLUTION: u16 = 9;
const CHECK_OCTETS: u16 = 13;
const TIME_OFFSET: u16 = 14;

/// The part of a capture between two section headers.
#[derive(Default)]
pub(super) struct Section {
    interfaces: Vec<Interface>,
}

struct Interface {
    link: LinkType,
    /// Packets are truncated to this many bytes; 0 means no limit.
    snap_length: u32,
    ticks_per_second: u64,
    offset_seconds: i64,
}

impl Section {
    pub(super) fn next_packet(
        &mut self,
        number: u64,
        input: &mut Input<impl Read>,
    ) -> anyhow::Result<Option<Packet>> {
        loop {
            let Some([kind, total]) = input.words()? else { return Ok(None) };
            if kind == PCAPNG {
                self.begin(total, input)?;
                continue;
            }
            // A length that is not a multiple of four is rounded up, to match the writer's padding.
            let body = total.checked_next_multiple_of(4).and_then(|total| total.checked_sub(12));
            let body =
                body.with_context(|| format!("the capture is broken: a block of {total} bytes"))?;
            if ![INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, ENHANCED_PACKET].contains(&kind) {
                input.skip(body)?;
                input.skip(4)?;
                continue;
            }
            if body > PACKET_MAX {
                bail!("the capture is broken: a block of {total} bytes");
            }
            let block = input.take(body)?;
            input.skip(4)?;
            if kind == INTERFACE {
                if self.interfaces.len() == INTERFACES_MAX {
                    bail!("a section of the capture has more than {INTERFACES_MAX} interfaces");
                }
                self.interfaces.push(interface(&block, input).context("a short interface")?);
            } else {
                return self.packet(number, kind, &block, input).map(Some);
            }
        }
    }

    /// Starts a section. Its byte-order magic follows the length of the section header block.
    fn begin(&mut self, total: u32, input: &mut Input<impl Read>) -> anyhow::Result<()> {
        let order = input.take(4)?;
        let swapped = match order[..] {
            [0x1a, 0x2b, 0x3c, 0x4d] => input.is_little,
            [0x4d, 0x3c, 0x2b, 0x1a] => !input.is_little,
            _ => bail!("the capture is broken: a section without an order of bytes"),
        };
        input.is_little ^= swapped;
        let total = if swapped { total.swap_bytes() } else { total };
        let rest = total.checked_sub(12);
        input.skip(rest.context("the capture is broken: a section's header is too short")?)?;
        self.interfaces.clear();
        Ok(())
    }

    fn packet(
        &self,
        number: u64,
        kind: u32,
        block: &[u8],
        input: &Input<impl Read>,
    ) -> anyhow::Result<Packet> {
        let word = |at| input.word(block, at).context("the capture is broken: a short packet");
        let id = match kind {
            SIMPLE_PACKET => 0,
            OBSOLETE_PACKET => u32::from(input.half(block, 0).unwrap_or_default()),
            _ => word(0)?,
        };
        let interface = self.interfaces.get(id as usize);
        let interface =
            interface.with_context(|| format!("the capture describes no interface {id}"))?;
        let (time, captured, length, at) = match kind {
            SIMPLE_PACKET => {
                let length = word(0)?;
                let most = if interface.snap_length == 0 { length } else { interface.snap_length };
                (None, length.min(most), length, 4)
            }
            _ => {
                let ticks = u64::from(word(4)?) << 32 | u64::from(word(8)?);
                (interface.time(ticks), word(12)?, word(16)?, 20)
            }
        };
        let bytes = block.get(at..).unwrap_or_default();
        let bytes = bytes.get(..captured as usize).with_context(|| {
            format!("the capture is broken: {captured} bytes in a block of {}", block.len() + 12)
        })?;
        Ok(Packet::new(number, time, interface.link, bytes.to_vec(), length))
    }
}

impl Interface {
    fn time(&self, ticks: u64) -> Option<Time> {
        let per_second = self.ticks_per_second;
        let seconds = (ticks / per_second).checked_add_signed(self.offset_seconds)?;
        let part = u128::from(ticks % per_second) * 1_000_000_000 / u128::from(per_second);
        Some(Time { seconds, nanoseconds: part as u32 })
    }
}

/// Reads an interface description block. The options may lack their end marker.
fn interface(block: &[u8], input: &Input<impl Read>) -> Option<Interface> {
    let number = input.half(block, 0)?;
    let mut interface = Interface {
        link: LinkType { number, check_octets: 0 },
        snap_length: input.word(block, 4)?,
        ticks_per_second: 1_000_000,
        offset_seconds: 0,
    };
    let mut at = 8;
    while let (Some(code), Some(length)) = (input.half(block, at), input.half(block, at + 2)) {
        let length = usize::from(length);
        let value = block.get(at + 4..at + 4 + length).unwrap_or_default();
        match (code, value) {
            (0, _) => break,
            (TIME_RESOLUTION, [resolution, ..]) => {
                let (base, power) =
                    (if resolution & 0x80 == 0 { 10_u64 } else { 2 }, resolution & 0x7f);
                interface.ticks_per_second = base.checked_pow(power.into()).unwrap_or(u64::MAX);
            }
            // In octets.
            (CHECK_OCTETS, [octets, ..]) => interface.link.check_octets = usize::from(*octets),
            (TIME_OFFSET, [_, _, _, _, _, _, _, _]) => {
                let halves = [input.word(value, 0)?, input.word(value, 4)?].map(u64::from);
                let [high, low] = if input.is_little { [halves[1], halves[0]] } else { halves };
                interface.offset_seconds = (high << 32 | low).cast_signed();
            }
            _ => {}
        }
        at += 4 + length.next_multiple_of(4);
    }
    Some(interface)
}
