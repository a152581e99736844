//! Opens a daemon's datapath, and queues packets for its machine.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context as TaskContext;

use anyhow::Context;
use segue_datapath::ebpf::{Ebpf, EbpfOptions};
use segue_datapath::user::User;
use segue_datapath::{
    DatapathError, DatapathEvent, EventSink, Kind, LinuxDatapath, MissPacket, ProbeEvent, Setup,
};
use segue_keepalive::MeasuredBy;
use segue_linux::clock::monotonic;
use segue_linux::thread::{self, Precision};
use segue_tunnel::Failure;
use segue_wire::DropReason;
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::shares::Shares;
use super::trouble::Trouble;
use super::turns;
use crate::settings::{Choice, Tunnel};

/// Firewall mark of everything that a daemon sends outside the tunnel.
pub const MARK: u32 = 0x5e60;
/// Probes that may be queued for the daemon; further ones are dropped.
const PROBES: usize = 65_536;
/// Packets without a binding that may be queued for the daemon; further ones are dropped. The separate queue keeps a
/// flood of new flows from displacing probes. It holds the full shares of 64 hosts (`datapath/src/misses.rs`).
const MISSES: usize = 16_384;
/// Paths that may be queued for the daemon's attention ([`DatapathEvent::Look`] and the like); further ones are
/// dropped. A path is reported when its rides end, at most once in two periods, and whenever data follow a silence of
/// [`segue_keepalive::SILENCE`].
const NOTES: usize = 1_024;
/// Most probes that the daemon takes in a turn.
const PROBES_A_TURN: usize = 256;
/// Most such paths that the daemon takes in a turn.
const NOTES_A_TURN: usize = 64;
/// Most packets without a binding that the daemon takes in a turn.
const MISSES_A_TURN: usize = 64;

/// An open datapath.
pub struct Opened {
    /// The datapath.
    pub datapath: Box<dyn LinuxDatapath>,
    /// The queue of its events.
    pub events: Packets,
    /// On an anchor: the owner of the path in each slot.
    pub shares: Shares,
    /// Number of its events that were dropped.
    pub shed: Shed,
    /// Keeps other programs off the tunnels' port if the datapath has no socket on it.
    pub reserved: Option<UdpSocket>,
}

/// Opens the datapath in the current network namespace. If `settings` ask for it and the system allows it, the calling
/// thread and the thread that takes the programs' events get real-time scheduling; threads that carry packets in user
/// space keep ordinary scheduling. `options` are for eBPF.
pub fn open(settings: &Tunnel, setup: &Setup, options: EbpfOptions) -> anyhow::Result<Opened> {
    let (choice, realtime) = (settings.datapath, settings.realtime);
    let reserved = reserve(setup.port)?;
    let (sink, events, shares) = queue(setup.max_paths);
    let shed = Arc::clone(&events.shed);
    if choice != Choice::User {
        // Threads inherit the scheduling of the one that starts them.
        prefer(realtime);
        match Ebpf::with_options(setup, sink.clone(), options) {
            Ok(ebpf) => {
                let datapath: Box<dyn LinuxDatapath> = Box::new(ebpf);
                info!("datapath: {}", kind_name(datapath.kind()));
                return Ok(Opened { datapath, events, shares, shed, reserved: Some(reserved) });
            }
            // User space would find it taken, too.
            Err(error @ DatapathError::Taken { .. }) => return Err(error.into()),
            Err(error) if choice == Choice::Ebpf => {
                return Err(error).context("the eBPF datapath cannot be had here");
            }
            Err(error) => warn!("datapath: eBPF cannot be had ({error}), taking user space"),
        }
        thread::ordinary();
    }
    // The sockets of this datapath bind the port themselves, one per path.
    drop(reserved);
    let user = match User::new(setup, sink) {
        Err(error @ DatapathError::Taken { .. }) => return Err(error.into()),
        user => user.context("the tunnel device cannot be set up")?,
    };
    info!("datapath: user space");
    prefer(realtime);
    Ok(Opened { datapath: Box::new(user), events, shares, shed, reserved: None })
}

fn prefer(realtime: bool) {
    if realtime && thread::prefer_precision() == Precision::Ordinary {
        info!("the system allows no better scheduling: a busy machine delays probes");
    }
}

/// Events of the datapath's threads that the daemon has not taken yet.
pub struct Packets {
    probes: mpsc::Receiver<ProbeEvent>,
    misses: mpsc::Receiver<MissPacket>,
    notes: mpsc::Receiver<DatapathEvent>,
    shed: Shed,
}

/// Number of events dropped because the queue was full, or a path or host exceeded its share.
pub type Shed = Arc<AtomicU64>;

impl Packets {
    /// Takes one turn's batch of each kind; wakes the task if more remain.
    pub fn take(&mut self, context: &mut TaskContext<'_>, mut into: impl FnMut(DatapathEvent)) {
        turns::take(&mut self.probes, PROBES_A_TURN, context, |probe| {
            into(DatapathEvent::Probe(probe))
        });
        turns::take(&mut self.notes, NOTES_A_TURN, context, &mut into);
        turns::take(&mut self.misses, MISSES_A_TURN, context, |miss| {
            into(DatapathEvent::Miss(miss))
        });
    }

    /// Takes the probes that are queued at this moment.
    pub fn waiting(&mut self) -> Vec<ProbeEvent> {
        let n = self.probes.len();
        std::iter::from_fn(|| self.probes.try_recv().ok()).take(n).collect()
    }
}

/// The queue and its producer. Each path and each host has a share of the events, so that one host's flood of valid
/// probes costs other hosts none.
fn queue(max_paths: u32) -> (EventSink, Packets, Shares) {
    let (probe_in, probes) = mpsc::channel(PROBES);
    let (miss_in, misses) = mpsc::channel(MISSES);
    let (note_in, notes) = mpsc::channel(NOTES);
    let shed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&shed);
    let (shares, within) = Shares::new(max_paths);
    let sink: EventSink = Arc::new(move |event| {
        let taken = match event {
            DatapathEvent::Probe(probe) => {
                within(probe.slot, probe.arrival.at) && probe_in.try_send(probe).is_ok()
            }
            DatapathEvent::Miss(miss) => miss_in.try_send(miss).is_ok(),
            DatapathEvent::Look(_) | DatapathEvent::Uncut(_) | DatapathEvent::Size(..) => {
                note_in.try_send(event).is_ok()
            }
        };
        if !taken {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (sink, Packets { probes, misses, notes, shed }, shares)
}

/// Binds the tunnels' port in both families, so that two programs never share it by accident.
fn reserve(port: u16) -> anyhow::Result<UdpSocket> {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
    .with_context(|| format!("cannot use UDP port {port} for tunnels; set another port"))
}

/// Dropped packets by reason: the datapath's, and those that did not fit into the queue.
pub fn drops(datapath: &mut dyn LinuxDatapath, shed: &Shed) -> BTreeMap<String, u64> {
    let mut drops = datapath.drops();
    let shed = shed.load(Ordering::Relaxed);
    if shed > 0 {
        *drops.entry(DropReason::QueueFull).or_default() += shed;
    }
    drops.into_iter().map(|(reason, n)| (reason.name().to_owned(), n)).collect()
}

/// The name of a datapath in output.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Ebpf { xdp: true } => "ebpf+xdp",
        Kind::Ebpf { xdp: false } => "ebpf",
        Kind::User => "user",
    }
}

impl Opened {
    /// The part that computes the estimates.
    #[must_use]
    pub fn measured_by(&self) -> MeasuredBy {
        measured_by(self.datapath.as_ref())
    }
}

/// The part that computes the estimates with this datapath.
pub fn measured_by(datapath: &dyn LinuxDatapath) -> MeasuredBy {
    if datapath.measures() { MeasuredBy::PacketPath } else { MeasuredBy::Machine }
}

/// Logs failures of an end of tunnels.
pub fn tell(failures: Vec<Failure<DatapathError>>, trouble: &mut Trouble) {
    for failure in failures {
        match failure {
            Failure::Order(error) => trouble.tell(monotonic(), &error.into()),
            Failure::Probes(error) => debug!("probes not sent: {error}"),
            // Newer tickets displaced it.
            Failure::Ticket(_) => {}
            Failure::Endless => error!("the machine does not come to an end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::{HOST, PATH};

    use segue_clock::Time;
    use segue_datapath::ProbeKind;
    use segue_keepalive::Arrival;

    fn probe(slot: u32, at_ms: u64) -> DatapathEvent {
        DatapathEvent::Probe(ProbeEvent {
            slot,
            kind: ProbeKind::Request,
            report: false,
            age: 0,
            k: 3,
            arrival: Arrival::new(segue_wire::Probe::default(), Time(at_ms * 1_000_000), 1),
            remote: ([192, 0, 2, 1], 5005).into(),
            kernel_stamp: true,
        })
    }

    #[test]
    fn a_paths_flood_of_probes_costs_the_others_none() {
        let (sink, mut queue, _shares) = queue(4);
        for _ in 0..200_000 {
            sink(probe(1, 50));
        }
        sink(probe(2, 50));
        sink(probe(1, 150));
        let slots: Vec<u32> = queue.waiting().iter().map(|probe| probe.slot).collect();
        let flood = PATH as usize;
        assert_eq!(slots.len(), flood + 2);
        assert_eq!(slots[flood..], [2, 1], "the next window brings a new share");
        assert_eq!(queue.shed.load(Ordering::Relaxed), 200_000 - flood as u64);
        sink(probe(4, 50));
        assert!(queue.waiting().is_empty(), "there is no such path");
    }

    #[test]
    fn a_hosts_flood_of_probes_over_all_its_paths_costs_the_others_none() {
        let (sink, mut queue, mut shares) = queue(64);
        (0..16).for_each(|slot| shares.give(slot, 7));
        shares.give(16, 8);
        for n in 0..200_000 {
            sink(probe(n % 16, 50));
        }
        sink(probe(16, 50));
        let slots: Vec<u32> = queue.waiting().iter().map(|probe| probe.slot).collect();
        assert_eq!(slots.len(), HOST as usize + 1);
        assert_eq!(slots.last(), Some(&16));
        assert_eq!(queue.shed.load(Ordering::Relaxed), 200_000 - u64::from(HOST));
    }
}
