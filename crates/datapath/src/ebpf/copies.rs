//! Sends the programs' copies of sent data a second time.

use segue_clock::Time;
use segue_keepalive::is_stale;
use segue_wire::flow::Inner;

use super::Ebpf;
use super::convert::{PATH_FOLLOWS_USE, PATH_ONE_WAY, PATH_VIA};
use super::skel::path_config;
use crate::user::segment::VnetHeader;
use crate::{DatapathError, Reinjection, copies};

/// The programs' clock for data may lag by one tick of a kernel with a low tick rate.
const COARSE_NS: u64 = 10_000_000;

impl Ebpf {
    /// Makes the programs start or stop copying the data sent on a path.
    pub(super) fn copy(&self, slot: u32, flags: u8) {
        if flags & PATH_FOLLOWS_USE != 0 {
            self.shore.tables.keep_copies(slot);
        } else {
            self.shore.tables.drop_copies(slot);
        }
    }

    /// Sends the copies of a path's data that have not been sent a second time yet; returns how many.
    pub(super) fn send_copies(&mut self, order: Reinjection) -> Result<usize, DatapathError> {
        let owner = |slot| self.paths.get(&slot).map(|path| path.config.owner);
        if owner(order.slot).is_none() || owner(order.slot) != owner(order.over) {
            return Err(DatapathError::NoPath { slot: order.over });
        }
        let Some(path) = self.paths.get_mut(&order.slot) else { return Ok(0) };
        let Some(kept) = self.shore.tables.copies(order.slot) else { return Ok(0) };
        let mut found: Vec<(u32, Vec<u8>)> = Vec::new();
        for copy in &kept.copy {
            let age = kept.next.wrapping_sub(copy.number);
            let new = copy.number.wrapping_sub(path.reinjected) as i32 >= 0;
            let fits = copy.at_ns > 0 && copy.at_ns + COARSE_NS > order.since.0;
            let bytes = copy.bytes.get(..usize::from(copy.len)).unwrap_or_default();
            if !new || !fits {
                continue;
            }
            let Ok(packet) = copies::again(bytes, copy.gso_size) else { continue };
            let key = |packet: &[u8]| Some(Inner::parse(packet.get(VnetHeader::LEN..)?).ok()?.key);
            let last_seen = key(&packet).and_then(|key| self.shore.tables.last_seen(&key));
            if !is_stale(Time(copy.at_ns), last_seen) {
                found.push((age, packet));
            }
        }
        path.reinjected = kept.next;
        if found.is_empty() {
            return Ok(0);
        }
        found.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        let packets: Vec<Vec<u8>> = found.into_iter().map(|(_, packet)| packet).collect();
        // PATH_ONE_WAY makes packets whose flow stays bound to this path take the other one. They have left when the
        // call returns; a packet marked later could belong to a flow that moved here from the other path.
        let stays = path.config.flags & PATH_VIA == 0;
        if stays {
            let over = path_config {
                flags: path.config.flags | PATH_ONE_WAY,
                via_slot: order.over,
                ..path.config
            };
            self.shore.tables.set_path(order.slot, &over)?;
        }
        self.shore.reinject(&packets);
        if stays {
            self.shore.tables.set_path(order.slot, &path.config)?;
        }
        Ok(packets.len())
    }
}
