//! The demonstration's traffic: a TCP download and a voice-like UDP flow in each direction, between
//! the host's inner address and the correspondent node.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use segue_linux::netns::Netns;
use socket2::{Domain, Socket, Type};

use super::VOICE_INTERVAL;

/// Port of the download's server.
pub(crate) const TCP_PORT: u16 = 8080;
/// Port of the voice flow at both ends.
pub(crate) const VOICE_PORT: u16 = 40_000;
/// Payload of a voice packet: 20 ms of G.711.
const VOICE_BYTES: usize = 160;
/// Expedited Forwarding in the type-of-service byte.
const EF: u32 = 46 << 2;
/// How often a receiver checks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);
/// Errors of a read that found nothing; `Interrupted` if a signal interrupted the thread (signal(7)).
const NOTHING_YET: [ErrorKind; 3] =
    [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];

/// Running traffic.
pub struct Traffic {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    start_ns: AtomicU64,
    tcp: Mutex<Tcp>,
    up: Mutex<Voice>,
    down: Mutex<Voice>,
}

/// One direction of the voice flow. Times are in seconds from the start.
#[derive(Clone, Debug, Default)]
pub struct Voice {
    /// Departure of each packet, by number.
    pub sent: Vec<f64>,
    /// Number and arrival of each packet received.
    pub received: Vec<(u32, f64)>,
}

/// The download. Times are in seconds from the start.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// Bytes received.
    pub bytes: u64,
    /// Arrival and size of each read.
    pub reads: Vec<(f64, usize)>,
    /// Connections that were opened.
    pub connections: u32,
    /// Connections that broke before the end.
    pub broken: u32,
}

/// Results of the traffic.
pub struct Seen {
    /// From the host to the correspondent.
    pub up: Voice,
    /// From the correspondent to the host.
    pub down: Voice,
    /// The download.
    pub tcp: Tcp,
}

/// The ends of the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The host's node.
    pub host: &'a Netns,
    /// The correspondent's node.
    pub cn: &'a Netns,
    /// The correspondent's address.
    pub address: IpAddr,
    /// The host's address, of the same family.
    pub inner: IpAddr,
}

impl Ends<'_> {
    /// The unspecified address of their family.
    fn any(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

impl Traffic {
    /// Starts all traffic.
    pub fn start(ends: &Ends<'_>, start: Time) -> anyhow::Result<Traffic> {
        let mut traffic = Traffic::voice_alone(ends, start)?;
        let s = Arc::clone(&traffic.shared);
        traffic.spawn(vec![tcp_server(&s, ends)?, tcp_client(&s, ends)?])?;
        Ok(traffic)
    }

    /// Starts only the voice flow.
    pub fn voice_alone(ends: &Ends<'_>, start: Time) -> anyhow::Result<Traffic> {
        let shared = Arc::new(Shared::default());
        shared.start_ns.store(start.0, Ordering::Relaxed);
        let mut traffic = Traffic { shared, threads: Vec::new() };
        let cn = SocketAddr::new(ends.address, VOICE_PORT);
        let host = SocketAddr::new(ends.inner, VOICE_PORT);
        let at_host = Arc::new(ends.host.run(|| voice_socket(host))??);
        let at_cn = SocketAddr::new(ends.any(), VOICE_PORT);
        let at_cn = Arc::new(ends.cn.run(|| voice_socket(at_cn))??);
        let s = &traffic.shared;
        let jobs: Vec<Box<dyn FnOnce() + Send>> = vec![
            voice_sender(s, at_host.clone(), cn, |s| &s.up),
            voice_sender(s, at_cn.clone(), host, |s| &s.down),
            voice_receiver(s, at_cn, |s| &s.up),
            voice_receiver(s, at_host, |s| &s.down),
        ];
        traffic.spawn(jobs)?;
        Ok(traffic)
    }

    fn spawn(&mut self, jobs: Vec<Box<dyn FnOnce() + Send>>) -> anyhow::Result<()> {
        for job in jobs {
            let thread = std::thread::Builder::new().name("demo-traffic".into());
            self.threads.push(thread.spawn(job)?);
        }
        Ok(())
    }

    /// Bytes downloaded so far.
    pub fn tcp_bytes(&self) -> u64 {
        lock(&self.shared.tcp).bytes
    }

    /// Voice packets up to this moment, (sent, received), up and down.
    pub fn voice(&self) -> [(usize, usize); 2] {
        [&self.shared.up, &self.shared.down].map(|voice| {
            let voice = lock(voice);
            (voice.sent.len(), voice.received.len())
        })
    }

    /// Stops all traffic and returns the results.
    pub fn stop(self) -> Seen {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
        Seen {
            up: lock(&self.shared.up).clone(),
            down: lock(&self.shared.down).clone(),
            tcp: lock(&self.shared.tcp).clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn now(&self) -> f64 {
        monotonic().as_secs_f64() - Time(self.start_ns.load(Ordering::Relaxed)).as_secs_f64()
    }
}

fn voice_socket(at: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    match at {
        SocketAddr::V4(_) => socket.set_tos_v4(EF)?,
        SocketAddr::V6(_) => socket.set_tclass_v6(EF)?,
    }
    socket.bind(&at.into()).with_context(|| format!("the voice flow cannot use {at}"))?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

fn voice_sender(
    shared: &Arc<Shared>,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    side: fn(&Shared) -> &Mutex<Voice>,
) -> Box<dyn FnOnce() + Send> {
    let shared = Arc::clone(shared);
    Box::new(move || {
        let interval = Span(VOICE_INTERVAL.as_nanos() as u64);
        let mut next = monotonic();
        let mut number = 0u32;
        while !shared.stopped() {
            let mut packet = [0; VOICE_BYTES];
            packet[..4].copy_from_slice(&number.to_be_bytes());
            lock(side(&shared)).sent.push(shared.now());
            // A packet that the kernel refuses (briefly no route) counts as lost.
            let _ = socket.send_to(&packet, to);
            number += 1;
            next += interval;
            std::thread::sleep(Duration::from_nanos(next.since(monotonic()).0));
        }
    })
}

fn voice_receiver(
    shared: &Arc<Shared>,
    socket: Arc<UdpSocket>,
    side: fn(&Shared) -> &Mutex<Voice>,
) -> Box<dyn FnOnce() + Send> {
    let shared = Arc::clone(shared);
    Box::new(move || {
        let mut packet = [0; 2048];
        while !shared.stopped() {
            if let Ok((VOICE_BYTES, _)) = socket.recv_from(&mut packet) {
                let number = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
                lock(side(&shared)).received.push((number, shared.now()));
            }
        }
    })
}

/// Sends data endlessly to every client.
fn tcp_server(shared: &Arc<Shared>, ends: &Ends<'_>) -> anyhow::Result<Box<dyn FnOnce() + Send>> {
    let listener = ends.cn.run(|| TcpListener::bind((ends.any(), TCP_PORT)))??;
    listener.set_nonblocking(true)?;
    let shared = Arc::clone(shared);
    Ok(Box::new(move || {
        let block = [0x5e; 16 * 1024];
        while !shared.stopped() {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_write_timeout(Some(LOOK));
            while !shared.stopped() {
                match stream.write(&block) {
                    Ok(_) => {}
                    Err(e) if NOTHING_YET.contains(&e.kind()) => {}
                    Err(_) => break,
                }
            }
        }
    }))
}

/// Downloads over one connection. Opens another only if that breaks, which it counts.
fn tcp_client(shared: &Arc<Shared>, ends: &Ends<'_>) -> anyhow::Result<Box<dyn FnOnce() + Send>> {
    let server = SocketAddr::new(ends.address, TCP_PORT);
    let socket = || ends.host.run(|| Socket::new(Domain::for_address(server), Type::STREAM, None));
    let mut spare = vec![socket()??, socket()??, socket()??, socket()??];
    let shared = Arc::clone(shared);
    Ok(Box::new(move || {
        let mut buffer = vec![0; 256 * 1024];
        while let (false, Some(socket)) = (shared.stopped(), spare.pop()) {
            if socket.connect_timeout(&server.into(), Duration::from_secs(5)).is_err() {
                lock(&shared.tcp).broken += 1;
                continue;
            }
            lock(&shared.tcp).connections += 1;
            let mut stream = std::net::TcpStream::from(socket);
            let _ = stream.set_read_timeout(Some(LOOK));
            while !shared.stopped() {
                match stream.read(&mut buffer) {
                    Ok(n) if n > 0 => {
                        let at = shared.now();
                        let mut tcp = lock(&shared.tcp);
                        tcp.bytes += n as u64;
                        tcp.reads.push((at, n));
                    }
                    // A read with a timeout also ends when a signal interrupts the thread (signal(7)).
                    Err(e) if NOTHING_YET.contains(&e.kind()) => {}
                    Ok(_) | Err(_) => {
                        if !shared.stopped() {
                            lock(&shared.tcp).broken += 1;
                        }
                        break;
                    }
                }
            }
        }
    }))
}
