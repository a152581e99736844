//! Sending probes: what is stamped and counted at the instant of sending.

use std::sync::Arc;

use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_wire::header::flags::RESPONSE_UNSOLICITED;
use segue_wire::{DropReason, Header, PacketType, Probe};

use super::Drops;
use super::path::{self, Path, lock};
use crate::{ProbeKind, ProbeOrder};

/// An answer that is due.
pub struct Answer {
    pub path: Arc<Path>,
    /// K of the request, which is repeated.
    pub k: u8,
    /// The request's fields, and `r`.
    pub probe: Probe,
    /// t_Rs.
    pub received_at: Time,
}

/// Sends the answer to a request.
pub fn send_answer(answer: &Answer, drops: &Drops) {
    let received = answer.received_at.micros32();
    send(&answer.path, ProbeKind::Response, answer.k, drops, |ss, now, heard| Probe {
        t_ss: now,
        dt: now.wrapping_sub(received),
        ss,
        heard: heard.unwrap_or(0),
        ..answer.probe
    });
}

/// Sends a probe that the daemon ordered.
pub fn send_order(path: &Path, order: &ProbeOrder, drops: &Drops) {
    send(path, order.kind, order.k, drops, |sent, now, heard| {
        let dt = now.wrapping_sub(order.held_since);
        if order.kind == ProbeKind::Request {
            return Probe { t_sc: now, sc: sent, dt, ..order.probe };
        }
        let r = lock(&path.state.rx).packets;
        let heard = heard.unwrap_or(order.probe.heard);
        Probe { t_ss: now, ss: sent, dt, r, heard, ..order.probe }
    });
}

/// Sends one probe. `fill` completes it from the count of sent packets (itself included), the time in
/// microseconds and the path's `heard` word.
fn send(
    path: &Path,
    kind: ProbeKind,
    k: u8,
    drops: &Drops,
    fill: impl FnOnce(u32, u32, Option<u16>) -> Probe,
) {
    let Some((socket, endpoint)) = path.route() else {
        drops.add(DropReason::NoRemote, 1);
        return;
    };
    let (packet_type, flags) = match kind {
        ProbeKind::Request => (PacketType::Request, 0),
        ProbeKind::Response => (PacketType::Response, 0),
        ProbeKind::Unsolicited => (PacketType::Response, RESPONSE_UNSOLICITED),
    };
    let header = Header { packet_type, flags, k, ..path.data_header(0) };
    let mut tx = lock(&path.state.tx);
    let count = tx.packets.wrapping_add(1);
    let probe = fill(count, monotonic().micros32(), tx.heard);
    let mut packet = probe.seal(&header, &path.config.key);
    let mut iov = [libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() }];
    match socket.send(&endpoint, &mut iov, None, 0, kind == ProbeKind::Request) {
        Ok(()) => tx.packets = count,
        Err(error) => {
            tracing::debug!(slot = path.slot, %error, "probe not sent");
            drops.add(path::reason(&error), 1);
        }
    }
}
