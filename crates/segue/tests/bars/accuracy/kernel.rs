//! The in-kernel packet path of a host and an anchor, with probes on the bare wire.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_clock::Time;
use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::user::User;
use segue_datapath::{
    DatapathEvent, EventSink, LinuxDatapath, PathSetup, ProbeEvent, ProbeKind, ProbeOrder, Role,
    Setup,
};
use segue_lab::Lab;
use segue_linux::link::index_of;
use segue_wire::{Probe, ProbeKey, TUNNEL_PORT};

use super::Reported;
use super::capture::{CLIENT, DEVICES, NODES, SERVER};

const SLOT: u32 = 2;
const COOKIE: u64 = 0x5e9;

/// Creates the datapath of one end in the caller's namespace.
type Make = fn(&Setup, EventSink) -> Box<dyn LinuxDatapath>;

/// The reports of the eBPF programs for each of `count` exchanges.
///
/// XDP is off: a packet socket at the server's edge would not see the answers that XDP sends.
pub(super) fn by_programs(lab: &Lab, count: u32, interval: Duration) -> Reported {
    measure(lab, count, interval, |setup, sink| {
        let options = EbpfOptions { xdp: Xdp::Off, ..EbpfOptions::default() };
        Box::new(Ebpf::with_options(setup, sink, options).unwrap())
    })
}

/// The reports of the user-space datapath.
pub(super) fn by_user_space(lab: &Lab, count: u32, interval: Duration) -> Reported {
    measure(lab, count, interval, |setup, sink| Box::new(User::new(setup, sink).unwrap()))
}

fn measure(lab: &Lab, count: u32, interval: Duration, make: Make) -> Reported {
    let events: Arc<Mutex<Vec<ProbeEvent>>> = Arc::default();
    let roles = [Role::Host, Role::Anchor];
    let [mut host, mut anchor] = roles.map(|role| end(lab, role, make, &events));
    for seq in 1..=count {
        let probe = Probe { seq, t_ka_ms: 200, ..Probe::default() };
        let order = ProbeOrder::plain(SLOT, ProbeKind::Request, 7, probe);
        host.send_probes(&[order]).unwrap();
        std::thread::sleep(interval);
        host.heartbeat();
        anchor.heartbeat();
    }
    std::thread::sleep(Duration::from_millis(500));
    let events = events.lock().unwrap();
    let responses = events.iter().filter(|event| event.kind == ProbeKind::Response);
    let bound_us = |event: &ProbeEvent| Some(event.arrival.uncertainty.0 as f64 / 1e3);
    let rtts: Reported = responses
        .map(|event| (event.arrival.probe.seq, (rtt_us(event), bound_us(event))))
        .collect();
    // The programs store the reading of the last exchange for the daemon.
    if let Some(reading) = host.reading(SLOT) {
        let (kept, bound) = (reading.estimates.rtt_last.unwrap(), reading.estimates.uncertainty);
        let (_, (last, stated)) = rtts.last_key_value().unwrap();
        assert!((kept.0 as f64 / 1e3 - last).abs() < 0.5, "{kept:?} kept, {last} µs in the event");
        assert_eq!(Some(bound.0 as f64 / 1e3), *stated);
    }
    rtts
}

/// Paper 1, 4.1: t_Rc − t_Sc − Δt.
fn rtt_us(response: &ProbeEvent) -> f64 {
    let received = response.arrival.at.micros32();
    let probe = &response.arrival.probe;
    let sent = response.arrival.sent_at.map_or(probe.t_sc, Time::micros32);
    f64::from(received.wrapping_sub(sent).wrapping_sub(probe.dt) as i32)
}

fn end(
    lab: &Lab,
    role: Role,
    make: Make,
    events: &Arc<Mutex<Vec<ProbeEvent>>>,
) -> Box<dyn LinuxDatapath> {
    let is_host = role == Role::Host;
    let which = usize::from(!is_host);
    let node = lab.node(NODES[which]).unwrap();
    let setup = Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1400,
        port: TUNNEL_PORT,
        role,
        max_paths: 4,
        max_flows: 16,
        mark: 0,
    };
    let events = Arc::clone(events);
    let sink = Arc::new(move |event| {
        if let DatapathEvent::Probe(probe) = event {
            events.lock().unwrap().push(probe);
        }
    });
    node.run(|| {
        let ifindex = index_of(DEVICES[which]).unwrap();
        let mut datapath = make(&setup, sink);
        datapath.set_path(SLOT, &path(is_host, ifindex)).unwrap();
        datapath.attach(ifindex).unwrap();
        datapath
    })
    .unwrap()
}

fn path(is_host: bool, ifindex: u32) -> PathSetup {
    let at = |address| Some(SocketAddr::new(IpAddr::V4(address), TUNNEL_PORT));
    let (local, remote) = if is_host { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    PathSetup {
        tx_index: SLOT,
        tx_cookie: COOKIE,
        rx_cookie: COOKIE,
        key: ProbeKey([42; 16]),
        local: at(local),
        remote: at(remote),
        ifindex,
        gateway: None,
        owner: u32::from(!is_host),
        probing: segue_keepalive::Probing::default(),
    }
}
