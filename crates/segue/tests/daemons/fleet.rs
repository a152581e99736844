//! Hosts without a daemon: they register, set up paths and probe them according to the wire formats. Many run in one
//! process, and they can misbehave in ways that a daemon never would.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use quinn::{Connection, Endpoint, SendStream};
use segue_daemon::identity::{
    ANCHOR_NAME, Credentials, Join, new_key, request as certificate_request,
};
use segue_daemon::signalling::{self, Messages, Worker};
use segue_linux::netns::Netns;
use segue_wire::enrol::{ENROL_VERSION, Enrolled, ToEnrol};
use segue_wire::header::PacketType;
use segue_wire::signal::{FromAnchor, FromHost, PathGrant, PathOffer, SIGNAL_VERSION};
use segue_wire::{Encapsulation, Header, Mode, Probe, ProbeKey};

use crate::world::PATIENCE;

const TUNNEL_PORT: u16 = 5005;
/// Probing of a fleet's paths.
const K: u8 = 5;
const T_KA: Duration = Duration::from_millis(200);

/// The credentials of an enrolled host.
pub(crate) struct Member {
    anchor: SocketAddr,
    authority: Vec<u8>,
    host: Credentials,
}

impl Member {
    /// Enrols a host from a node with its join line.
    pub(crate) fn enrol(worker: &Arc<Worker>, node: &Netns, line: &str) -> Member {
        let join: Join = line.parse().unwrap();
        let key = new_key().unwrap();
        let answer = ask_to_be_enrolled(worker, node, &join, &key);
        let Enrolled::Certificate { certificate } = answer else { panic!("refused") };
        let host = Credentials { certificate, key };
        Member { anchor: join.addresses()[0], authority: join.authority, host }
    }
}

/// Presents a join line with this key; returns the anchor's answer.
pub(crate) fn ask_to_be_enrolled(
    worker: &Arc<Worker>,
    node: &Netns,
    join: &Join,
    key: &[u8],
) -> Enrolled {
    let asked = ToEnrol::Enrol {
        version: ENROL_VERSION,
        name: join.name.clone(),
        token: join.token,
        request: certificate_request(key).unwrap(),
    };
    let (anchor, socket) = (join.addresses()[0], socket(node));
    let config = signalling::enrolment_config(&join.authority).unwrap();
    let answer = worker.handle().block_on(async {
        let endpoint = signalling::client_endpoint(socket)?;
        let connection = endpoint.connect_with(config, anchor, ANCHOR_NAME)?.await?;
        signalling::enrol(&connection, &asked).await
    });
    answer.unwrap()
}

fn socket(node: &Netns) -> UdpSocket {
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let socket = node.run(|| UdpSocket::bind(any).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A host's signalling connection.
pub(crate) struct Peer {
    worker: Arc<Worker>,
    endpoint: Endpoint,
    pub connection: Connection,
    write: SendStream,
    read: Messages,
    anchor: SocketAddr,
}

impl Peer {
    /// Connects from a node; fails if the handshake fails.
    pub(crate) fn connect(
        worker: &Arc<Worker>,
        node: &Netns,
        member: &Member,
    ) -> anyhow::Result<Peer> {
        let (anchor, socket) = (member.anchor, socket(node));
        let config = signalling::client_config(&member.authority, &member.host)?;
        let connected = async {
            let endpoint = signalling::client_endpoint(socket)?;
            let attempt = endpoint.connect_with(config, anchor, ANCHOR_NAME)?;
            let connection = tokio::time::timeout(PATIENCE, attempt).await??;
            let (write, read) = connection.open_bi().await?;
            anyhow::Ok((endpoint, connection, write, Messages::new(read)))
        };
        let (endpoint, connection, write, read) = worker.handle().block_on(connected)?;
        Ok(Peer { worker: Arc::clone(worker), endpoint, connection, write, read, anchor })
    }

    pub(crate) fn send(&mut self, message: &FromHost) -> anyhow::Result<()> {
        self.worker.handle().block_on(signalling::send(&mut self.write, message))
    }

    /// The anchor's next message; `None` if it closes the connection or stays silent too long.
    pub(crate) fn receive(&mut self) -> Option<FromAnchor> {
        self.receive_within(PATIENCE)
    }

    /// Like [`receive`](Peer::receive), with a time limit. Skips the anchor's reports of its uplinks and its device,
    /// which are irrelevant here.
    pub(crate) fn receive_within(&mut self, time: Duration) -> Option<FromAnchor> {
        let read = &mut self.read;
        let next = async {
            loop {
                match read.next::<FromAnchor>().await {
                    Ok(Some(FromAnchor::WaysOut(_) | FromAnchor::Largest { .. })) => {}
                    next => return next,
                }
            }
        };
        let next = async { tokio::time::timeout(time, next).await };
        self.worker.handle().block_on(next).ok()?.ok()?
    }

    /// Registers and returns the inner IPv4 address.
    pub(crate) fn register(&mut self, epoch: u64) -> Option<Ipv4Addr> {
        self.send(&FromHost::Register { version: SIGNAL_VERSION, epoch }).ok()?;
        let Some(FromAnchor::Registered { inner, .. }) = self.receive() else { return None };
        inner.into_iter().find_map(|address| match address {
            std::net::IpAddr::V4(v4) => Some(v4),
            std::net::IpAddr::V6(_) => None,
        })
    }

    /// The offer for a path.
    pub(crate) fn offer(number: u8) -> PathOffer {
        PathOffer {
            path: number,
            name: format!("p{number}"),
            index: u32::from(number),
            cookie: 1 + u64::from(number),
            k: K,
            t_ka_ms: T_KA.as_millis() as u16,
            mode: Mode::Both,
            rides: false,
            encapsulation: Encapsulation::Segue,
            n: 10,
            taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
            follows_use: false,
            largest: 1_456,
            v6: false,
            checksums: false,
        }
    }

    /// Sets up a path.
    pub(crate) fn add_path(&mut self, number: u8) -> PathGrant {
        self.send(&FromHost::AddPath(Peer::offer(number))).unwrap();
        match self.receive() {
            Some(FromAnchor::PathReady(grant)) => grant,
            other => panic!("no path: {other:?}"),
        }
    }

    /// The anchor's address for tunnel packets.
    pub(crate) fn tunnel(&self) -> SocketAddr {
        SocketAddr::new(self.anchor.ip(), TUNNEL_PORT)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.connection.close(0u8.into(), b"leaving");
        self.endpoint.close(0u8.into(), b"leaving");
    }
}

/// A probe request on a path.
pub(crate) fn request(grant: &PathGrant, key: &ProbeKey, seq: u32) -> [u8; Probe::PACKET_LEN] {
    let header = Header::new(PacketType::Request, K, grant.index, grant.cookie);
    let t_ka_ms = T_KA.as_millis() as u16;
    Probe { seq, sc: seq, heard: u16::MAX, t_ka_ms, ..Probe::default() }.seal(&header, key)
}

/// A tunnel data packet with a datagram inside.
pub(crate) fn data(index: u32, cookie: u64, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let header = Header::new(PacketType::Data, 0, index, cookie);
    let mut packet = header.emit().to_vec();
    PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), 64)
        .udp(from.port(), to.port())
        .write(&mut packet, b"in the tunnel")
        .unwrap();
    packet
}

/// Paths that a thread probes until this is dropped.
pub(crate) struct Fleet {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    pub grants: Vec<PathGrant>,
    _peers: Vec<Peer>,
}

impl Fleet {
    /// Registers these hosts from a node and sets up `paths` paths in total, at most sixteen per host.
    pub(crate) fn start(
        worker: &Arc<Worker>,
        node: &Netns,
        members: &[Member],
        paths: usize,
    ) -> Fleet {
        let mut peers = Vec::new();
        let mut probed = Vec::new();
        for member in members {
            let mut peer = Peer::connect(worker, node, member).unwrap();
            peer.register(1).expect("registered");
            for number in 0..(paths - probed.len()).min(segue_wire::MAX_PATHS) {
                let socket = node.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
                socket.connect(peer.tunnel()).unwrap();
                socket.set_nonblocking(true).unwrap();
                probed.push((socket, peer.add_path(number as u8)));
            }
            peers.push(peer);
        }
        assert_eq!(probed.len(), paths);
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let grants = probed.iter().map(|(_, grant)| grant.clone()).collect();
        let told = (Arc::clone(&stop), Arc::clone(&answered));
        let thread = std::thread::spawn(move || probe(&probed, &told.0, &told.1));
        Fleet { stop, answered, thread: Some(thread), grants, _peers: peers }
    }

    /// Number of responses so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn probe(paths: &[(UdpSocket, PathGrant)], stop: &AtomicBool, answered: &AtomicU64) {
    let keys: Vec<ProbeKey> = paths.iter().map(|(_, grant)| ProbeKey(grant.key)).collect();
    let mut buffer = [0; 2_048];
    let mut due = Instant::now();
    for seq in 1.. {
        for ((socket, grant), key) in paths.iter().zip(&keys) {
            while socket.recv(&mut buffer).is_ok_and(|n| n == Probe::PACKET_LEN) {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            let _ = socket.send(&request(grant, key, seq));
        }
        due += T_KA;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}
