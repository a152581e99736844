//! A flow of small datagrams in each direction at a constant rate.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::DemoNet;
use segue_linux::clock::monotonic;

use super::stage::{Stage, patiently};

/// Default size of a datagram in bytes.
pub(crate) const BYTES: usize = 100;
/// Maximum size of a datagram in bytes.
const MOST: usize = 1_400;

/// Size and code point of the datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub bytes: usize,
    pub dscp: u8,
}

/// The default look.
const PLAIN: Look = Look { bytes: BYTES, dscp: 0 };

/// Send and arrival times of one direction.
#[derive(Debug, Default)]
pub(crate) struct Way {
    sent: Vec<Time>,
    received: Vec<(u32, Time)>,
}

/// Which ends send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Host and correspondent node send independently, each while enabled; both at first.
    Ways([bool; 2]),
    /// The correspondent node echoes each datagram.
    Echo,
}

/// The flow. Dropping it ends it.
pub(crate) struct Voice {
    /// The port at the host.
    pub port: u16,
    interval: Span,
    bytes: usize,
    ways: [Arc<Mutex<Way>>; 2],
    paused: [Arc<AtomicBool>; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Voice {
    /// Starts a flow between the host and `port` of the correspondent node.
    pub(crate) fn start(stage: &Stage, port: u16, interval: Span) -> Voice {
        Voice::start_as(stage, port, interval, Mode::Ways([true, true]))
    }

    /// Like [`start`](Voice::start), in a given mode.
    pub(crate) fn start_as(stage: &Stage, port: u16, interval: Span, mode: Mode) -> Voice {
        Voice::start_like(stage, port, interval, mode, PLAIN)
    }

    /// Like [`start_as`](Voice::start_as), with datagrams of a given look.
    pub(crate) fn start_like(
        stage: &Stage,
        port: u16,
        interval: Span,
        mode: Mode,
        look: Look,
    ) -> Voice {
        let bind = |port: u16| {
            let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
            socket2::SockRef::from(&socket).set_tos_v4(u32::from(look.dscp) << 2).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            socket
        };
        let cn = stage.net.cn().run(|| bind(port)).unwrap();
        let connect = || {
            let socket = bind(0);
            socket.connect((DemoNet::CN.0, port)).unwrap();
            socket
        };
        let host = stage.net.host().run(connect).unwrap();
        let mut voice = Voice {
            port: host.local_addr().unwrap().port(),
            interval,
            bytes: look.bytes,
            ways: Default::default(),
            paused: Default::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        voice.talk(host.try_clone().unwrap(), 0);
        voice.listen(host, 1);
        // The correspondent node starts sending after it has received a datagram.
        let spoken = || cn.recv_from(&mut [0; MOST]).ok();
        let (_, peer) = patiently("the first packet arrives", spoken);
        cn.connect(peer).unwrap();
        match mode {
            Mode::Echo => voice.echo(cn),
            Mode::Ways(_) => {
                voice.talk(cn.try_clone().unwrap(), 1);
                voice.listen(cn, 0);
            }
        }
        if let Mode::Ways(ways) = mode {
            for (paused, speaks) in voice.paused.iter().zip(ways) {
                paused.store(!speaks, Ordering::Relaxed);
            }
        }
        voice
    }

    /// Starts the echo at the correspondent node.
    fn echo(&mut self, socket: UdpSocket) {
        let (ways, stop, bytes) = (self.ways.clone(), Arc::clone(&self.stop), self.bytes);
        self.threads.push(std::thread::spawn(move || {
            let mut packet = vec![0; bytes];
            while !stop.load(Ordering::Relaxed) {
                if socket.recv(&mut packet).is_ok_and(|n| n == bytes) {
                    let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
                    ways[0].lock().unwrap().received.push((number, monotonic()));
                    if socket.send(&packet).is_ok() {
                        ways[1].lock().unwrap().sent.push(monotonic());
                    }
                }
            }
        }));
    }

    fn talk(&mut self, socket: UdpSocket, way: usize) {
        let paused = &self.paused[way];
        let (way, interval, bytes) = (Arc::clone(&self.ways[way]), self.interval, self.bytes);
        let (stop, paused) = (Arc::clone(&self.stop), Arc::clone(paused));
        self.threads.push(std::thread::spawn(move || {
            let mut next = monotonic();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_nanos(next.since(monotonic()).0));
                // A delayed thread skips the datagrams that it missed.
                next = (next + interval).max(monotonic());
                if paused.load(Ordering::Relaxed) {
                    continue;
                }
                let mut way = way.lock().unwrap();
                let mut packet = vec![0; bytes];
                packet[..4].copy_from_slice(&(way.sent.len() as u32).to_be_bytes());
                if socket.send(&packet).is_ok() {
                    way.sent.push(monotonic());
                }
            }
        }));
    }

    fn listen(&mut self, socket: UdpSocket, way: usize) {
        let (way, stop) = (Arc::clone(&self.ways[way]), Arc::clone(&self.stop));
        let bytes = self.bytes;
        self.threads.push(std::thread::spawn(move || {
            let mut packet = vec![0; bytes];
            while !stop.load(Ordering::Relaxed) {
                if socket.recv(&mut packet).is_ok_and(|n| n == bytes) {
                    let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
                    way.lock().unwrap().received.push((number, monotonic()));
                }
            }
        }));
    }

    /// Stops sending in both directions.
    pub(crate) fn pause(&self) {
        self.paused.iter().for_each(|paused| paused.store(true, Ordering::Relaxed));
    }

    /// The longest silence within a window, up and down. A duplicate does not end a silence.
    pub(crate) fn gaps(&self, from: Time, to: Time) -> [Span; 2] {
        [0, 1].map(|way| {
            let way = self.ways[way].lock().unwrap();
            let mut seen = BTreeSet::new();
            let first = way.received.iter().filter(|(number, _)| seen.insert(*number));
            longest_silence(first.map(|(_, at)| *at), from, to)
        })
    }

    /// The longest interval between two sends within a window, up and down: the delay of the test
    /// itself.
    pub(crate) fn pace(&self, from: Time, to: Time) -> [Span; 2] {
        [0, 1].map(|way| {
            let way = self.ways[way].lock().unwrap();
            let pairs = way.sent.windows(2).filter(|p| from <= p[1] && p[0] <= to);
            pairs.map(|p| p[1].since(p[0])).max().unwrap_or(Span::ZERO)
        })
    }

    /// Packets sent within a window that have not arrived, up and down.
    pub(crate) fn lost(&self, from: Time, to: Time) -> [usize; 2] {
        [0, 1].map(|way| {
            let way = self.ways[way].lock().unwrap();
            let came: BTreeSet<u32> = way.received.iter().map(|(number, _)| *number).collect();
            let sent = way.sent.iter().enumerate().filter(|(_, at)| from <= **at && **at <= to);
            sent.filter(|(number, _)| !came.contains(&(*number as u32))).count()
        })
    }
}

/// The longest time between two arrivals that overlaps a window. A silence that has not ended lasts
/// until the end of the window.
pub(crate) fn longest_silence(arrivals: impl Iterator<Item = Time>, from: Time, to: Time) -> Span {
    let arrivals: Vec<Time> = arrivals.chain([to]).collect();
    let pairs = arrivals.windows(2).filter(|p| from <= p[1] && p[0] <= to);
    pairs.map(|p| p[1].since(p[0])).max().unwrap_or(Span(u64::MAX))
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
