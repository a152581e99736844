//! Frames that are waited for at a device, by the kernel's stamps.

use segue_clock::Time;
use segue_linux::packet::PacketSocket;

use super::domain::Domain;

/// Where frames say what they carry: behind Ethernet in the IPv6 header, and in what follows that.
pub(crate) const NEXT_HEADER: usize = 20;
pub(crate) const ICMP_TYPE: usize = 54;
const MH_TYPE: usize = 56;
pub(crate) const ICMPV6: u8 = 58;
const MOBILITY: u8 = 135;
pub(crate) const BINDING_UPDATE: u8 = 5;
pub(crate) const BINDING_ACKNOWLEDGEMENT: u8 = 6;

/// Says whether a frame is the one.
type Wanted = Box<dyn Fn(&[u8]) -> bool>;

/// A frame that is to come over a device.
pub(crate) struct Awaited {
    socket: PacketSocket,
    wanted: Wanted,
    /// When the first one came.
    pub at: Option<Time>,
}

impl Awaited {
    /// At a device of a node, from now on.
    pub(crate) fn at(
        domain: &Domain,
        node: &str,
        device: &str,
        wanted: impl Fn(&[u8]) -> bool + 'static,
    ) -> anyhow::Result<Awaited> {
        let socket = domain.node(node)?.run(|| PacketSocket::open(device))??;
        Ok(Awaited { socket, wanted: Box::new(wanted), at: None })
    }

    /// Takes what has come. To be called often: the kernel's stamps are believed for a second.
    pub(crate) fn look(&mut self) -> anyhow::Result<()> {
        let mut frame = [0; 2_048];
        while let Some(received) = self.socket.receive(&mut frame)? {
            let bytes = &frame[..received.len.min(frame.len())];
            let is_ipv6 = bytes.len() > MH_TYPE && bytes[12..14] == [0x86, 0xdd];
            if self.at.is_none() && is_ipv6 && (self.wanted)(bytes) {
                self.at = Some(received.at);
            }
        }
        Ok(())
    }
}

pub(crate) fn is_mobility(frame: &[u8], kind: u8) -> bool {
    frame[NEXT_HEADER] == MOBILITY && frame[MH_TYPE] == kind
}
