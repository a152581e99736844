//! Sending the probes of many paths at once, against one send call for each.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::{Datapath, PathConfig, ProbeKind, ProbeOrder, Role, Setup};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;
use segue_wire::{Header, PacketType, Probe};

use crate::BenchError;
use crate::account::Meter;
use crate::error::system;
use crate::protocol::{FAR, GENERATOR_PORT, SERVICE_PORT, client, cookie, key, peer};
use crate::rows::{Quantity, Sending};
use crate::world::{Hook, World};

/// Periods of each run.
const ROUNDS: u32 = 4;
const PERIOD: Duration = Duration::from_millis(500);

/// Measures both; who goes first changes from run to run. The other end drops what arrives where it is
/// met first: frames at XDP, as a driver that takes frames wants it, socket buffers at TC.
pub(crate) fn measure(
    world: &World,
    meter: &Meter,
    paths: u32,
    runs: usize,
) -> Result<Sending, BenchError> {
    let mut host = world.near.run(|| host(world, paths))??;
    let mut plain = Plain::open(world, paths)?;
    let mut seq = 0;
    let mut each = [Vec::new(), Vec::new()];
    let mut arrived = [Vec::new(), Vec::new()];
    for run in 0..=runs {
        for i in [run % 2, (run + 1) % 2] {
            let _drop = world.attach_drop([Hook::Xdp, Hook::Tc][i])?;
            let (mut cpu, mut reached) = (0, 0);
            for _ in 0..ROUNDS {
                seq += 1;
                host.heartbeat();
                let orders = orders(paths, seq);
                world.programs.reset(true)?;
                let began = monotonic();
                let before = meter.read(&[]);
                match i {
                    0 => host.send_probes(&orders)?,
                    _ => plain.send(seq)?,
                }
                // What was put off is still to come.
                std::thread::sleep(Duration::from_millis(20));
                cpu += meter.read(&[]) - before;
                reached += world.programs.counts()?.dropped;
                let spent = Duration::from_nanos(monotonic().0 - began.0);
                std::thread::sleep(PERIOD.saturating_sub(spent) / 4);
            }
            // The first run warms up.
            if run > 0 {
                let probes = f64::from(ROUNDS * paths);
                each[i].push(cpu as f64 / 1e3 / probes);
                arrived[i].push(reached as f64 / probes);
            }
        }
    }
    let [batch, single] = each.map(|runs| Quantity::of(runs).unwrap_or_default());
    let [batch_arrived, single_arrived] =
        arrived.map(|runs| Quantity::of(runs).unwrap_or_default().median);
    Ok(Sending { paths, batch_us: batch, single_us: single, batch_arrived, single_arrived })
}

/// A host's datapath with all its paths.
fn host(world: &World, paths: u32) -> Result<Ebpf, BenchError> {
    let setup = Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1456,
        port: SERVICE_PORT,
        role: Role::Host,
        max_paths: paths,
        max_flows: 16,
        mark: 0,
    };
    let options = EbpfOptions { xdp: Xdp::Off, ..EbpfOptions::default() };
    let mut datapath = Ebpf::with_options(&setup, Arc::new(|_| ()), options)?;
    for slot in 0..paths {
        let path = PathConfig {
            tx_index: slot,
            tx_cookie: cookie(slot),
            rx_cookie: peer(slot).1,
            key: key(slot),
            local: Some(SocketAddr::from((client(0), SERVICE_PORT))),
            remote: Some(SocketAddr::from((FAR, SERVICE_PORT))),
            ifindex: world.near_ifindex,
            gateway: None,
            owner: 0,
            probing: Probing::default(),
        };
        datapath.set_path(slot, &path)?;
    }
    datapath.attach(world.near_ifindex)?;
    Ok(datapath)
}

fn probe(seq: u32) -> Probe {
    Probe { seq, sc: seq, heard: 1, t_ka_ms: 500, ..Probe::default() }
}

fn orders(paths: u32, seq: u32) -> Vec<ProbeOrder> {
    let order = |slot| ProbeOrder {
        slot,
        kind: ProbeKind::Request,
        k: 3,
        probe: probe(seq),
        held_since: 0,
        report: false,
    };
    (0..paths).map(order).collect()
}

/// The same packets from a socket.
struct Plain {
    socket: UdpSocket,
    paths: u32,
}

impl Plain {
    fn open(world: &World, paths: u32) -> Result<Plain, BenchError> {
        let socket = world.near.run(|| UdpSocket::bind((client(0), GENERATOR_PORT)))?;
        Ok(Plain { socket: socket.map_err(system("open a socket"))?, paths })
    }

    fn send(&mut self, seq: u32) -> Result<(), BenchError> {
        for slot in 0..self.paths {
            let header = Header {
                packet_type: PacketType::Request,
                flags: 0,
                k: 3,
                index: slot,
                cookie: cookie(slot),
            };
            let now_us = (monotonic().0 / 1000) as u32;
            let packet = Probe { t_sc: now_us, ..probe(seq) }.seal(&header, &key(slot));
            self.socket.send_to(&packet, (FAR, SERVICE_PORT)).map_err(system("send a probe"))?;
        }
        Ok(())
    }
}
