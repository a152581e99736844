//! A path with a fate for each packet, and invariants checked at every step; used by the other test files.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_sim::{EventQueue, Packet};
use segue_traffic::tcp::{Config, Counting, Endpoint, Segment, Sink, Source};

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Data,
    Back,
}

/// The fate of a packet: one arrival per entry, delayed by this much relative to a quiet path.
pub(crate) type Fate = Vec<Span>;

/// One timely arrival.
pub(crate) fn passes() -> Fate {
    vec![Span::ZERO]
}

/// Results of a run.
pub(crate) struct Run {
    pub source: Source,
    pub sink: Sink,
    /// When the last byte was delivered, and when the run ended.
    pub completed: Option<Time>,
    pub ended: Time,
    pub events: u64,
    /// A line per data packet: time in ms, window and threshold in segments, first byte, and `again` for a
    /// retransmission.
    pub lines: Vec<String>,
    /// Maximum number of bytes outstanding at once, from the numbers sent and acknowledged.
    pub most_outstanding: u64,
    /// Data packets sent.
    pub sent: Vec<Left>,
}

/// A transmitted data packet, and the window at that time, in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub at: Time,
    pub seq: u64,
    /// The bytes were sent before.
    pub again: bool,
    pub cwnd: f64,
    pub ssthresh: f64,
}

#[derive(Clone, Copy)]
enum Event {
    AtSink(usize),
    AtSource(usize),
    /// The source's deadline, or the sink's.
    Wake(usize),
    Offer(u64),
}

/// A path.
pub(crate) struct Path<F> {
    pub config: Config,
    /// Times and sizes of the application's offers.
    pub offers: Vec<(Time, u64)>,
    /// One-way delay without serialisation.
    pub delay: Span,
    /// Serialisation of a data packet; acknowledgements have none.
    pub spacing: Span,
    /// Decides the fate of a packet; numbers count the packets of each direction from 0.
    pub fate: F,
    /// Number of events after which the run is aborted.
    pub most_events: u64,
}

impl<F: FnMut(Direction, u64, &Packet) -> Fate> Path<F> {
    /// Sends everything offered, and stops when no events are left.
    pub(crate) fn run(self) -> Run {
        self.run_with(|_, _| Vec::new())
    }

    /// Like `run`, but `forge` sends forged packets to the source each time a packet arrives.
    pub(crate) fn run_with(mut self, mut forge: impl FnMut(Time, &Source) -> Vec<Packet>) -> Run {
        let total: u64 = self.offers.iter().map(|(_, bytes)| bytes).sum();
        let mut run = Run::new(self.config);
        let (mut queue, mut reference, mut line) =
            (EventQueue::new(), Reference::default(), Line::default());
        for (at, bytes) in &self.offers {
            queue.schedule(*at, Event::Offer(*bytes));
        }
        run.source.start(Time::ZERO);
        while let Some((now, event)) = queue.pop_until(Time(u64::MAX)) {
            run.events += 1;
            run.ended = now;
            assert!(
                run.events <= self.most_events,
                "no end after {} events at {now:?}",
                run.events
            );
            match event {
                Event::Offer(bytes) => run.source.offer(now, bytes),
                Event::AtSink(number) => {
                    reference.arrived(&line.packets[number]);
                    run.sink.receive(now, &line.packets[number]);
                }
                Event::AtSource(number) => {
                    for forged in forge(now, &run.source) {
                        run.source.receive(now, &forged);
                    }
                    run.source.receive(now, &line.packets[number]);
                }
                Event::Wake(who) => {
                    line.armed[who] = None;
                    run.wake(now);
                }
            }
            self.flush(now, &mut run, &mut line, &mut queue);
            run.check(&self.config, &reference);
            if run.completed.is_none() && run.sink.delivered() == total {
                run.completed = Some(now);
            }
            let deadlines = [run.source.deadline(), run.sink.deadline()];
            for (who, deadline) in deadlines.into_iter().enumerate() {
                let Some(at) = deadline.map(|at| at.max(now)) else { continue };
                if line.armed[who].is_none_or(|known| at < known) {
                    line.armed[who] = Some(at);
                    queue.schedule(at, Event::Wake(who));
                }
            }
        }
        run
    }

    fn flush(&mut self, now: Time, run: &mut Run, line: &mut Line, queue: &mut EventQueue<Event>) {
        while let Some(packet) = run.source.poll(now) {
            run.note(now, &packet);
            line.free_at = line.free_at.max(now) + self.spacing;
            for later in (self.fate)(Direction::Data, line.numbers[0], &packet) {
                queue
                    .schedule(line.free_at + self.delay + later, Event::AtSink(line.keep(&packet)));
            }
            line.numbers[0] += 1;
        }
        while let Some(packet) = run.sink.poll(now) {
            for later in (self.fate)(Direction::Back, line.numbers[1], &packet) {
                queue.schedule(now + self.delay + later, Event::AtSource(line.keep(&packet)));
            }
            line.numbers[1] += 1;
        }
    }
}

/// State of the path.
#[derive(Default)]
struct Line {
    /// When the sender's interface becomes idle.
    free_at: Time,
    /// Number of packets in each direction so far.
    numbers: [u64; 2],
    /// Scheduled wake-ups of source and sink.
    armed: [Option<Time>; 2],
    /// All packets, by number.
    packets: Vec<Packet>,
}

impl Line {
    /// Keeps a packet until it arrives, and returns its number.
    fn keep(&mut self, packet: &Packet) -> usize {
        self.packets.push(packet.clone());
        self.packets.len() - 1
    }
}

impl Run {
    fn new(config: Config) -> Run {
        let [a, b] = [1, 2].map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n)));
        let endpoint = Endpoint { local: (a, 1), remote: (b, 1) };
        Run {
            source: Source::new(config, endpoint),
            sink: Sink::new(config, endpoint.reversed()),
            completed: None,
            ended: Time::ZERO,
            events: 0,
            lines: Vec::new(),
            most_outstanding: 0,
            sent: Vec::new(),
        }
    }

    fn wake(&mut self, now: Time) {
        if self.source.deadline().is_some_and(|at| at <= now) {
            self.source.tick(now);
        }
        if self.sink.deadline().is_some_and(|at| at <= now) {
            self.sink.tick(now);
        }
    }

    fn note(&mut self, at: Time, packet: &Packet) {
        let Some(segment) = packet.value::<Segment>() else { panic!("{packet:?}") };
        let core = self.source.sender().core();
        let smss = core.smss as f64;
        let (cwnd, ssthresh) = (core.cwnd / smss, core.ssthresh / smss);
        let again = if segment.retransmission { "again" } else { "" };
        let at_ms = at.as_secs_f64() * 1e3;
        let line = format!("{at_ms:10.3} {cwnd:8.3} {ssthresh:8.3} {:7} {again}", segment.seq);
        self.lines.push(line.trim_end().to_string());
        self.sent.push(Left {
            at,
            seq: segment.seq,
            again: segment.retransmission,
            cwnd,
            ssthresh,
        });
        let outstanding = segment.seq + u64::from(segment.len) - self.source.acknowledged();
        self.most_outstanding = self.most_outstanding.max(outstanding);
    }

    fn check(&self, config: &Config, reference: &Reference) {
        let core = self.source.sender().core();
        assert!(core.cwnd >= core.smss as f64, "a window of {} units", core.cwnd);
        assert!(core.una <= core.max && core.max <= core.limit);
        assert!(core.max - core.una <= core.max_window(), "more than the maximum window in flight");
        let bytes = u64::from(config.window) * u64::from(config.mss);
        assert!(self.most_outstanding <= bytes, "{} bytes outstanding", self.most_outstanding);
        assert_eq!(self.sink.delivered(), reference.contiguous, "handed over and arrived in order");
        if config.counting == Counting::Bytes {
            assert!(core.una <= reference.contiguous, "acknowledged without having arrived");
        }
    }

    /// Retransmissions and timeouts.
    pub(crate) fn trouble(&self) -> (u64, u64) {
        (self.source.sent().retransmissions, self.source.sent().timeouts)
    }
}

/// The expected state of a receiver: bytes that arrived, and the end of those without a gap.
#[derive(Default)]
struct Reference {
    beyond: BTreeSet<(u64, u64)>,
    contiguous: u64,
}

impl Reference {
    fn arrived(&mut self, packet: &Packet) {
        let Some(segment) = packet.value::<Segment>() else { panic!("{packet:?}") };
        self.beyond.insert((segment.seq, segment.seq + u64::from(segment.len)));
        while let Some(&(start, end)) = self.beyond.first().filter(|r| r.0 <= self.contiguous) {
            self.beyond.remove(&(start, end));
            self.contiguous = self.contiguous.max(end);
        }
    }
}
