//! The configured paths, and what they share.

use std::io;
use std::net::SocketAddr;

use segue_keepalive::Tau;
use segue_wire::Mode;

use super::Ebpf;
use super::convert::{PATH_RIDES, kernel_scale};
use super::outage::Outage;
use super::reading::Totals;
use super::skel::{path_config, path_state};
use crate::maps::unmapped;
use crate::{DatapathError, Role};

/// `SCALES_MAX` of segue.bpf.h.
pub(super) const SCALES_MAX: usize = 64;

/// A configured path.
pub(super) struct Path {
    pub(super) config: path_config,
    /// The remote end; `None` at an anchor, which learns it.
    pub(super) remote: Option<SocketAddr>,
    pub(super) taus: [Tau; 2],
    pub(super) mode: Mode,
    pub(super) totals: Totals,
    pub(super) outage: Outage,
    /// Copies with lower numbers were sent a second time, or were too old.
    pub(super) reinjected: u32,
}

impl Ebpf {
    /// The current destination of a path's packets.
    pub(super) fn remote(&self, slot: u32, state: &path_state) -> Option<SocketAddr> {
        let learned = &state.endpoint;
        let learned = (learned.local != 0)
            .then(|| SocketAddr::new(unmapped(learned.remote), u16::from_be(learned.remote_port)));
        learned.or(self.paths.get(&slot)?.remote)
    }

    /// The index of a set of time constants; a new set is added to the table.
    pub(super) fn scale(&mut self, taus: [Tau; 2]) -> Result<u8, DatapathError> {
        if let Some(entry) = self.scales.iter().position(|known| *known == taus) {
            return Ok(entry as u8);
        }
        let unused = |known: &[Tau; 2]| self.paths.values().all(|path| path.taus != *known);
        let entry = match self.scales.len() {
            SCALES_MAX => self.scales.iter().position(unused).ok_or_else(|| {
                let source = io::ErrorKind::OutOfMemory.into();
                DatapathError::Kernel { what: "keep more than 64 sets of time constants", source }
            })?,
            len => len,
        };
        self.shore.tables.set_scale(entry as u32, &kernel_scale(&taus))?;
        match self.scales.get_mut(entry) {
            Some(known) => *known = taus,
            None => self.scales.push(taus),
        }
        Ok(entry as u8)
    }

    /// Updates the counts of T_KA of paths with rides: `new` replaces `old`.
    pub(super) fn count_riding(&mut self, old: Option<&path_config>, new: Option<&path_config>) {
        let rides = |path: &&path_config| path.flags & PATH_RIDES != 0;
        if let Some(path) = old.filter(rides)
            && let Some(count) = self.riding.get_mut(&path.t_ka_us)
        {
            *count -= 1;
            if *count == 0 {
                self.riding.remove(&path.t_ka_us);
            }
        }
        if let Some(path) = new.filter(rides) {
            *self.riding.entry(path.t_ka_us).or_default() += 1;
        }
    }

    /// Starts a path. It is switched off first, so that nothing counts while the counters are
    /// cleared.
    pub(super) fn clear(&self, slot: u32, state: &path_state) -> Result<(), DatapathError> {
        self.shore.tables.set_path(slot, &path_config::default())?;
        self.shore.tables.drop_copies(slot);
        if self.shore.role == Role::Host {
            self.shore.tables.clear_host(slot)?;
        }
        self.shore.tables.set_state(slot, state)
    }
}

/// True if both configurations are of the same path.
pub(super) fn same_cookies(a: &path_config, b: &path_config) -> bool {
    (a.tx_cookie, a.rx_cookie) == (b.tx_cookie, b.rx_cookie)
}
