//! Taking packets out of tunnels in user space, without device and sockets: for tests that feed it anything.

use std::ops::Range;

use segue_ip::{Source, Tunnel};
use segue_wire::DropReason;

use super::user::state::State;
use crate::user::segment::VnetHeader;

/// Tunnels and inner sources, set once.
pub struct DryRun(State);

impl DryRun {
    /// The relay's state with these.
    #[must_use]
    pub fn new(tunnels: &[Tunnel], sources: &[Source]) -> DryRun {
        let mut state = State::default();
        for (tunnel, slot) in tunnels.iter().zip(0..) {
            state.set_tunnel(slot, tunnel, None, None);
        }
        sources.iter().for_each(|source| state.allow(source));
        DryRun(state)
    }

    /// Takes an IP packet out of its tunnel: the place of this one in the list, how the inner packet is to be cut and where
    /// it is. `None` if it is no tunnel's.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take_out(
        &self,
        vnet: VnetHeader,
        packet: &mut [u8],
    ) -> Result<Option<(u32, VnetHeader, Range<usize>)>, DropReason> {
        let opened = self.0.take_out(vnet, packet)?;
        Ok(opened.map(|opened| (opened.slot, opened.vnet, opened.inner)))
    }
}
