//! Applications: echoing correspondents, numbered datagrams in both directions, a verified TCP stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::world::PATIENCE;

/// Both addresses of the correspondent.
pub(crate) fn correspondents() -> [IpAddr; 2] {
    [DemoNet::CN.0.into(), DemoNet::CN.1.into()]
}

pub(crate) fn udp(node: &Netns, local: SocketAddr) -> UdpSocket {
    let socket = node.run(|| UdpSocket::bind(local).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket
}

/// The unspecified address in the family of `like`, with any port.
pub(crate) fn any(like: IpAddr) -> SocketAddr {
    match like {
        IpAddr::V4(_) => "0.0.0.0:0".parse().unwrap(),
        IpAddr::V6(_) => "[::]:0".parse().unwrap(),
    }
}

/// A thread. Dropping it stops and joins the thread.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        Worker { stop, thread: Some(std::thread::spawn(move || work(&told))) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Echoes every datagram.
pub(crate) struct UdpEcho {
    pub address: SocketAddr,
    _worker: Worker,
}

impl UdpEcho {
    pub(crate) fn start(node: &Netns, ip: IpAddr) -> UdpEcho {
        let socket = udp(node, SocketAddr::new(ip, 0));
        let address = socket.local_addr().unwrap();
        let worker = Worker::start(move |stop| {
            let mut buffer = [0; 65_536];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..len], from);
                }
            }
        });
        UdpEcho { address, _worker: worker }
    }
}

/// Sends one datagram once; returns the local address and the round trip if it was echoed.
pub(crate) fn one_datagram(node: &Netns, to: SocketAddr) -> Option<(SocketAddr, Duration)> {
    let socket = udp(node, any(to.ip()));
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).unwrap();
    let start = Instant::now();
    socket.send(b"the first packet").unwrap();
    let mut buffer = [0; 64];
    let len = socket.recv(&mut buffer).ok()?;
    assert_eq!(&buffer[..len], b"the first packet");
    Some((socket.local_addr().unwrap(), start.elapsed()))
}

/// Fifty numbered datagrams per second in each direction on one flow that the host opens.
pub(crate) struct Voice {
    pub host: SocketAddr,
    up: Way,
    down: Way,
    _workers: Vec<Worker>,
}

/// Counters of one direction.
#[derive(Clone, Default)]
struct Way {
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    /// Longest time between two arrivals in microseconds.
    gap_us: Arc<AtomicU64>,
    halt: Arc<AtomicBool>,
}

/// The outcome of a voice flow, per direction.
pub(crate) struct Heard {
    pub sent: [u64; 2],
    pub lost: [u64; 2],
    pub gap_ms: [u64; 2],
}

const SPACING: Duration = Duration::from_millis(20);

impl Voice {
    /// Starts the flow and waits until datagrams arrive in both directions.
    pub(crate) fn start(host: &Netns, cn: &Netns, ip: IpAddr) -> Voice {
        let far = udp(cn, SocketAddr::new(ip, 0));
        let far_address = far.local_addr().unwrap();
        let near = udp(host, any(ip));
        near.connect(far_address).unwrap();
        near.send(b"hello").unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let (_, near_address) = far.recv_from(&mut [0; 64]).expect("the first datagram arrives");
        far.connect(near_address).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (up, down) = (Way::default(), Way::default());
        let workers = vec![
            sender(near.try_clone().unwrap(), up.clone()),
            receiver(far.try_clone().unwrap(), up.clone()),
            sender(far, down.clone()),
            receiver(near, down.clone()),
        ];
        let voice = Voice { host: near_address, up, down, _workers: workers };
        crate::world::wait_for("voice flows", || {
            [&voice.up, &voice.down].iter().all(|way| way.received.load(Ordering::Relaxed) > 3)
        });
        voice
    }

    /// Resets the longest gap.
    pub(crate) fn mark(&self) {
        for way in [&self.up, &self.down] {
            way.gap_us.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn gap_ms(&self) -> [u64; 2] {
        [&self.up, &self.down].map(|way| way.gap_us.load(Ordering::Relaxed) / 1_000)
    }

    pub(crate) fn received(&self) -> [u64; 2] {
        [&self.up, &self.down].map(|way| way.received.load(Ordering::Relaxed))
    }

    /// Waits until `more` further datagrams have arrived in each direction.
    pub(crate) fn flows_on(&self, more: u64) {
        let before = self.received();
        crate::world::wait_for("voice flows on", || {
            let now = self.received();
            now[0] >= before[0] + more && now[1] >= before[1] + more
        });
    }

    /// Stops sending, lets packets in flight arrive, and returns the losses.
    pub(crate) fn finish(self) -> Heard {
        let ways = [&self.up, &self.down];
        for way in ways {
            way.halt.store(true, Ordering::Relaxed);
        }
        let load = |counter: &Arc<AtomicU64>| counter.load(Ordering::Relaxed);
        let start = Instant::now();
        // The senders need a moment to notice, and packets in flight on a busy machine a little more.
        std::thread::sleep(Duration::from_millis(600));
        let arrived = |way: &Way| load(&way.received) >= load(&way.sent);
        while !ways.into_iter().all(arrived) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        Heard {
            sent: ways.map(|way| load(&way.sent)),
            lost: ways.map(|way| load(&way.sent).saturating_sub(load(&way.received))),
            gap_ms: self.gap_ms(),
        }
    }
}

fn sender(socket: UdpSocket, way: Way) -> Worker {
    Worker::start(move |stop| {
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) && !way.halt.load(Ordering::Relaxed) {
            let mut datagram = [0; 172];
            let number = way.sent.load(Ordering::Relaxed);
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            // A refused datagram counts as lost.
            let _ = socket.send(&datagram);
            way.sent.fetch_add(1, Ordering::Relaxed);
            next += SPACING;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    })
}

fn receiver(socket: UdpSocket, way: Way) -> Worker {
    Worker::start(move |stop| {
        let mut seen = std::collections::BTreeSet::new();
        let mut last = Instant::now();
        let mut buffer = [0; 2_048];
        while !stop.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(172) => {}
                _ => continue,
            }
            let number = u64::from_be_bytes(buffer[..8].try_into().unwrap());
            if seen.insert(number) {
                way.received.fetch_add(1, Ordering::Relaxed);
            }
            let gap = last.elapsed().as_micros() as u64;
            way.gap_us.fetch_max(gap, Ordering::Relaxed);
            last = Instant::now();
        }
    })
}

/// A TCP connection on which the correspondent echoes everything.
pub(crate) struct Stream {
    pub host: SocketAddr,
    echoed: Arc<AtomicU64>,
    broken: Arc<AtomicBool>,
    ends: [TcpStream; 2],
    _workers: Vec<Worker>,
}

impl Drop for Stream {
    /// Unblocks threads that wait for the other end, which may be gone.
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    }
}

const CHUNK: usize = 4_096;

impl Stream {
    /// Connects, and sends chunks with a pause of `pause` in between.
    pub(crate) fn start(host: &Netns, cn: &Netns, ip: IpAddr, pause: Duration) -> Stream {
        let (near, far) = connect(host, cn, ip);
        let echoed = Arc::new(AtomicU64::new(0));
        let broken = Arc::new(AtomicBool::new(false));
        let host = near.local_addr().unwrap();
        let ends = [&near, &far].map(|end| end.try_clone().unwrap());
        // Writes have no timeout: after an outage of all paths, TCP backs off for as long again before it retries, and
        // the connection is not broken.
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        }
        let (out, flag) = (near.try_clone().unwrap(), Arc::clone(&broken));
        let writer = Worker::start(move |stop| write_numbers(out, pause, stop, &flag));
        let flag = Arc::clone(&broken);
        let back = Worker::start(move |stop| send_back(far, stop, &flag));
        let (count, flag) = (Arc::clone(&echoed), Arc::clone(&broken));
        let reader = Worker::start(move |stop| check_numbers(near, stop, &count, &flag));
        Stream { host, echoed, broken, ends, _workers: vec![writer, back, reader] }
    }

    /// Number of bytes that came back intact.
    pub(crate) fn echoed(&self) -> u64 {
        assert!(!self.broken.load(Ordering::Relaxed), "the TCP connection broke");
        self.echoed.load(Ordering::Relaxed)
    }

    /// Waits until `more` further bytes have come back.
    pub(crate) fn flows_on(&self, more: u64) -> Duration {
        let before = self.echoed();
        crate::world::wait_for("TCP flows on", || self.echoed() >= before + more)
    }
}

fn connect(host: &Netns, cn: &Netns, ip: IpAddr) -> (TcpStream, TcpStream) {
    let listener = cn.run(|| TcpListener::bind(SocketAddr::new(ip, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let near = host.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    let near = near.expect("a TCP connection through the tunnel");
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

fn write_numbers(mut out: TcpStream, pause: Duration, stop: &AtomicBool, broken: &AtomicBool) {
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let chunk: Vec<u8> =
            (0..CHUNK as u64 / 8).flat_map(|n| (number + n).to_be_bytes()).collect();
        number += CHUNK as u64 / 8;
        if out.write_all(&chunk).is_err() {
            broken.store(!stop.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        std::thread::sleep(pause);
    }
    let _ = out.shutdown(std::net::Shutdown::Both);
}

/// Reads with a timeout: `Some(0)` if no data arrived, `None` if the connection has ended.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    match stream.read(buffer) {
        Ok(0) => None,
        Ok(len) => Some(len),
        // A wait with a timeout also ends when a signal interrupts the thread (signal(7)).
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Some(0)
        }
        Err(_) => None,
    }
}

fn send_back(mut stream: TcpStream, stop: &AtomicBool, broken: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let sent = read_some(&mut stream, &mut buffer)
            .is_some_and(|len| stream.write_all(&buffer[..len]).is_ok());
        if !sent {
            broken.store(!stop.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
    }
}

fn check_numbers(mut stream: TcpStream, stop: &AtomicBool, count: &AtomicU64, broken: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let Some(len) = read_some(&mut stream, &mut buffer) else {
            broken.store(!stop.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        };
        let from = count.load(Ordering::Relaxed);
        let right = (0..len as u64).all(|i| {
            let at = from + i;
            buffer[i as usize] == (at / 8).to_be_bytes()[(at % 8) as usize]
        });
        if !right {
            broken.store(true, Ordering::Relaxed);
            return;
        }
        count.fetch_add(len as u64, Ordering::Relaxed);
    }
}
