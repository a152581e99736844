//! Traffic through the tunnel while its paths change, and how long each flow was silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_clock::{Rng, Span, Time};
use segue_lab::DemoNet;
use segue_linux::clock::monotonic;
use serde_json::Value;

use super::stage::{Stage, patiently};
use super::voice::{Look, Mode, Voice, longest_silence};

/// A kind of traffic through the tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flow {
    /// Datagrams at this interval in milliseconds.
    Udp(u64, Mode),
    /// A TCP stream of 4 Mbit/s, from or to the host.
    Tcp { down: bool },
}

impl Flow {
    /// The interval between two packets in milliseconds.
    pub(crate) fn interval_ms(self) -> f64 {
        match self {
            Flow::Udp(every, _) => every as f64,
            Flow::Tcp { .. } => 5.0,
        }
    }

    pub(crate) fn comes_down_only(self) -> bool {
        matches!(self, Flow::Udp(_, Mode::Ways([false, true])))
    }
}

/// A running flow. Dropping it ends the flow.
pub(crate) enum Running {
    Udp(Voice, Mode),
    Tcp(Stream),
}

/// A TCP connection and the arrival times of its data.
pub(crate) struct Stream {
    port: u16,
    arrivals: Arc<Mutex<Vec<Time>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Stream {
    fn start(stage: &Stage, port: u16, down: bool) -> Stream {
        let listener =
            stage.net.cn().run(|| TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
        let connect = || TcpStream::connect((DemoNet::CN.0, port)).ok();
        let host = patiently("a connection", || stage.net.host().run(connect).unwrap());
        let (cn, _) = listener.accept().unwrap();
        let own = host.local_addr().unwrap().port();
        let (mut from, mut to) = if down { (cn, host) } else { (host, cn) };
        let (stop, arrivals) =
            (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Time>>>::default());
        to.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        from.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        from.set_nodelay(true).unwrap();
        let ends = Arc::clone(&stop);
        let sends = std::thread::spawn(move || {
            let chunk = [1u8; 2_500];
            while !ends.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                let _ = from.write(&chunk);
            }
        });
        let (ends, came) = (Arc::clone(&stop), Arc::clone(&arrivals));
        let takes = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                if to.read(&mut buffer).is_ok_and(|n| n > 0) {
                    came.lock().unwrap().push(monotonic());
                }
            }
        });
        Stream { port: own, arrivals, stop, threads: vec![sends, takes] }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Running {
    pub(crate) fn start(stage: &Stage, flow: Flow, port: u16) -> Running {
        match flow {
            Flow::Udp(every, mode) => {
                Running::Udp(Voice::start_as(stage, port, Span::from_millis(every), mode), mode)
            }
            Flow::Tcp { down } => Running::Tcp(Stream::start(stage, port, down)),
        }
    }

    /// A flow of datagrams that look like `look`, in both directions.
    pub(crate) fn like(stage: &Stage, every_ms: u64, look: Look, port: u16) -> Running {
        let mode = Mode::Ways([true, true]);
        let interval = Span::from_millis(every_ms);
        Running::Udp(Voice::start_like(stage, port, interval, mode, look), mode)
    }

    /// The port at the host.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Running::Udp(voice, _) => voice.port,
            Running::Tcp(stream) => stream.port,
        }
    }

    /// The longest silence in any direction of the flow.
    pub(crate) fn longest(&self, from: Time, to: Time) -> Span {
        match self {
            Running::Udp(voice, mode) => {
                let [up, down] = voice.gaps(from, to);
                match mode {
                    Mode::Ways([true, false]) => up,
                    Mode::Ways([false, true]) => down,
                    Mode::Ways(_) | Mode::Echo => up.max(down),
                }
            }
            Running::Tcp(stream) => {
                longest_silence(stream.arrivals.lock().unwrap().iter().copied(), from, to)
            }
        }
    }

    /// Waits until the flow is on wifi and has stayed there for a random time.
    pub(crate) fn settle(&self, stage: &Stage, rng: &mut Rng) {
        let uses_wifi = |flow: &Value| flow["path"] == "wifi" && flow["via"].is_null();
        patiently("the flow uses the short path and stays there", || {
            stage.use_path("wifi");
            stage.flow(self.port()).filter(uses_wifi)?;
            std::thread::sleep(Duration::from_micros(1_200_000 + rng.below(300_000)));
            stage.flow(self.port()).filter(uses_wifi)
        });
    }
}
