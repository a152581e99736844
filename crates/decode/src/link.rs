//! Link layers of captures.

use pcap_file::DataLink;
use segue_wire::mih::ETHERTYPE as MIH;

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

/// What a frame of a link layer holds.
pub(crate) enum Inside<'a> {
    /// An IP packet.
    Ip(&'a [u8]),
    /// An MIH frame, and padding behind it.
    Mih(&'a [u8]),
}

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

    /// Source and destination of a frame, where it has both.
    pub(crate) fn ends(self, frame: &[u8]) -> Option<(String, String)> {
        let [destination, source] = [frame.get(..6)?, frame.get(6..12)?].map(|address| {
            let octets: Vec<String> = address.iter().map(|octet| format!("{octet:02x}")).collect();
            octets.join(":")
        });
        (self == Link::Ethernet).then_some((source, destination))
    }

    /// What is in a frame.
    ///
    /// # Errors
    /// Why it is not looked into.
    pub(crate) fn inside(self, frame: &[u8]) -> Result<Inside<'_>, String> {
        let half = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let (ethertype, at) = match self {
            Link::Raw => return Ok(Inside::Ip(frame)),
            // Families differ between systems; the packet says its version itself.
            Link::Null => return frame.get(4..).map(Inside::Ip).ok_or_else(|| cut(frame)),
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
            IPV4 | IPV6 => frame.get(at..).map(Inside::Ip).ok_or_else(|| cut(frame)),
            MIH => frame.get(at..).map(Inside::Mih).ok_or_else(|| cut(frame)),
            0x0806 => Err("ARP: not decoded".into()),
            other => Err(format!("ethertype {other:#06x}: not decoded")),
        }
    }
}

fn cut(frame: &[u8]) -> String {
    format!("a frame of {} bytes has no packet in it", frame.len())
}
