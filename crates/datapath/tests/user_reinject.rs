//! Data lost on a path that died is sent again over another path, in user space. Needs root; otherwise prints a note
//! and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod reinjection;
mod user_lab;

use segue_datapath::{Datapath, PathSetup};
use segue_keepalive::Probing;
use segue_linux::link;
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, End, HOST_COOKIE, HOST_DEVICE, HOST_SLOT, Lab, Offloads,
    anchor_config, host_config, inner, skipped,
};

#[test]
fn what_left_on_a_dead_path_arrives_over_another() {
    if skipped() {
        return;
    }
    for (offloads, v6) in
        [(Offloads::Whole, false), (Offloads::NoGso, true), (Offloads::NoChecksum, false)]
    {
        let lab = lab(offloads);
        let cut = |from_host, dead| match from_host {
            true => misdirect(&lab.host, HOST_SLOT, dead),
            false => misdirect(&lab.anchor, ANCHOR_SLOT, dead),
        };
        let tunnel = reinjection::Tunnel {
            host: end(&lab.host, HOST_SLOT, inner(v6, 1)),
            anchor: end(&lab.anchor, ANCHOR_SLOT, inner(v6, 2)),
            cut: &cut,
        };
        tunnel.seldom();
        tunnel.stream();
    }
}

fn end(end: &End, slot: u32, inner: std::net::IpAddr) -> reinjection::End<'_> {
    reinjection::End { ns: &end.ns, datapath: &*end.user, slots: [slot, slot + 1], inner }
}

/// A second path in addition to the first, over the same wire; both with detection that follows use.
fn lab(offloads: Offloads) -> Lab {
    let lab = Lab::new(false, offloads);
    let probing = Probing { follows_use: true, ..Probing::default() };
    lab.probe_as(probing, probing);
    let ifindex = lab.host.ns.run(|| link::index_of(HOST_DEVICE).unwrap()).unwrap();
    let host = PathSetup {
        tx_index: ANCHOR_SLOT + 1,
        tx_cookie: ANCHOR_COOKIE + 1,
        rx_cookie: HOST_COOKIE + 1,
        ifindex,
        probing,
        ..host_config(false)
    };
    lab.set_host_path(HOST_SLOT + 1, &host);
    let anchor = PathSetup {
        tx_index: HOST_SLOT + 1,
        tx_cookie: host.rx_cookie,
        rx_cookie: host.tx_cookie,
        local: host.remote,
        remote: host.local,
        probing,
        ..anchor_config()
    };
    lab.anchor.with(|u| u.set_path(ANCHOR_SLOT + 1, &anchor).unwrap());
    lab
}

/// Gives the packets of a path an index that the other end does not know, or the correct one again.
fn misdirect(sender: &End, slot: u32, wrong: bool) {
    let ifindex = sender.ns.run(|| link::index_of(HOST_DEVICE).unwrap_or(0)).unwrap();
    let own = if slot == HOST_SLOT { host_config(false) } else { anchor_config() };
    let tx_index = if wrong { 15 } else { own.tx_index };
    let probing = Probing { follows_use: true, ..Probing::default() };
    let config = PathSetup { ifindex, tx_index, probing, ..own };
    sender.ns.run(|| sender.with(|u| u.set_path(slot, &config).unwrap())).unwrap();
}
