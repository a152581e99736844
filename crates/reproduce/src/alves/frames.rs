//! Waits for frames at a device, and reports their kernel timestamps.

use segue_clock::Time;
use segue_linux::packet::PacketSocket;

use super::domain::Domain;

/// Offsets in an Ethernet frame with IPv6: the next header, and the message types after the IPv6 header.
pub(crate) const NEXT_HEADER: usize = 20;
pub(crate) const ICMP_TYPE: usize = 54;
const MH_TYPE: usize = 56;
pub(crate) const ICMPV6: u8 = 58;
const MOBILITY: u8 = 135;
pub(crate) const BINDING_UPDATE: u8 = 5;
pub(crate) const BINDING_ACKNOWLEDGEMENT: u8 = 6;

/// Returns true for the expected frame.
type Wanted = Box<dyn Fn(&[u8]) -> bool>;

/// A frame that is expected at a device.
pub(crate) struct Awaited {
    socket: PacketSocket,
    wanted: Wanted,
    /// When the first such frame arrived.
    pub at: Option<Time>,
}

impl Awaited {
    /// Starts to capture at a device of a node.
    pub(crate) fn at(
        domain: &Domain,
        node: &str,
        device: &str,
        wanted: impl Fn(&[u8]) -> bool + 'static,
    ) -> anyhow::Result<Awaited> {
        let socket = domain.node(node)?.run(|| PacketSocket::open(device))??;
        Ok(Awaited { socket, wanted: Box::new(wanted), at: None })
    }

    /// Processes the captured frames. Call often: kernel timestamps older than a second are replaced by the current
    /// time.
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
