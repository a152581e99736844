//! Modes in which a host reports its measurements to its anchor: the programs compared with the protocol machines,
//! which compute in floating point and receive the same packets.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use segue_clock::{Machine, Span, Time};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, ProbeEvent, ProbeKind};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Estimates, Probing, Reading, Request,
    Server, ServerInput,
};
use segue_linux::clock::monotonic;
use segue_wire::header::flags::REQUEST_REPORT;
use segue_wire::{Encapsulation, Header, Mode, PacketType, Probe, ProbeReport};

use crate::hostile::stranger;
use crate::world::{
    End, Family, KEY, OWNER, PORT, Wire, World, anchor_slot, eventually, host_slot, may_run,
};

const MODES: [Mode; 2] = [Mode::Reports, Mode::RoundTripLoss];
/// N: probes in a loss interval.
const N: u32 = 5;
const REQUESTS: u32 = 80;
/// Largest delay of the programs' request after the machine's; an idle computer needs a tenth of it.
const LATE: Span = Span::from_millis(5);

/// A K that no busy machine reaches.
fn config(mode: Mode) -> Config {
    Config { mode, k: 255, t_ka: Span::from_millis(20), n: N, ..Config::default() }
}

fn set_both(world: &World, probing: Probing) {
    let host = PathSetup { probing, ..world.host_path(0) };
    let anchor = PathSetup {
        tx_index: host_slot(0),
        tx_cookie: host.rx_cookie,
        rx_cookie: host.tx_cookie,
        local: None,
        remote: None,
        ifindex: 0,
        owner: OWNER,
        ..host.clone()
    };
    world.host.datapath.lock().unwrap().set_path(host_slot(0), &host).unwrap();
    world.anchor.datapath.lock().unwrap().set_path(anchor_slot(0), &anchor).unwrap();
}

fn reading(end: &End, slot: u32) -> Reading {
    end.datapath.lock().unwrap().reading(slot).unwrap()
}

/// The arrival with microsecond resolution, like the programs' clock.
fn arrival(event: &ProbeEvent) -> Arrival {
    Arrival::new(
        event.arrival.probe,
        Time(event.arrival.at.0 / 1000 * 1000),
        event.arrival.received,
    )
}

/// Within half a percent, the tolerance for averages in fixed point.
fn close(got: f64, want: f64, floor: f64) -> bool {
    (got - want).abs() <= (0.005 * want).max(floor)
}

fn same(got: &Estimates, want: &Estimates, what: &str) {
    let all = |got: &[f64], want: &[f64]| {
        got.len() == want.len() && got.iter().zip(want).all(|(a, b)| close(*a, *b, 1e-6))
    };
    assert_eq!(
        (got.rtt_last, got.rtt_min, got.rtt_max, got.up, got.down),
        (want.rtt_last, want.rtt_min, want.rtt_max, want.up, want.down),
        "{what}"
    );
    assert!(close(got.rtt_jitter, want.rtt_jitter, 1e-6), "{what}: {got:?} for {want:?}");
    for (got, want) in [
        (&got.rtt_ewma, &want.rtt_ewma),
        (&got.rtl, &want.rtl),
        (&got.owl_up, &want.owl_up),
        (&got.owl_down, &want.owl_down),
    ] {
        assert!(all(got, want), "{what}: {got:?} for {want:?}");
    }
}

/// A host on the programs, a protocol machine next to it, and a socket in place of the anchor.
struct Asking {
    world: World,
    wire: UdpSocket,
    machine: Client,
    /// Requests that have left and were not answered.
    asked: Vec<Probe>,
    /// Packets received and sent by the socket.
    counts: (u32, u32),
    reports: u32,
    /// The largest delay of a request by the programs after the machine's.
    late: Span,
}

impl Asking {
    fn new(mode: Mode) -> Asking {
        let world = World::new(Family::V4, Wire::Whole, 1, EbpfOptions::default());
        let config = config(mode);
        set_both(&world, config.probing(Encapsulation::Segue));
        let at = SocketAddr::new(Family::V4.outer(0, 2), PORT);
        let wire = world.anchor.ns.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        wire.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let ifindex = world.anchor.ifindex(0);
        world.anchor.datapath.lock().unwrap().detach(ifindex);
        let machine = Client::new(config, monotonic(), 1);
        Asking {
            world,
            wire,
            machine,
            asked: Vec::new(),
            counts: (0, 0),
            reports: 0,
            late: Span::ZERO,
        }
    }

    fn handle(&mut self, now: Time, input: ClientInput) {
        self.machine.handle(now, input);
        self.drain(now);
    }

    /// Sends each request that the machine orders, which must be the same.
    fn drain(&mut self, now: Time) {
        while let Some(output) = self.machine.poll() {
            if let ClientOutput::SendRequest(request) = output {
                self.ask(now, &request);
            }
        }
    }

    fn tick(&mut self) {
        let due = self.machine.next_request().unwrap();
        std::thread::sleep(Duration::from_nanos(due.since(monotonic()).0));
        let now = monotonic().max(due);
        self.machine.tick(now);
        self.drain(now);
    }

    /// Makes the programs send the request that the machine ordered at `now`. If it left much later, a loss
    /// interval may have ended in between, and nothing is compared.
    fn ask(&mut self, now: Time, request: &Request) {
        self.world.order(0, 0);
        let mut bytes = [0; 100];
        let (n, from) = self.wire.recv_from(&mut bytes).unwrap();
        self.wire.connect(from).unwrap();
        let header = Header::parse(&bytes[..n]).unwrap();
        let probe = Probe::open(&bytes[..n], &KEY).unwrap();
        let late = probe.t_sc.wrapping_sub(now.micros32());
        self.late = self.late.max(Span::from_micros(late.into()));
        if self.late > LATE {
            return;
        }
        let (got, want) = (ProbeReport::unpack(&probe), ProbeReport::unpack(&request.probe));
        let what = format!("{request:?}, and it was {probe:?}");
        assert_eq!(header.packet_type, PacketType::Request);
        assert_eq!((probe.seq, probe.t_ss), (request.probe.seq, request.probe.t_ss), "{what}");
        assert_eq!(header.flags & REQUEST_REPORT != 0, request.report, "{what}");
        if !request.report {
            assert_eq!(got, want, "{what}");
        } else if want.rtt_us == 0 {
            // The loss of one interval: a quotient of integers.
            assert!(got.loss.abs_diff(want.loss) <= 1 && got.rtt_us == 0, "{what}");
        } else {
            assert!(close(got.rtl(), want.rtl(), 1e-6), "{what}");
            assert!(close(got.rtt_us.into(), want.rtt_us.into(), 1.0), "{what}");
        }
        self.reports += u32::from(request.report);
        self.counts.0 += 1;
        self.asked.push(probe);
    }

    /// Answers a request, and passes to the machine what the host received.
    fn answer(&mut self, request: &Probe) {
        self.counts.1 += 1;
        let response = Probe {
            t_ss: 1_000 + request.seq,
            dt: 0,
            ss: self.counts.1,
            r: self.counts.0,
            ..*request
        };
        let (packet_type, index, cookie) = (PacketType::Response, host_slot(0), 0xb000);
        let header = Header::new(packet_type, 255, index, cookie);
        self.wire.send(&response.seal(&header, &KEY)).unwrap();
        let event = self.world.host.wait_for_probe(|e| e.arrival.probe.seq == request.seq);
        let arrival = arrival(&event);
        self.handle(arrival.at, ClientInput::Response(arrival));
    }
}

#[test]
fn a_host_reports_what_the_machine_reports_of_the_same_packets() {
    if !may_run() {
        return;
    }
    for mode in MODES {
        if !(0..3).any(|_| reports_are_the_machines(mode)) {
            println!("{mode:?}: not judged, this machine stands still all the time");
        }
    }
}

/// True if this computer stalled.
fn is_late(mode: Mode, asking: &Asking) -> bool {
    let late = asking.late > LATE;
    if late {
        println!("{mode:?}: a request left {:?} late", asking.late);
    }
    late
}

/// True if the computer never stalled, so that everything was compared.
fn reports_are_the_machines(mode: Mode) -> bool {
    let mut asking = Asking::new(mode);
    let mut overtaken = None;
    while asking.counts.0 < REQUESTS {
        asking.tick();
        if is_late(mode, &asking) {
            return false;
        }
        for request in std::mem::take(&mut asking.asked) {
            match request.seq % 11 {
                // Some are lost; some arrive after their successor, possibly in a later interval.
                3 | 7 | 8 => continue,
                5 => overtaken = Some(request),
                _ => {
                    asking.answer(&request);
                    overtaken.take().into_iter().for_each(|late| asking.answer(&late));
                }
            }
            if request.seq < N {
                assert_eq!(asking.reports, 0, "no interval has ended");
            }
        }
    }
    // An answer may have triggered the last request.
    if is_late(mode, &asking) {
        return false;
    }
    println!("{mode:?}: {} reports in {} requests", asking.reports, asking.counts.0);
    let most = if mode == Mode::Reports { REQUESTS } else { REQUESTS / N + 1 };
    assert!((8..=most).contains(&asking.reports), "{mode:?}: {}", asking.reports);
    let host = reading(&asking.world.host, host_slot(0));
    same(&host.estimates, asking.machine.estimates(), &format!("{mode:?}"));
    assert_eq!(host.estimates.owl_up.is_empty(), mode == Mode::RoundTripLoss);
    true
}

#[test]
fn an_anchor_makes_of_reports_what_the_machine_makes_of_the_same_packets() {
    if !may_run() {
        return;
    }
    for mode in MODES {
        let world = World::new(Family::V6, Wire::Whole, 1, EbpfOptions::default());
        set_both(&world, config(mode).probing(Encapsulation::Segue));
        let mut machine = Server::new(config(mode), monotonic(), true);
        let wire = stranger(&world, 6000);
        let (mut bytes, mut echo) = ([0; 100], (0, 0));
        for seq in 1..=REQUESTS {
            let now = monotonic().micros32();
            let (packet_type, index, cookie) = (PacketType::Request, anchor_slot(0), 0xa000);
            let (t_ss, dt) = (echo.0, now.wrapping_sub(echo.1));
            let probe = Probe {
                seq,
                t_sc: now,
                t_ss,
                dt,
                sc: seq * 2,
                ss: seq,
                r: seq,
                ..Probe::default()
            };
            let every = if mode == Mode::Reports { 1 } else { N };
            let reports = seq > N && seq.is_multiple_of(every);
            let rtt = (mode == Mode::Reports && seq % 7 != 0).then(|| f64::from(seq) / 1e3);
            let report = ProbeReport::new(f64::from(seq % 13) / 20.0, rtt);
            let (probe, flags) =
                if reports { (report.pack(probe), REQUEST_REPORT) } else { (probe, 0) };
            let header = Header { flags, ..Header::new(packet_type, 255, index, cookie) };
            wire.send(&probe.seal(&header, &KEY)).unwrap();
            let n = wire.recv(&mut bytes).unwrap();
            let arrived = monotonic().micros32();
            echo = (Probe::open(&bytes[..n], &KEY).unwrap().t_ss, arrived);

            let event = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == seq);
            assert_eq!((event.kind, event.report), (ProbeKind::Request, reports));
            let arrival = arrival(&event);
            let input = ServerInput::Request { arrival, k: event.k, report: event.report };
            machine.handle(arrival.at, input);
            while machine.poll().is_some() {}
            let anchor = reading(&world.anchor, anchor_slot(0)).estimates;
            same(&anchor, machine.estimates(), &format!("{mode:?}, request {seq}"));
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = machine.estimates();
        assert_eq!(told.rtt_last.is_none(), mode == Mode::Reports);
        assert!(!told.rtl.is_empty() && told.owl_up.is_empty(), "{told:?}");
    }
}

#[test]
fn reports_ride_and_each_loss_is_told_once() {
    if !may_run() {
        return;
    }
    for mode in MODES {
        let world = World::new(Family::V4, Wire::Whole, 1, EbpfOptions::default());
        let t_ka = Span::from_millis(2);
        let config = Config { rides: true, t_ka, ..config(mode) };
        set_both(&world, config.probing(Encapsulation::Segue));
        world.probe(0, 1);
        let bind = |end: &End, last| {
            end.ns.run(|| UdpSocket::bind((Family::V4.inner(last), 0))).unwrap().unwrap()
        };
        let (host, anchor) = (bind(&world.host, 1), bind(&world.anchor, 2));
        let told = || -> Vec<ProbeEvent> {
            let seen = world.anchor.probes.lock().unwrap();
            seen.iter().filter(|event| event.report).copied().collect()
        };
        eventually("reports", || {
            host.send_to(b"data", anchor.local_addr().unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            told().len() >= 10
        });
        let rode = reading(&world.host, host_slot(0)).rode;
        world.anchor.wait_for_probe(|event| event.arrival.probe.seq == rode + 1);
        let (told, seen) = (told(), world.anchor.probes.lock().unwrap().clone());
        let first = told[0].arrival.probe.seq;
        match mode {
            Mode::Reports => {
                assert!(seen.iter().all(|e| e.report == (e.arrival.probe.seq >= first)))
            }
            _ => {
                // At most one per interval: no loss is reported twice.
                let span = told[told.len() - 1].arrival.at.since(told[0].arrival.at);
                let intervals = span.0 / (t_ka * u64::from(N)).0 + 3;
                assert!(told.len() as u64 <= intervals, "{} of {intervals}", told.len());
                assert!(told.iter().all(|event| event.arrival.probe.r == 0));
            }
        }
    }
}
