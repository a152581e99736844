//! The server's side of a measurement session: answers the requests and measures from them.

use std::io;
use std::net::SocketAddr;

use segue_clock::{Machine, Span, Time};
use segue_datapath::STAMP_TO_WIRE;
use segue_keepalive::seq::{Order, SeqWindow};
use segue_keepalive::{Arrival, Config, Server, ServerInput, ServerOutput, State};
use segue_linux::clock;
use segue_linux::udp::Datagram;
use segue_wire::header::flags::REQUEST_REPORT;
use segue_wire::{Header, PacketType, Probe};
use serde::Serialize;

use super::addresses::shown;
use super::endpoint::{Endpoint, Envelope, Given, far_delay};
use super::samples::{Distribution, RttMs, Samples, Stamps};
use super::screen::{loss, ms, percent, stamp_name};
use super::target::News;
use crate::metrics::View;

/// The index and cookie that the client has drawn.
pub(crate) type Key = (u32, u64);

/// One client, from the server's point of view.
pub(crate) struct Session {
    /// Source of its last request.
    pub remote: SocketAddr,
    /// Number of accepted requests.
    pub received: u32,
    /// Number of answers sent.
    pub sent: u32,
    machine: Server,
    /// The latest time that was passed to the machine.
    machine_at: Time,
    window: SeqWindow,
    samples: Samples,
    kernel_stamps: u32,
    answered: Option<Answered>,
}

/// The last answer.
struct Answered {
    given: Given,
    stamped: Time,
    /// Time from its own timestamp to its departure, once the kernel has reported the departure.
    delay: Option<Span>,
}

/// The report on a session.
#[derive(Serialize)]
pub(crate) struct ClientReport {
    client: String,
    session: String,
    state: &'static str,
    received: u32,
    sent: u32,
    rtt_ms: RttMs,
    error_ms: Distribution,
    wakeup_ms: Distribution,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    transitions: u64,
    duplicates: u64,
    reordered: u64,
    stamp: &'static str,
}

impl Session {
    /// A session for a client whose first request came from `remote`; keeps at most `samples_max` samples.
    pub(crate) fn new(
        remote: SocketAddr,
        config: &Config,
        now: Time,
        seed: u64,
        samples_max: usize,
    ) -> Session {
        Session {
            remote,
            received: 0,
            sent: 0,
            machine: Server::new(config.clone(), now, false),
            machine_at: now,
            window: SeqWindow::new(),
            samples: Samples::new(samples_max, seed),
            kernel_stamps: 0,
            answered: None,
        }
    }

    /// t_Ss of the last answer, which the client repeats; `None` before the first answer.
    pub(crate) fn stamped(&self) -> Option<u32> {
        self.answered.as_ref().map(|last| last.stamped.micros32())
    }

    /// When to call [`Session::tick`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.machine.deadline().map(|(at, _)| at)
    }

    /// True if this request is new. A duplicate would hide a loss in the counters, and is not answered again.
    pub(crate) fn is_new(&mut self, probe: &Probe) -> bool {
        !matches!(self.window.observe(probe.seq, Some(probe.t_sc)), Order::Duplicate | Order::Stale)
    }

    /// Answers a request and measures from it. The answer has the length of the request and, if `echo_class`, its
    /// traffic class.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn on_request(
        &mut self,
        end: &mut Endpoint,
        datagram: &Datagram,
        (header, probe): (&Header, &Probe),
        echo_class: bool,
    ) -> io::Result<Vec<News>> {
        self.remote = datagram.source;
        self.received = self.received.wrapping_add(1);
        self.kernel_stamps += u32::from(datagram.kernel_stamp);
        let (uncertainty, stamps) = self.uncertainty(datagram, probe);
        self.answer(end, datagram, header, probe, echo_class)?;
        let arrival = Arrival { uncertainty, ..Arrival::new(*probe, datagram.at, self.received) };
        Ok(self.learn(arrival, header, stamps))
    }

    /// Reports a duplicate request to the machine.
    pub(crate) fn on_repeated(
        &mut self,
        datagram: &Datagram,
        header: &Header,
        probe: &Probe,
    ) -> Vec<News> {
        let arrival = Arrival::new(*probe, datagram.at, self.received);
        self.learn(arrival, header, Stamps::default())
    }

    /// Runs due timers.
    pub(crate) fn tick(&mut self, now: Time) -> Vec<News> {
        self.machine_at = self.machine_at.max(now);
        self.machine.tick(self.machine_at);
        self.drain(Stamps::default())
    }

    /// Passes the request to the machine with its arrival time, not the time of reading: requests that waited for a
    /// busy process were in time.
    fn learn(&mut self, arrival: Arrival, header: &Header, stamps: Stamps) -> Vec<News> {
        self.machine_at = self.machine_at.max(arrival.at);
        let report = header.flags & REQUEST_REPORT != 0;
        let request = ServerInput::Request { arrival, k: header.k, report };
        self.machine.handle(self.machine_at, request);
        self.drain(stamps)
    }

    fn drain(&mut self, stamps: Stamps) -> Vec<News> {
        let mut news = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                ServerOutput::State(state) => news.push(News::State(state)),
                ServerOutput::Sample(sample) => {
                    self.samples.take(&sample, stamps);
                    let rtt_ewma = self.machine.estimates().rtt_ewma.clone();
                    news.push(News::Sample { sample, stamps, rtt_ewma });
                }
                // Never requested here.
                ServerOutput::SendUnsolicited(_) => {}
            }
        }
        news
    }

    /// Error bound of the round-trip time from this request. That time runs from the last answer's timestamp to this
    /// arrival, minus the time that the client held the answer.
    fn uncertainty(&self, datagram: &Datagram, request: &Probe) -> (Span, Stamps) {
        let echoed = self.answered.as_ref().filter(|last| last.stamped.micros32() == request.t_ss);
        let delay = echoed.and_then(|last| last.delay);
        let own = delay.or(echoed.map(|last| last.given.within)).unwrap_or(Span::ZERO);
        let far = far_delay(request.heard);
        let stamps = Stamps {
            tx: delay.is_some(),
            rx: datagram.kernel_stamp,
            far: far.is_some(),
            wakeup: datagram.seen.since(datagram.at),
        };
        (own + datagram.error + far.unwrap_or(Span::ZERO) + STAMP_TO_WIRE, stamps)
    }

    fn answer(
        &mut self,
        end: &mut Endpoint,
        datagram: &Datagram,
        header: &Header,
        request: &Probe,
        echo_class: bool,
    ) -> io::Result<()> {
        self.sent = self.sent.wrapping_add(1);
        let heard = end.heard(true);
        let envelope = Envelope {
            to: datagram.source,
            from: datagram.local,
            // Only the DSCP: congestion marks belong to the network.
            class: datagram.class.map(|class| class & 0xfc).filter(|_| echo_class),
            length: datagram.len,
        };
        // Take the timestamp last, as close to sending as possible. The arrival time is the kernel's, so this process's
        // wake-up time counts as held, not as network delay.
        let stamped = clock::monotonic();
        let t_ss = stamped.micros32();
        let dt = t_ss.wrapping_sub(datagram.at.micros32());
        let response = Probe { t_ss, dt, ss: self.sent, r: self.received, heard, ..*request };
        let header = Header { packet_type: PacketType::Response, ..*header };
        // An answer that cannot be sent counts as lost.
        let given = end.send(&header, &response, stamped, envelope);
        self.answered = given.ok().map(|given| Answered { given, stamped, delay: None });
        while let Some(left) = end.left()? {
            if let Some(last) = self.answered.as_mut().filter(|last| last.given.id == left.id) {
                last.delay = Some(left.at.since(last.stamped) + left.error);
            }
        }
        Ok(())
    }

    /// The values for metrics.
    pub(crate) fn view<'a>(
        &'a self,
        labels: Vec<(&'static str, String)>,
        config: &'a Config,
    ) -> View<'a> {
        View {
            labels,
            estimates: self.machine.estimates(),
            taus: &config.taus,
            state: self.machine.state(),
            sent: self.sent.into(),
            received: self.received.into(),
            uncertainty: self.samples.last_error(),
        }
    }

    /// The values for reports.
    pub(crate) fn report(&self, (index, _): Key) -> ClientReport {
        let estimates = self.machine.estimates();
        ClientReport {
            client: shown(self.remote),
            session: format!("{index:08x}"),
            state: self.machine.state().name(),
            received: self.received,
            sent: self.sent,
            rtt_ms: self.samples.summary(estimates),
            error_ms: self.samples.errors(),
            wakeup_ms: self.samples.wakeups(),
            owl_up: loss(estimates.up),
            owl_down: loss(estimates.down),
            transitions: estimates.transitions,
            duplicates: estimates.duplicates,
            reordered: estimates.reordered,
            stamp: stamp_name(self.kernel_stamps.into(), self.received.into()),
        }
    }

    /// State of the client.
    pub(crate) fn state(&self) -> State {
        self.machine.state()
    }
}

impl ClientReport {
    /// The report as a line of text.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} [{}] {}  rtt {} ms ±{} (min {}, max {})  loss up {} down {}  {} requests, {} timestamps",
            self.client,
            self.session,
            self.state,
            ms(self.rtt_ms.ewma),
            ms(self.error_ms.p50),
            ms(self.rtt_ms.min),
            ms(self.rtt_ms.max),
            percent(self.owl_up),
            percent(self.owl_down),
            self.received,
            self.stamp
        )
    }
}
