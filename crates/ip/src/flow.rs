//! Identifies the packets of one conversation.

use core::fmt;
use core::net::IpAddr;

/// The flow of an inner packet: addresses, ports, protocol and, where ports cannot be read
/// (fragments, ESP, unknown protocols), the IPv6 flow label.
///
/// The label is used only without ports: each direction of a connection chooses its own label, so a key with ports and
/// label could not be reversed, and the return path of a flow could not be learned from its packets. All fragments of a
/// packet have ports 0, so that they take one path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Inner source.
    pub src: IpAddr,
    /// Inner destination, of the same family.
    pub dst: IpAddr,
    /// Source port, or 0.
    pub sport: u16,
    /// Destination port, or 0.
    pub dport: u16,
    /// IP protocol (IPv6: the last next header that was read).
    pub protocol: u8,
    /// IPv6 flow label where the ports are unknown, else 0.
    pub label: u32,
}

impl FlowKey {
    /// The key of the other direction.
    #[must_use]
    pub fn reversed(&self) -> FlowKey {
        FlowKey { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport, ..*self }
    }
}

impl fmt::Display for FlowKey {
    /// `tcp 10.0.0.1:80 > 10.0.0.2:1024`, and `proto50 fd00::1 > fd00::2 label 0x12345`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            6 => f.write_str("tcp ")?,
            17 => f.write_str("udp ")?,
            1 | 58 => f.write_str("icmp ")?,
            other => write!(f, "proto{other} ")?,
        }
        end(f, self.src, self.sport)?;
        f.write_str(" > ")?;
        end(f, self.dst, self.dport)?;
        match self.label {
            0 => Ok(()),
            label => write!(f, " label {label:#x}"),
        }
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn end(f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16) -> fmt::Result {
    match (address, port) {
        (address, 0) => write!(f, "{address}"),
        (IpAddr::V4(address), port) => write!(f, "{address}:{port}"),
        (IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
    }
}
