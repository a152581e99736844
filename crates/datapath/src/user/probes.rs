//! Sending probes: stamps and counts at the instant of sending.

use std::sync::Arc;

use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_wire::header::flags::{
    REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION, RESPONSE_UNSOLICITED,
};
use segue_wire::{DropReason, Header, PacketType, Probe, Size};

use super::path::{Path, Tx};
use super::rides::{Pending, Waiting};
use super::socket::Endpoint;
use crate::drops::{Drops, reason};
use crate::sync::lock;
use crate::{ProbeKind, ProbeOrder, Role};

/// An answer to send.
pub(super) struct Answer {
    pub path: Arc<Path>,
    pub response: Pending,
}

/// Sends the answer to a request, or holds it for a ride.
pub(super) fn send_answer(answer: Answer, drops: &Drops, waiting: &Waiting) {
    let Answer { path, response } = answer;
    let probing = &path.config.probing;
    // The sender of a question waits for its answer, and rides always count.
    let waits = probing.rides && !response.question && (response.rode || !probing.follows_use);
    let at_once = if waits { path.hold(response, waiting) } else { vec![response] };
    at_once.iter().for_each(|response| send_response(&path, response, drops));
}

/// Sends a response on its own.
pub(super) fn send_response(path: &Path, response: &Pending, drops: &Drops) {
    let to = response.elsewhere.map(|(endpoint, _)| endpoint);
    let head = Head { k: response.k, report: false, question: response.question, age: 0 };
    send(path, to, ProbeKind::Response, head, drops, |tx, ss, now| {
        response.complete(ss, now, tx.heard)
    });
}

/// Sends a probe that the daemon ordered.
pub(super) fn send_order(path: &Path, order: &ProbeOrder, drops: &Drops) {
    let ProbeOrder { k, report, question, age, .. } = *order;
    let head = Head { k, report, question, age };
    send(path, None, order.kind, head, drops, |tx, sent, now| {
        if order.kind == ProbeKind::Request && path.config.probing.rides {
            let Probe { heard, t_ka_ms, ss, r, .. } = order.probe;
            let request = Probe { heard, t_ka_ms, ..path.request(tx, sent, now) };
            return if order.report { Probe { ss, r, ..request } } else { request };
        }
        let now = now.micros32();
        let dt = now.wrapping_sub(order.held_since);
        if order.kind == ProbeKind::Request {
            return Probe { t_sc: now, sc: sent, dt, ..order.probe };
        }
        let r = lock(&path.state.rx).packets;
        let heard = tx.heard.unwrap_or(order.probe.heard);
        Probe { t_ss: now, ss: sent, dt, r, heard, ..order.probe }
    });
}

/// Sends a packet size test, or the answer to one, with this traffic class. A packet that the interface refuses
/// counts as lost, like one that the network drops.
pub(super) fn send_size(path: &Path, size: Size, class: u8) {
    let Some((socket, endpoint)) = path.route().filter(|_| !path.is_upmt()) else { return };
    let header = Header { packet_type: PacketType::Size, age: 0, ..path.data_header(0) };
    let mut packet = Vec::new();
    size.seal(&header, &path.config.key, &mut packet);
    let mut iov = [libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() }];
    if let Err(error) = socket.send(&endpoint, &mut iov, None, class, false) {
        tracing::debug!(slot = path.slot, size = size.size, %error, "size not tested");
    }
}

/// Fields of a probe's header.
struct Head {
    k: u8,
    /// A request: it is a report.
    report: bool,
    /// A request that is a question, or a response that answers one: the packet does not count.
    question: bool,
    /// Age stated by a request.
    age: u8,
}

/// Sends one probe, to the path's endpoint unless another is given. `fill` completes it from the sending side, the
/// count of sent packets (including this one if it counts) and the time.
fn send(
    path: &Path,
    to: Option<Endpoint>,
    kind: ProbeKind,
    head: Head,
    drops: &Drops,
    fill: impl FnOnce(&Tx, u32, Time) -> Probe,
) {
    let Some((socket, endpoint)) = to.map_or_else(|| path.route(), |to| path.route_to(to)) else {
        drops.add(DropReason::NoRemote, 1);
        return;
    };
    let Head { k, report, age, .. } = head;
    // UPMT's packets have no field for questions; their paths have fixed K and T_KA, and no questions.
    let question = head.question && kind != ProbeKind::Unsolicited && !path.is_upmt();
    let mark = |flag: u8, set: bool| if set { flag } else { 0 };
    let (packet_type, flags) = match kind {
        ProbeKind::Request => {
            (PacketType::Request, mark(REQUEST_REPORT, report) | mark(REQUEST_QUESTION, question))
        }
        ProbeKind::Response => (PacketType::Response, mark(RESPONSE_QUESTION, question)),
        ProbeKind::Unsolicited => (PacketType::Response, RESPONSE_UNSOLICITED),
    };
    let age = if kind == ProbeKind::Request { age } else { 0 };
    let header = Header { packet_type, flags, k, age, ..path.data_header(0) };
    let mut tx = lock(&path.state.tx);
    let (count, now) = (tx.packets.wrapping_add(u32::from(!question)), monotonic());
    let probe = fill(&tx, count, now);
    if kind == ProbeKind::Request {
        path.state.number(probe.seq);
    }
    let sealed = probe.seal(&header, &path.config.key);
    let upmt = path.is_upmt().then(|| path.upmt_probe(kind, report, probe));
    let packet = match &upmt {
        None => &sealed[..],
        Some(Some(packet)) => packet,
        Some(None) => {
            drops.add(DropReason::NoRemote, 1);
            return;
        }
    };
    let mut iov =
        [libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() }];
    if let Err(error) = socket.send(&endpoint, &mut iov, None, 0, kind == ProbeKind::Request) {
        tracing::debug!(slot = path.slot, %error, "probe not sent");
        drops.add(reason(&error), 1);
        return;
    }
    tx.packets = count;
    let took = monotonic().since(now);
    match kind {
        ProbeKind::Request => lock(&path.state.rx).called(probe.seq, took),
        ProbeKind::Response => lock(&path.state.rx).called(probe.t_ss, took),
        ProbeKind::Unsolicited => {}
    }
    match kind {
        ProbeKind::Request => {
            tx.heard = Some(probe.heard);
            tx.rides.sent_alone(now, Role::Host);
        }
        ProbeKind::Response => tx.rides.sent_alone(now, Role::Anchor),
        ProbeKind::Unsolicited => {}
    }
}
