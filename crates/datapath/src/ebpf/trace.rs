//! Compares the programs' estimator with the floating-point one, over one long trace on virtual time: a client and a
//! server with independent clocks, wandering delays, reordering, losses, silences, and counters and clocks that wrap.

mod deaf;
mod idle;
mod judge;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::ewma::Ewma;
use segue_keepalive::loss::{Interval, OneWayLoss, RoundTripLoss};
use segue_keepalive::rtt::{client_rtt, server_rtt};
use segue_keepalive::{Arrival, Config, Counted, Estimates, Probing, Tau};
use segue_wire::header::flags::REQUEST_REPORT;
use segue_wire::{Encapsulation, Header, Mode, PacketType, Probe, ProbeKey, ProbeReport};

use self::judge::Judge;
use super::convert::{kernel_path, kernel_scale, kernel_silence};
use super::load::may_load;
use super::outage::Outage;
use super::reading::{Totals, read};
use super::skel::{SegueSkelBuilder, host_state, path_config, path_state};
use crate::PathSetup;
use crate::maps::Shared;

const T_KA_MS: u64 = 200;
/// Largest permitted relative difference of the averages.
const RELATIVE: f64 = 0.005;
/// Permitted absolute difference where loss is close to zero.
const LOSS_FLOOR: f64 = 1e-6;

/// One end of the path in the kernel, without a device and without packets.
struct Kernel {
    program: OwnedFd,
    paths: MapHandle,
    config: path_config,
    outage: Outage,
    state: MapHandle,
    host: MapHandle,
    mode: Mode,
    client: bool,
    totals: Totals,
}

#[repr(C)]
struct Step {
    at_ns: u64,
    received: u32,
    sent: u32,
    packet: [u8; Probe::PACKET_LEN],
}

impl Kernel {
    fn new(client: bool, probing: Probing) -> Kernel {
        let mut storage = MaybeUninit::uninit();
        let mut open = SegueSkelBuilder::default().open(&mut storage).unwrap();
        open.maps.rodata_data.as_deref_mut().unwrap().is_anchor = u8::from(!client);
        open.progs.segue_egress.set_autoload(false);
        open.progs.segue_ingress.set_autoload(false);
        open.progs.segue_bare.set_autoload(false);
        open.progs.segue_xdp.set_autoload(false);
        open.progs.segue_send.set_autoload(false);
        open.progs.segue_trace.set_autoload(true);
        let skel = open.load().unwrap();
        let config = PathSetup {
            tx_index: 0,
            tx_cookie: 0,
            rx_cookie: 0,
            key: ProbeKey::default(),
            local: None,
            remote: None,
            ifindex: 0,
            gateway: None,
            owner: 0,
            probing,
        };
        let put = |map: &dyn MapCore, value: &[u8]| {
            map.update(0u32.bytes(), value, MapFlags::ANY).unwrap();
        };
        let config = kernel_path(&config, 0);
        put(&skel.maps.segue_paths, config.bytes());
        put(&skel.maps.segue_scales, kernel_scale(&probing.taus).bytes());
        Kernel {
            program: skel.progs.segue_trace.as_fd().try_clone_to_owned().unwrap(),
            paths: MapHandle::try_from(&skel.maps.segue_paths).unwrap(),
            config,
            outage: Outage::default(),
            state: MapHandle::try_from(&skel.maps.segue_state).unwrap(),
            host: MapHandle::try_from(&skel.maps.segue_host).unwrap(),
            mode: probing.mode,
            client,
            totals: Totals::default(),
        }
    }

    /// The daemon declares the path down after such a silence, or up. Returns the silence as encoded for the program.
    fn set_down(&mut self, silence: Option<Span>) -> Span {
        let steps = silence.map_or(0, kernel_silence);
        self.outage.set_down(&mut self.config, silence);
        self.paths.update(0u32.bytes(), self.config.bytes(), MapFlags::ANY).unwrap();
        Span::from_micros((4_000.0 * 2f64.powf((f64::from(steps) - 1.0) / 8.0)) as u64)
    }

    /// The daemon reports that the host hears nothing after `sent` packets, or hears again.
    fn set_deaf(&mut self, deaf: bool, sent: u32) {
        let state = self.state.lookup(0u32.bytes(), MapFlags::ANY).unwrap().unwrap();
        let state = path_state { tx_packets: sent, ..Shared::from_bytes(&state).unwrap() };
        self.outage.set_deaf(&mut self.config, &state, deaf);
        self.paths.update(0u32.bytes(), self.config.bytes(), MapFlags::ANY).unwrap();
    }

    /// At a client: another request is about to leave, after `sent` earlier ones.
    fn send(&mut self, at: Time, sent: u32) {
        let header = Header::new(PacketType::Request, 3, 0, 0);
        let packet = Probe::default().seal(&header, &ProbeKey::default());
        assert_eq!(self.run(Step { at_ns: at.0, received: 0, sent, packet }), 0);
    }

    fn run(&self, mut step: Step) -> i32 {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: (&raw mut step).cast(),
            ctx_size_in: size_of_val(&step) as u32,
            ..Default::default()
        };
        // SAFETY: the context outlives the call, with the length given.
        let result = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        };
        assert_eq!(result, 0);
        options.retval as i32
    }

    /// Feeds in a probe, which may be a `report`. `None` if it is refused; otherwise whether it was late, and the
    /// estimates after it.
    fn take(&mut self, arrival: &Arrival, report: bool, sent: u32) -> Option<(bool, Estimates)> {
        let packet_type = if self.client { PacketType::Response } else { PacketType::Request };
        let flags = if report { REQUEST_REPORT } else { 0 };
        let header = Header { packet_type, flags, k: 3, age: 0, index: 0, cookie: 0 };
        let packet = arrival.probe.seal(&header, &ProbeKey::default());
        let order =
            self.run(Step { at_ns: arrival.at.0, received: arrival.received, sent, packet });
        assert!(order >= -1, "no such path");
        let lookup = |map: &MapHandle| map.lookup(0u32.bytes(), MapFlags::ANY).unwrap().unwrap();
        let state: path_state = Shared::from_bytes(&lookup(&self.state)).unwrap();
        let host: Option<host_state> =
            self.client.then(|| Shared::from_bytes(&lookup(&self.host)).unwrap());
        let reading = read(&state, host.as_ref(), self.mode, &mut self.totals, arrival.at);
        (order >= 0).then_some((order == 1, reading.estimates))
    }
}

/// Averages of loss over the evaluated intervals.
#[derive(Default)]
struct Averages {
    ewma: Ewma,
    /// Total length of the intervals so far.
    passed: Time,
}

impl Averages {
    fn take(&mut self, taus: &[Tau], interval: Option<Interval>) {
        if let Some(interval) = interval {
            self.passed += interval.length;
            self.ewma.push(taus, self.passed, interval.loss);
        }
    }
}

/// The floating-point reference, built from the parts of the protocol machines.
#[derive(Default)]
struct Reference {
    rtt: Ewma,
    up: OneWayLoss,
    down: OneWayLoss,
    round_trip: RoundTripLoss,
    owl_up: Averages,
    owl_down: Averages,
    rtl: Ewma,
    total_up: Counted,
    total_down: Counted,
    received: u64,
    echoed: bool,
    /// The round-trip loss that the next request reports.
    unreported: Option<f64>,
}

impl Reference {
    fn take(
        &mut self,
        kernel: &Kernel,
        probing: &Probing,
        arrival: &Arrival,
        report: bool,
        late: bool,
        sent: u32,
    ) {
        let (probe, at) = (&arrival.probe, arrival.at);
        let pace = probing.pace(probing.t_ka);
        let taus = &probing.taus;
        self.received += 1;
        if kernel.mode == Mode::Reports && !kernel.client {
            if report {
                self.adopt(taus, at, ProbeReport::unpack(probe));
            }
            return;
        }
        let epoch = Time::ZERO;
        let rtt =
            if kernel.client { client_rtt(arrival, epoch) } else { server_rtt(arrival, epoch) };
        if let Some(rtt) = rtt {
            self.rtt.push(taus, at, rtt.as_secs_f64());
        }
        if kernel.mode != Mode::Both {
            let rtl = match kernel.client {
                true => self.round_trip.observe(sent.into(), self.received, pace.n),
                false => report.then(|| ProbeReport::unpack(probe).rtl()),
            };
            rtl.into_iter().for_each(|rtl| self.rtl.push(taus, at, rtl));
            self.unreported = rtl.or(self.unreported);
        }
        if late || kernel.mode == Mode::RoundTripLoss {
            return;
        }
        let (rs, rc) = match kernel.client {
            true => (probe.r, arrival.received),
            false => (arrival.received, probe.r),
        };
        let up =
            self.up.observe(at, at, (probe.sc, rs), pace, arrival.question, &mut self.total_up);
        self.owl_up.take(taus, up);
        self.echoed |= kernel.client || probe.t_ss != 0;
        if self.echoed {
            let age = at.micros32().wrapping_sub(probe.t_ss);
            // An echo this old looks like one from the future.
            if !kernel.client && age >= 1 << 31 {
                return;
            }
            let of = if kernel.client { at } else { at - Span::from_micros(age.into()) };
            let (pair, question) = ((probe.ss, rc), arrival.question);
            let down = self.down.observe(at, of, pair, pace, question, &mut self.total_down);
            self.owl_down.take(taus, down);
        }
    }

    /// A client's request is about to leave.
    fn send(&mut self, mode: Mode, probing: &Probing, at: Time, sent: u32) {
        if mode == Mode::Both {
            return;
        }
        let rtl = self.round_trip.evaluate(sent.into(), self.received, probing.n);
        rtl.into_iter().for_each(|rtl| self.rtl.push(&probing.taus, at, rtl));
        self.unreported = rtl.or(self.unreported);
    }

    /// The end declares the path down at `at`.
    fn declare(&mut self, client: bool, at: Time) {
        self.up.declare(at);
        if client { self.down.declare(at) } else { self.down.declare_echoed() }
    }

    /// Replaces the averages with those of a report, one for each quantity.
    fn adopt(&mut self, taus: &[Tau], at: Time, report: ProbeReport) {
        self.rtl = Ewma::default();
        self.rtl.push(&taus[..1], at, report.rtl());
        if let Some(rtt) = report.rtt() {
            self.rtt = Ewma::default();
            self.rtt.push(&taus[..1], at, rtt);
        }
    }

    /// The client's next report.
    fn report(&mut self, mode: Mode) -> Option<ProbeReport> {
        match mode {
            Mode::Both | Mode::Client => None,
            Mode::Reports => {
                let rtl = *self.rtl.values().first()?;
                Some(ProbeReport::new(rtl, self.rtt.values().first().copied()))
            }
            Mode::RoundTripLoss => self.unreported.take().map(|rtl| ProbeReport::new(rtl, None)),
        }
    }
}

/// The largest differences seen, relative except for loss near zero.
#[derive(Debug, Default)]
struct Worst {
    rtt: f64,
    loss: f64,
    samples: u64,
    averages: u64,
}

impl Worst {
    fn compare(&mut self, kernel: &Estimates, reference: &Reference, what: &str) {
        self.samples += 1;
        assert_eq!(kernel.rtt_ewma.len(), reference.rtt.values().len(), "{what}");
        for (got, want) in kernel.rtt_ewma.iter().zip(reference.rtt.values()) {
            let off = (got - want).abs() / want;
            assert!(off <= RELATIVE, "{what}: RTT {got} for {want}");
            self.rtt = self.rtt.max(off);
        }
        for (got, want) in [
            (&kernel.owl_up, &reference.owl_up.ewma),
            (&kernel.owl_down, &reference.owl_down.ewma),
            (&kernel.rtl, &reference.rtl),
        ] {
            assert_eq!(got.len(), want.values().len(), "{what}");
            for (got, want) in got.iter().zip(want.values()) {
                let off = (got - want).abs();
                assert!(off <= (RELATIVE * want).max(LOSS_FLOOR), "{what}: loss {got} for {want}");
                if *want > 1e-3 {
                    self.loss = self.loss.max(off / want);
                }
                self.averages += 1;
            }
        }
        if reference.total_up != Counted::default() {
            assert_eq!((kernel.up, kernel.down), (reference.total_up, reference.total_down));
        }
    }
}

/// A value that wanders between two bounds, on a logarithmic scale.
struct Walk {
    at: f64,
    low: f64,
    high: f64,
}

impl Walk {
    fn step(&mut self, rng: &mut Rng, width: f64) -> f64 {
        let step = (rng.below(2001) as f64 / 1000.0 - 1.0) * width;
        self.at = (self.at * step.exp()).clamp(self.low, self.high);
        self.at
    }
}

/// A probe in flight: its arrival time, its position in the sending order, whether it is a response, whether it is a
/// report, and its bytes.
type Flying = (u64, u64, bool, bool, [u8; Probe::LEN]);

/// A probe that has arrived.
struct Landed {
    /// The true time, and the time on the receiver's clock.
    now_us: u64,
    local_us: u64,
    to_client: bool,
    report: bool,
    arrival: Arrival,
}

/// The network between both ends. Times are true times, in microseconds.
struct World {
    rng: Rng,
    /// Without data, and with steady delays.
    idle: bool,
    flying: BinaryHeap<Reverse<Flying>>,
    order: u64,
    half_rtt_us: Walk,
    loss: [Walk; 2],
    /// Packet counters: sent and received in each direction.
    sent: [u32; 2],
    received: [u32; 2],
    requests: u32,
    /// Fields that the next request echoes: t_Ss, Ss, Rc, t_Rc.
    echo: (u32, u32, u32, u32),
    /// The `heard` word of requests.
    heard: u16,
}

const CLIENT_AHEAD_US: u64 = 3_000_000_000;

impl World {
    fn new(seed: u64) -> World {
        let walk = |at, low, high| Walk { at, low, high };
        World {
            rng: Rng::new(seed),
            idle: false,
            flying: BinaryHeap::new(),
            order: 0,
            half_rtt_us: walk(5_000.0, 50.0, 1_000_000.0),
            loss: [walk(0.01, 1e-5, 0.4), walk(0.01, 1e-5, 0.4)],
            sent: [0; 2],
            received: [0; 2],
            requests: 0,
            echo: (0, 0, 0, 0),
            heard: 0,
        }
    }

    /// Data packets in one direction, some of which are lost.
    fn data(&mut self, way: usize) {
        let packets = match self.rng.below(4) {
            0 => 0,
            1..=2 => self.rng.below(20) as u32,
            // Fast enough for the counters to wrap.
            _ => self.rng.below(1_000_000) as u32,
        };
        let lost = f64::from(packets) * self.loss[way].at + self.rng.below(1000) as f64 / 1000.0;
        self.sent[way] = self.sent[way].wrapping_add(packets);
        self.received[way] = self.received[way].wrapping_add(packets - (lost as u32).min(packets));
    }

    fn launch(
        &mut self,
        now_us: u64,
        to_client: bool,
        (probe, report): (&Probe, bool),
        dead: bool,
    ) {
        let lost = self.rng.below(1_000_000) as f64 / 1e6 < self.loss[usize::from(to_client)].at;
        if lost || dead {
            return;
        }
        let jitter = 0.8 + self.rng.below(400) as f64 / 1000.0;
        let arrives = now_us + (self.half_rtt_us.at * jitter) as u64;
        self.order += 1;
        self.flying.push(Reverse((arrives, self.order, to_client, report, probe.emit())));
    }

    /// The next probe that arrives by that time; the receiver has counted it.
    fn land(&mut self, until_us: u64) -> Option<Landed> {
        let next = self.flying.peek_mut().filter(|next| next.0.0 <= until_us)?;
        let Reverse((now_us, _, to_client, report, bytes)) = PeekMut::pop(next);
        let local_us = now_us + if to_client { CLIENT_AHEAD_US } else { 0 };
        let received = &mut self.received[usize::from(to_client)];
        *received = received.wrapping_add(1);
        let (probe, at) = (Probe::parse(&bytes), Time(local_us * 1000));
        let (received, uncertainty) = (*received, Span::ZERO);
        let arrival = Arrival { uncertainty, ..Arrival::new(probe, at, received) };
        Some(Landed { now_us, local_us, to_client, report, arrival })
    }

    fn request(&mut self, now_us: u64, report: Option<ProbeReport>, dead: bool) {
        if !dead && !self.idle {
            self.data(0);
            self.data(1);
        }
        if !self.idle {
            self.half_rtt_us.step(&mut self.rng, 0.05);
        }
        for way in 0..2 {
            let walk = &mut self.loss[way];
            walk.step(&mut self.rng, 0.1);
        }
        self.requests += 1;
        self.sent[0] = self.sent[0].wrapping_add(1);
        let t_sc = (now_us + CLIENT_AHEAD_US) as u32;
        let (t_ss, ss, r, held_since) = self.echo;
        let probe = Probe {
            seq: self.requests,
            t_sc,
            t_ss,
            dt: t_sc.wrapping_sub(held_since),
            sc: self.sent[0],
            ss,
            r,
            heard: self.heard,
            t_ka_ms: T_KA_MS as u16,
        };
        let probe = report.map_or(probe, |report| report.pack(probe));
        self.launch(now_us, false, (&probe, report.is_some()), dead);
    }

    /// The server answers a request; the client stores the fields that its next request echoes.
    fn answer(&mut self, landed: &Landed, dead: bool) {
        let Landed { now_us, local_us, ref arrival, .. } = *landed;
        let probe = &arrival.probe;
        if landed.to_client {
            self.echo = (probe.t_ss, probe.ss, arrival.received, local_us as u32);
            return;
        }
        let held = self.rng.below(2000);
        self.sent[1] = self.sent[1].wrapping_add(1);
        let response = Probe {
            t_ss: (local_us + held) as u32,
            dt: held as u32,
            ss: self.sent[1],
            r: arrival.received,
            ..*probe
        };
        self.launch(now_us + held, true, (&response, false), dead);
    }
}

/// Runs until both ends together have taken `samples`.
fn compare(samples: u64, seed: u64, mode: Mode, taus: [Tau; 2]) {
    if !may_load() {
        return;
    }
    let probing = Probing { mode, taus, ..Config::default().probing(Encapsulation::Segue) };
    let mut kernels = [Kernel::new(false, probing), Kernel::new(true, probing)];
    let mut references = [Reference::default(), Reference::default()];
    let mut judges = [Judge::default(), Judge::default()];
    let mut worst = Worst::default();
    let mut world = World::new(seed);
    let (mut next_us, mut dead_until_us) = (10_000_000, 0);
    while worst.samples < samples {
        let Some(landed) = world.land(next_us) else {
            if world.rng.below(20_000) == 0 {
                dead_until_us = next_us + world.rng.below(600_000_000);
            }
            let at = Time((next_us + CLIENT_AHEAD_US) * 1000);
            kernels[1].send(at, world.requests);
            references[1].send(mode, &probing, at, world.requests);
            let report = references[1].report(mode);
            world.request(next_us, report, next_us < dead_until_us);
            // Occasionally the client itself is silent, for seconds or up to an hour. A gap that the clock cannot
            // represent is at least 18 minutes long, so an average over ten minutes is not compared.
            let longest = if taus == plain() { 3_600_000_000 } else { 300_000_000 };
            let pause = if world.rng.below(20_000) == 0 { world.rng.below(longest) } else { 0 };
            next_us += T_KA_MS * 1000 + pause + world.rng.below(2000);
            continue;
        };
        let Landed { now_us, to_client, report, arrival, .. } = landed;
        let way = usize::from(to_client);
        let (kernel, reference) = (&mut kernels[way], &mut references[way]);
        let (judge, at) = (&mut judges[way], arrival.at);
        judge.before(&mut world.rng, kernel, reference, &arrival);
        let Some((late, estimates)) = kernel.take(&arrival, report, world.requests) else {
            world.received[way] = world.received[way].wrapping_sub(1);
            continue;
        };
        reference.take(kernel, &probing, &arrival, report, late, world.requests);
        judge.after(kernel, reference, at, late);
        worst.compare(&estimates, reference, &format!("seed {seed}, at {now_us} us, {arrival:?}"));
        if !late {
            world.answer(&landed, now_us < dead_until_us);
        }
    }
    println!(
        "{mode:?}: {} samples in {} h, largest difference: RTT {:.1e}, loss {:.1e} (above 0.1 %)",
        worst.samples,
        next_us / 3_600_000_000,
        worst.rtt,
        worst.loss
    );
    assert!(worst.averages > samples / 4, "loss was measured too");
    assert!(judges.iter().all(|judge| judge.outages > 0), "and outages came");
}

fn plain() -> [Tau; 2] {
    [1, 30].map(|secs| Tau::symmetric(Span::from_secs(secs)))
}

/// Averages that rise quickly and fall slowly.
fn asymmetric() -> [Tau; 2] {
    [(100, 3_000), (2_000, 600_000)]
        .map(|(rise, fall)| Tau { rise: Span::from_millis(rise), fall: Span::from_millis(fall) })
}

#[test]
fn averages_in_fixed_point_follow_those_in_floating_point() {
    compare(100_000, 1, Mode::Both, plain());
    compare(50_000, 2, Mode::Both, asymmetric());
}

#[test]
fn round_trip_loss_in_fixed_point_follows_that_in_floating_point() {
    compare(50_000, 3, Mode::RoundTripLoss, plain());
}

#[test]
fn averages_that_a_client_reports_become_those_of_the_server() {
    compare(50_000, 7, Mode::Reports, plain());
}

#[test]
#[ignore = "a million samples; make soak"]
fn averages_follow_over_a_million_samples() {
    compare(1_000_000, 4, Mode::Both, plain());
    compare(1_000_000, 5, Mode::Both, asymmetric());
    compare(1_000_000, 6, Mode::RoundTripLoss, plain());
}
