//! Compares sending the probes of many paths in a batch with one send call for each.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, ProbeKind, ProbeOrder, Role, Setup};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;
use segue_wire::{Header, PacketType, Probe};

use crate::BenchError;
use crate::account::Meter;
use crate::error::system;
use crate::protocol::{FAR, GENERATOR_PORT, SERVICE_PORT, client, cookie, key, peer};
use crate::rows::{Quantity, Sending};
use crate::world::{Hook, World};

/// Periods per run.
const ROUNDS: u32 = 4;
const PERIOD: Duration = Duration::from_millis(500);
/// Time allowed for deferred work.
const SETTLE: Duration = Duration::from_millis(20);

/// Measures both, in alternating order. The other end drops packets at the first hook: frames at XDP, as a driver that
/// accepts frames requires, socket buffers at TC. The cost of receiving is subtracted, because normally another machine
/// bears it.
pub(crate) fn measure(
    world: &World,
    meter: &Meter,
    paths: u32,
    runs: usize,
) -> Result<Sending, BenchError> {
    let host = world.near.run(|| host(world, paths))??;
    let mut senders = [Sender::Batch(Box::new(host)), Sender::Single(Plain::open(world)?)];
    let mut found: [Vec<Figures>; 2] = Default::default();
    let mut seq = 0;
    for run in 0..=runs {
        for i in [run % 2, (run + 1) % 2] {
            let _drop = world.attach_drop(senders[i].hook())?;
            let figures = one_run(world, meter, &mut senders[i], paths, &mut seq)?;
            // The first run is a warm-up.
            if run > 0 {
                found[i].push(figures);
            }
        }
    }
    let of = |runs: &[Figures], each: fn(&Figures) -> f64| {
        Quantity::of(runs.iter().map(each).collect()).unwrap_or_default()
    };
    let [batch, single] = found.each_ref().map(Vec::as_slice);
    Ok(Sending {
        paths,
        batch_us: of(batch, |f| f.all_us - f.receiving_us),
        single_us: of(single, |f| f.all_us - f.receiving_us),
        batch_receiving_us: of(batch, |f| f.receiving_us).median,
        single_receiving_us: of(single, |f| f.receiving_us).median,
        batch_arrived: of(batch, |f| f.arrived).median,
        single_arrived: of(single, |f| f.arrived).median,
    })
}

/// One run's figures per probe.
struct Figures {
    /// Processor time of both ends.
    all_us: f64,
    /// Processor time of the other end, measured in separate rounds because the measurement itself takes time.
    receiving_us: f64,
    arrived: f64,
}

fn one_run(
    world: &World,
    meter: &Meter,
    sender: &mut Sender,
    paths: u32,
    seq: &mut u32,
) -> Result<Figures, BenchError> {
    let (mut cpu_ns, mut received_ns, mut reached) = (0, 0, 0);
    for round in 0..2 * ROUNDS {
        *seq += 1;
        let orders = orders(paths, *seq);
        world.programs.reset(true)?;
        let began = monotonic();
        if round % 2 == 0 {
            let before = meter.read(&[]);
            sender.send(&orders)?;
            // Wait for deferred work.
            std::thread::sleep(SETTLE);
            cpu_ns += meter.read(&[]) - before;
            reached += world.programs.counts()?.dropped;
        } else {
            let watch = world.programs.watch_receiving()?;
            sender.send(&orders)?;
            std::thread::sleep(SETTLE);
            received_ns += watch.spent_ns()?;
        }
        let spent = Duration::from_nanos(monotonic().0 - began.0);
        std::thread::sleep(PERIOD.saturating_sub(spent) / 4);
    }
    let probes = f64::from(ROUNDS * paths);
    Ok(Figures {
        all_us: cpu_ns as f64 / 1e3 / probes,
        receiving_us: received_ns as f64 / 1e3 / probes,
        arrived: reached as f64 / probes,
    })
}

/// How to send the probes of all paths.
enum Sender {
    Batch(Box<Ebpf>),
    Single(Plain),
}

impl Sender {
    fn hook(&self) -> Hook {
        match self {
            Sender::Batch(_) => Hook::Xdp,
            Sender::Single(_) => Hook::Tc,
        }
    }

    fn send(&mut self, orders: &[ProbeOrder]) -> Result<(), BenchError> {
        match self {
            Sender::Batch(host) => {
                host.heartbeat();
                Ok(host.send_probes(orders)?)
            }
            Sender::Single(plain) => plain.send(orders),
        }
    }
}

/// The datapath of a host with all its paths.
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
        let path = PathSetup {
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
    let order = |slot| ProbeOrder::plain(slot, ProbeKind::Request, 3, probe(seq));
    (0..paths).map(order).collect()
}

/// Sends the same packets from a socket.
struct Plain {
    socket: UdpSocket,
}

impl Plain {
    fn open(world: &World) -> Result<Plain, BenchError> {
        let socket = world.near.run(|| UdpSocket::bind((client(0), GENERATOR_PORT)))?;
        Ok(Plain { socket: socket.map_err(system("open a socket"))? })
    }

    fn send(&mut self, orders: &[ProbeOrder]) -> Result<(), BenchError> {
        for ProbeOrder { slot, k, probe, .. } in orders {
            let slot = *slot;
            let header = Header::new(PacketType::Request, *k, slot, cookie(slot));
            let now_us = (monotonic().0 / 1000) as u32;
            let packet = Probe { t_sc: now_us, ..*probe }.seal(&header, &key(slot));
            self.socket.send_to(&packet, (FAR, SERVICE_PORT)).map_err(system("send a probe"))?;
        }
        Ok(())
    }
}
