//! Decapsulation in user space without a device or sockets, for tests that feed it arbitrary packets.

use std::ops::Range;

use segue_ip::{Source, Tunnel};
use segue_wire::DropReason;

use super::user::state::State;
use crate::user::segment::VnetHeader;

/// A fixed set of tunnels and inner sources.
pub struct DryRun(State);

impl DryRun {
    /// A relay's state with these tunnels and sources.
    #[must_use]
    pub fn new(tunnels: &[Tunnel], sources: &[Source]) -> DryRun {
        let mut state = State::default();
        for (tunnel, slot) in tunnels.iter().zip(0..) {
            state.set_tunnel(slot, tunnel, None, None);
        }
        sources.iter().for_each(|source| state.allow(source));
        DryRun(state)
    }

    /// Decapsulates an IP packet. Returns the tunnel's index in the list, the virtio header that says how to segment
    /// the inner packet, and the range of the inner packet. `None` if the packet belongs to no tunnel.
    ///
    /// # Errors
    /// The reason why the packet is refused.
    pub fn take_out(
        &self,
        vnet: VnetHeader,
        packet: &mut [u8],
    ) -> Result<Option<(u32, VnetHeader, Range<usize>)>, DropReason> {
        let opened = self.0.take_out(vnet, packet)?;
        Ok(opened.map(|opened| (opened.slot, opened.vnet, opened.inner)))
    }
}
