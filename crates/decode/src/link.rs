//! Link layers of captures, and the headers between the link layer and an IP packet.

use segue_wire::mih::ETHERTYPE as MIH;

use crate::element::Nothing;

/// A link layer that we decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, possibly with VLAN tags.
    Ethernet,
    /// An IP packet after this many bytes.
    Raw(usize),
    /// An Ethertype at the first offset, and the packet at the second, both from the start of the frame.
    Typed(usize, usize),
    /// IEEE 802.11.
    Wlan,
    /// IEEE 802.11 after a radiotap header.
    Radiotap,
    /// IEEE 802.11 after a Prism header.
    Prism,
    /// IEEE 802.11 after an AVS header.
    Avs,
    /// A frame with a per-packet information (PPI) header, which states the link type.
    Ppi,
    /// PPP after this many bytes.
    Ppp(usize),
    /// PPPoE without an Ethernet header.
    Pppoe,
    /// IEEE 802.2 after this many bytes: FDDI, Token Ring, ATM.
    Llc(usize),
    /// MPLS.
    Mpls,
}

/// Ethertypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const ETHERNET: u16 = 0x6558;
const PPP: u16 = 0x880b;
/// Smaller values are not an Ethertype but the length of an IEEE 802.2 frame.
const LENGTHS: u16 = 0x0600;

/// Maximum number of headers before a packet.
const LAYERS_MAX: usize = 32;

/// The contents of a link-layer frame.
pub(crate) enum Inside<'a> {
    /// An IP packet.
    Ip(&'a [u8]),
    /// An MIH frame, possibly with padding after it.
    Mih(&'a [u8]),
}

/// How a header identifies the header after it.
enum Next {
    Link(Link),
    /// By an Ethertype.
    Type(u16),
    /// By the PPP protocol number that comes next.
    Ppp,
}

impl Link {
    /// The link layer with this number (`LINKTYPE_*` of libpcap); `None` if we do not decode it.
    #[must_use]
    pub fn of(number: u16) -> Option<Link> {
        Some(match number {
            1 => Link::Ethernet,
            12 | 14 | 101 | 228 | 229 => Link::Raw(0),
            // The address family that comes first differs between systems; the packet states its own version.
            0 | 108 => Link::Raw(4),
            109 => Link::Raw(12),
            117 => Link::Raw(48),
            104 => Link::Typed(2, 4),
            113 => Link::Typed(14, 16),
            138 => Link::Typed(16, 18),
            276 => Link::Typed(0, 20),
            9 => Link::Ppp(0),
            50 | 166 => Link::Ppp(0),
            204 => Link::Ppp(1),
            51 => Link::Pppoe,
            6 => Link::Llc(14),
            10 => Link::Llc(13),
            100 => Link::Llc(0),
            105 => Link::Wlan,
            119 => Link::Prism,
            127 => Link::Radiotap,
            163 => Link::Avs,
            192 => Link::Ppi,
            219 => Link::Mpls,
            _ => return None,
        })
    }

    /// Source and destination address of an Ethernet frame; `None` for other link layers.
    pub(crate) fn ends(self, frame: &[u8]) -> Option<(String, String)> {
        let [destination, source] = [frame.get(..6)?, frame.get(6..12)?].map(|address| {
            let octets: Vec<String> = address.iter().map(|octet| format!("{octet:02x}")).collect();
            octets.join(":")
        });
        (self == Link::Ethernet).then_some((source, destination))
    }

    /// Finds the IP packet or the MIH frame in a frame.
    ///
    /// # Errors
    /// The reason why neither was found.
    pub(crate) fn inside(self, frame: &[u8]) -> Result<Inside<'_>, Nothing> {
        walk(Next::Link(self), frame)
    }
}

/// Finds the IP packet or the MIH frame after an Ethertype.
pub(crate) fn behind_type(ethertype: u16, bytes: &[u8]) -> Result<Inside<'_>, Nothing> {
    walk(Next::Type(ethertype), bytes)
}

fn walk(mut next: Next, frame: &[u8]) -> Result<Inside<'_>, Nothing> {
    let mut bytes = frame;
    for _ in 0..LAYERS_MAX {
        if let Next::Type(ethertype @ (IPV4 | IPV6 | MIH)) = next {
            let inside = if ethertype == MIH { Inside::Mih(bytes) } else { Inside::Ip(bytes) };
            return Ok(inside);
        }
        let (behind, at) = match next {
            Next::Link(link) => header(link, bytes)?,
            Next::Type(ethertype) => typed(ethertype, bytes)?,
            Next::Ppp => ppp(bytes)?,
        };
        bytes = bytes.get(at..).ok_or_else(|| short(frame))?;
        next = behind;
    }
    Err(Nothing::Broken("more headers in front of a packet than are walked through".into()))
}

fn half(bytes: &[u8], at: usize) -> Result<u16, Nothing> {
    let two = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    two.map(|two| u16::from_be_bytes(*two)).ok_or_else(|| short(bytes))
}

/// The kind of header after a link-layer header, and its offset.
fn header(link: Link, frame: &[u8]) -> Result<(Next, usize), Nothing> {
    let little = |at: usize| half(frame, at).map(u16::swap_bytes);
    Ok(match link {
        Link::Raw(at) => (Next::Type(IPV6), at),
        Link::Ethernet => (Next::Type(half(frame, 12)?), 14),
        Link::Typed(ethertype_at, at) => (Next::Type(half(frame, ethertype_at)?), at),
        Link::Ppp(at) => (Next::Ppp, at),
        Link::Pppoe => (Next::Ppp, 6),
        Link::Llc(at) => (Next::Type(0), at),
        Link::Mpls => (Next::Type(0x8847), 0),
        Link::Wlan => wlan(frame, false)?,
        Link::Radiotap => {
            let length = usize::from(little(2)?);
            let behind = frame.get(length..).ok_or_else(|| short(frame))?;
            let (next, at) = wlan(behind, radiotap_pads(frame))?;
            (next, length + at)
        }
        Link::Prism => (Next::Link(Link::Wlan), usize::from(little(4)?)),
        Link::Avs => (Next::Link(Link::Wlan), usize::from(half(frame, 6)?)),
        Link::Ppi => {
            let number = little(4)?;
            let link = Link::of(number).ok_or_else(|| unknown(number))?;
            (Next::Link(link), usize::from(little(2)?))
        }
    })
}

/// The kind of header after the header of an Ethertype, and its offset.
fn typed(ethertype: u16, bytes: &[u8]) -> Result<(Next, usize), Nothing> {
    Ok(match ethertype {
        tag if TAGS.contains(&tag) => (Next::Type(half(bytes, 2)?), 4),
        ETHERNET => (Next::Link(Link::Ethernet), 0),
        // A PPPoE session.
        0x8864 => (Next::Link(Link::Pppoe), 0),
        PPP => (Next::Ppp, 0),
        // The service tag of a provider backbone bridge (IEEE 802.1ah), then the customer's frame.
        0x88e7 => (Next::Link(Link::Ethernet), 4),
        0x8847 | 0x8848 => {
            let last = bytes.chunks_exact(4).position(|label| label[2] & 1 != 0);
            let at = 4 * (last.ok_or_else(|| short(bytes))? + 1);
            match bytes.get(at).map(|byte| byte >> 4) {
                Some(4 | 6) => (Next::Type(IPV6), at),
                // The control word of a pseudowire.
                Some(0) => (Next::Link(Link::Ethernet), at + 4),
                None => return Err(short(bytes)),
                _ => return Err(Nothing::other("MPLS", "MPLS without an IP packet")),
            }
        }
        ..LENGTHS => match bytes {
            [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, ..] => (Next::Type(half(bytes, 6)?), 8),
            _ if bytes.len() < 8 => return Err(short(bytes)),
            _ => return Err(Nothing::other("IEEE 802.2", "a frame of IEEE 802.2 without IP")),
        },
        0x0806 => return Err(Nothing::other("ARP", "ARP")),
        other => {
            return Err(Nothing::other("other Ethertypes", &format!("ethertype {other:#06x}")));
        }
    })
}

/// The kind of header after a PPP protocol number, and its offset. Address and control fields may precede the number,
/// and it may be compressed to one byte.
fn ppp(bytes: &[u8]) -> Result<(Next, usize), Nothing> {
    if bytes.len() < 4 {
        return Err(short(bytes));
    }
    let at = if bytes.starts_with(&[0xff, 3]) { 2 } else { 0 };
    let (protocol, at) = match bytes.get(at) {
        Some(byte) if byte & 1 == 1 => (u16::from(*byte), at + 1),
        _ => (half(bytes, at)?, at + 2),
    };
    Ok(match protocol {
        0x0021 | 0x0057 => (Next::Type(IPV6), at),
        0x0281 => (Next::Type(0x8847), at),
        // Cisco's HDLC, which shares a link type with PPP.
        0x0f00 | 0x8f00 => (Next::Type(half(bytes, at)?), at + 2),
        other => return Err(Nothing::other("PPP", &format!("PPP protocol {other:#06x}"))),
    })
}

/// The kind of header after an IEEE 802.11 header, and its offset. If `pads`, the header is padded to a multiple of
/// four bytes.
fn wlan(frame: &[u8], pads: bool) -> Result<(Next, usize), Nothing> {
    let [control, flags, ..] = *frame else { return Err(short(frame)) };
    let (is_qos, is_protected) = (control & 0x80 != 0, flags & 0x40 != 0);
    // Only data frames with a body.
    if control & 0x4c != 0x08 {
        let what = "a frame of IEEE 802.11 without data";
        return Err(Nothing::other("IEEE 802.11 without data", what));
    }
    if is_protected {
        return Err(Nothing::other("IEEE 802.11, encrypted", "a frame of IEEE 802.11, encrypted"));
    }
    let mut length = if flags & 3 == 3 { 30 } else { 24 };
    let sequence = frame.get(22).ok_or_else(|| short(frame))?;
    let is_aggregate = is_qos && frame.get(length).is_some_and(|byte| byte & 0x80 != 0);
    if flags & 4 != 0 || sequence & 15 != 0 || is_aggregate {
        let what = "a fragment or an aggregate of IEEE 802.11";
        return Err(Nothing::other("parts of IEEE 802.11", what));
    }
    if is_qos {
        length += if flags & 0x80 == 0 { 2 } else { 6 };
    }
    Ok((Next::Type(0), if pads { length.next_multiple_of(4) } else { length }))
}

/// Whether a radiotap header says that the header after it is padded. That bit is in the flags field, which follows the
/// words of the presence bitmap and, if present, a timestamp (TSFT).
fn radiotap_pads(frame: &[u8]) -> bool {
    let words = frame.get(4..).unwrap_or_default().chunks_exact(4);
    let more = words.take_while(|word| word[3] & 0x80 != 0).count();
    let present = frame.get(4).copied().unwrap_or_default();
    let fields = 4 + 4 * (more + 1);
    let at = if present & 1 == 0 { fields } else { fields.next_multiple_of(8) + 8 };
    present & 2 != 0 && frame.get(at).is_some_and(|flags| flags & 0x20 != 0)
}

/// The result for a link type that we do not decode.
pub(crate) fn unknown(number: u16) -> Nothing {
    let what = format!("link type {number}");
    Nothing::other(&what, &what)
}

fn short(frame: &[u8]) -> Nothing {
    Nothing::Broken(format!("a frame of {} bytes has no packet in it", frame.len()))
}
