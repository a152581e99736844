//! The receiving side without device, sockets or threads, for tests that feed it arbitrary datagrams, at any
//! rate and without privileges.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use segue_clock::{Span, Time};
use segue_wire::DropReason;

use super::flows::FlowTable;
use super::ingress::take_datagram;
use super::path::{Path, State};
use super::share::Shares;
use super::shared::{Core, Shared};
use super::socket::Endpoint;
use super::take::{Arrival, Intake};
use super::tun;
use crate::drops::Drops;
use crate::misses::Misses;
use crate::sync::lock;
use crate::{DatapathEvent, FlowEntry, PathSetup, ProbeEvent, Reach, Role};

/// Tables that are filled once, and then fed with datagrams.
pub struct DryRun {
    pub(super) shared: Shared,
}

/// The results of one datagram.
#[derive(Debug, Default)]
pub struct Outcome<'a> {
    /// Inner packets for the TUN device, in order.
    pub packets: Vec<Cow<'a, [u8]>>,
    /// Probes to report to the daemon.
    pub probes: Vec<ProbeEvent>,
    /// Number of requests to answer.
    pub answers: usize,
    /// Refused packets by reason.
    pub refused: BTreeMap<DropReason, u64>,
}

impl DryRun {
    /// A receiver with these paths (by slot) and inner addresses.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(
        role: Role,
        paths: &[(u32, PathSetup)],
        inner: &[(IpAddr, u32)],
    ) -> io::Result<DryRun> {
        let slots = paths.iter().map(|(slot, _)| *slot as usize + 1).max().unwrap_or(0);
        let mut table = vec![None; slots];
        for (slot, config) in paths {
            table[*slot as usize] = Some(Arc::new(Path {
                slot: *slot,
                config: config.clone(),
                sockets: Vec::new(),
                state: Arc::<State>::default(),
            }));
        }
        let mut upmt = super::upmt::UpmtPaths::default();
        paths.iter().for_each(|(slot, config)| upmt.set(*slot, config, false));
        let core = Core {
            paths: table,
            vias: vec![None; slots],
            inner: inner.iter().copied().collect::<HashMap<_, _>>(),
            reach: Reach::EVERYTHING,
            pools: Vec::new(),
            flows: FlowTable::new(64),
            shares: Shares::default(),
            misses: Misses::new(role),
            upmt,
        };
        Ok(DryRun {
            shared: Shared {
                role,
                tun_mtu: 1456,
                sink: Arc::new(|_| {}),
                core: Mutex::new(core),
                drops: Drops::default(),
                stop: AtomicBool::new(false),
                wake_egress: tun::Wake::new()?,
                wake_ingress: tun::Wake::new()?,
                anchor: Vec::new(),
                opened: Mutex::default(),
                waiting: Mutex::default(),
            },
        })
    }

    /// Processes one datagram from `from`, which consists of several of `size` bytes if the kernel coalesced
    /// them.
    pub fn receive<'a>(
        &self,
        from: SocketAddr,
        bytes: &'a [u8],
        size: Option<usize>,
    ) -> Outcome<'a> {
        let endpoint = Endpoint { remote: Some(from), local: None, ifindex: 0 };
        let arrival = Arrival {
            from,
            endpoint,
            at: Time(1),
            kernel_stamp: false,
            error: Span::ZERO,
            class: 0,
            ifindex: 0,
        };
        let mut core = lock(&self.shared.core);
        let mut intake = Intake::new(&self.shared, &mut core);
        take_datagram(&mut intake, &arrival, bytes, size);
        let work = intake.work;
        let probe = |event| match event {
            DatapathEvent::Probe(probe) => Some(probe),
            _ => None,
        };
        Outcome {
            packets: work.packets,
            probes: work.events.into_iter().filter_map(probe).collect(),
            answers: work.answers.len(),
            refused: self.shared.drops.take(),
        }
    }

    /// The return paths learned so far.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowEntry> {
        lock(&self.shared.core).flows.list()
    }
}
