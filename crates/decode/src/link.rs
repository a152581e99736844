//! Link layers of captures.

use pcap_file::DataLink;

/// A link layer that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, with tags or without.
    Ethernet,
    /// IP packets with nothing before them.
    Raw,
    /// BSD's and macOS's loopback: four bytes of an address family in either byte order.
    Null,
    /// Linux's "any" device.
    Cooked,
    /// The same, version 2.
    Cooked2,
}

/// Ethertypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

impl Link {
    /// The link layer of a capture.
    #[must_use]
    pub fn of(data_link: DataLink) -> Option<Link> {
        // Of the number: the library knows 276 by no name.
        Some(match u32::from(data_link) {
            1 => Link::Ethernet,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            0 | 108 => Link::Null,
            113 => Link::Cooked,
            276 => Link::Cooked2,
            _ => return None,
        })
    }

    /// The IP packet in a frame.
    ///
    /// # Errors
    /// What the frame holds otherwise.
    pub(crate) fn ip(self, frame: &[u8]) -> Result<&[u8], String> {
        let half = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let (ethertype, at) = match self {
            Link::Raw => return Ok(frame),
            // Families differ between systems; the packet says its version itself.
            Link::Null => return frame.get(4..).ok_or_else(|| cut(frame)),
            Link::Cooked => (half(14), 16),
            Link::Cooked2 => (half(0), 20),
            Link::Ethernet => (half(12), 14),
        };
        let (mut ethertype, mut at) = (ethertype.ok_or_else(|| cut(frame))?, at);
        while TAGS.contains(&ethertype) {
            ethertype = half(at + 2).ok_or_else(|| cut(frame))?;
            at += 4;
        }
        match ethertype {
            IPV4 | IPV6 => frame.get(at..).ok_or_else(|| cut(frame)),
            0x0806 => Err("ARP: not decoded".into()),
            other => Err(format!("ethertype {other:#06x}: not decoded")),
        }
    }
}

fn cut(frame: &[u8]) -> String {
    format!("a frame of {} bytes has no packet in it", frame.len())
}
