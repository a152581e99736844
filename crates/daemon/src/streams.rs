//! Messages over TCP. Connections are opened when there is something to send, or by peers. The machine sees datagrams
//! of protocol 6; an empty one means that the stream from that peer has ended.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use segue_ip::Datagram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::debug;

/// IANA's protocol number of TCP.
pub const TCP: u8 = 6;
/// Most connections, and most connections that one address may open.
const MOST: usize = 1_024;
const OF_ONE: usize = 32;
/// Messages of a connection that may be queued for sending. A full queue ends the connection, so that both sides start
/// over.
const WAITING: usize = 8_192;
/// Messages that may be queued for the machine.
const ARRIVED: usize = 256;
/// How long a connection may take to open.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a started message may make no progress.
const REST: Duration = Duration::from_secs(10);
/// Keepalive time of an idle connection, and how long sent data may stay unacknowledged.
const IDLE: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(10);

/// The length of the message at the start of some bytes, once known; an error if no message starts so.
pub type Length = fn(&[u8]) -> Result<Option<usize>, ()>;

/// Decides whether an address may open a connection.
pub type Allowed = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Connections by peer.
pub struct Streams {
    all: Shared,
    arrived: mpsc::Sender<Datagram>,
    length: Length,
    allowed: Allowed,
}

/// By peer: the number of the connection, and the queue of messages to send.
type Shared = Arc<Mutex<BTreeMap<SocketAddr, (u64, mpsc::Sender<Vec<u8>>)>>>;

/// Numbers connections, because an address may have a new one by the time the old one ends.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The queue of received messages.
pub struct Arrived(mpsc::Receiver<Datagram>);

impl Streams {
    /// Exchanges messages delimited by `length`; listens on a port, if one is given, for the peers that are `allowed`
    /// to connect.
    pub fn open(
        listen: Option<u16>,
        length: Length,
        allowed: Allowed,
    ) -> io::Result<(Streams, Arrived)> {
        let (arrived, waits) = mpsc::channel(ARRIVED);
        let streams = Streams { all: Shared::default(), arrived, length, allowed };
        if let Some(port) = listen {
            let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
            let listener = std::net::TcpListener::bind(any)?;
            listener.set_nonblocking(true)?;
            tokio::spawn(streams.one().accept(TcpListener::from_std(listener)?));
        }
        Ok((streams, Arrived(waits)))
    }

    fn one(&self) -> One {
        let (all, arrived) = (Arc::clone(&self.all), self.arrived.clone());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        One { all, arrived, length: self.length, allowed: Arc::clone(&self.allowed), number }
    }

    /// Sends a message over an existing connection, or opens a new one.
    pub fn send(&self, datagram: &Datagram) -> io::Result<()> {
        let to = SocketAddr::new(datagram.to.0, datagram.to.1);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let full = || io::Error::new(ErrorKind::WouldBlock, "the connection takes no more");
        if let Some((_, connection)) = all.get(&to) {
            let sent = connection.try_send(datagram.bytes.clone());
            if sent.is_err() {
                all.remove(&to);
            }
            return sent.map_err(|_| full());
        }
        if all.len() >= MOST {
            return Err(io::Error::other("too many connections"));
        }
        let (send, waits) = mpsc::channel(WAITING);
        send.try_send(datagram.bytes.clone()).map_err(|_| full())?;
        let one = self.one();
        all.insert(to, (one.number, send));
        tokio::spawn(one.connect(to, waits));
        Ok(())
    }
}

/// The data that a connection's task needs.
#[derive(Clone)]
struct One {
    all: Shared,
    arrived: mpsc::Sender<Datagram>,
    length: Length,
    allowed: Allowed,
    number: u64,
}

impl One {
    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            if !(self.allowed)(from.ip()) {
                continue;
            }
            let (send, waits) = mpsc::channel(WAITING);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            {
                let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
                let of_it = all.keys().filter(|other| other.ip() == from.ip()).count();
                if all.len() >= MOST || of_it >= OF_ONE {
                    continue;
                }
                all.insert(from, (number, send));
            }
            let one = One { number, ..self.clone() };
            tokio::spawn(one.run(stream, from, waits));
        }
    }

    async fn connect(self, to: SocketAddr, waits: mpsc::Receiver<Vec<u8>>) {
        match tokio::time::timeout(PATIENCE, TcpStream::connect(to)).await {
            Ok(Ok(stream)) => self.run(stream, to, waits).await,
            Ok(Err(error)) => {
                debug!("no connection to {to}: {error}");
                self.ended(to, to).await;
            }
            Err(_) => self.ended(to, to).await,
        }
    }

    async fn run(self, stream: TcpStream, peer: SocketAddr, mut waits: mpsc::Receiver<Vec<u8>>) {
        let _ = stream.set_nodelay(true);
        let socket = socket2::SockRef::from(&stream);
        let _ = socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(IDLE));
        let _ = socket.set_tcp_user_timeout(Some(SILENCE));
        let local = stream.local_addr().unwrap_or(peer);
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let (read, mut write) = stream.into_split();
        let reads = self.read(read, (peer, local));
        let writes = async {
            while let Some(bytes) = waits.recv().await {
                write.write_all(&bytes).await?;
            }
            Ok::<(), io::Error>(())
        };
        tokio::select! {
            () = reads => {}
            result = writes => if let Err(error) = result { debug!("{peer}: {error}"); },
        }
        self.ended(peer, local).await;
    }

    async fn read(&self, mut stream: OwnedReadHalf, (peer, local): (SocketAddr, SocketAddr)) {
        let mut bytes = Vec::new();
        loop {
            match (self.length)(&bytes) {
                Err(()) => return,
                Ok(Some(length)) if bytes.len() >= length => {
                    let rest = bytes.split_off(length);
                    let message = std::mem::replace(&mut bytes, rest);
                    if self.arrived.send(datagram(peer, local, message)).await.is_err() {
                        return;
                    }
                    continue;
                }
                Ok(_) => {}
            }
            // A timeout applies only within a message.
            let patience = if bytes.is_empty() { Duration::MAX } else { REST };
            match tokio::time::timeout(patience, stream.read_buf(&mut bytes)).await {
                Ok(Ok(len)) if len > 0 => {}
                _ => return,
            }
        }
    }

    /// Reports the end of a connection to the machine.
    async fn ended(&self, peer: SocketAddr, local: SocketAddr) {
        {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.get(&peer).is_some_and(|(number, _)| *number == self.number) {
                all.remove(&peer);
            }
        }
        let _ = self.arrived.send(datagram(peer, local, Vec::new())).await;
    }
}

fn datagram(peer: SocketAddr, local: SocketAddr, bytes: Vec<u8>) -> Datagram {
    Datagram {
        waited_ns: 0,
        interface: None,
        from: (peer.ip(), peer.port()),
        to: (local.ip(), local.port()),
        protocol: TCP,
        hop_limit: 0,
        bytes,
    }
}

impl Arrived {
    /// Takes all received messages.
    pub fn take(&mut self, context: &mut Context<'_>, mut into: impl FnMut(Datagram)) {
        while let Poll::Ready(Some(datagram)) = self.0.poll_recv(context) {
            into(datagram);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream as Peer};

    use super::*;

    /// Messages begin with their length in two octets; no message begins with zero.
    fn length(bytes: &[u8]) -> Result<Option<usize>, ()> {
        match bytes {
            [0, 0, ..] => Err(()),
            [high, low, ..] => Ok(Some(usize::from(*high) << 8 | usize::from(*low))),
            _ => Ok(None),
        }
    }

    async fn next(arrived: &mut Arrived) -> Datagram {
        let mut found = None;
        let came = poll_fn(|context| {
            match arrived.0.poll_recv(context) {
                Poll::Ready(Some(datagram)) => found = Some(datagram),
                Poll::Ready(None) => panic!("nothing comes any more"),
                Poll::Pending => return Poll::Pending,
            }
            Poll::Ready(())
        });
        tokio::time::timeout(Duration::from_secs(10), came).await.expect("something comes");
        found.expect("it came")
    }

    fn anybody() -> Allowed {
        Arc::new(|_| true)
    }

    /// A port that is free, as far as is known.
    fn port() -> u16 {
        let any = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        any.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn messages_come_whole_and_the_end_of_a_stream_is_told() {
        let port = port();
        let (streams, mut arrived) = Streams::open(Some(port), length, anybody()).unwrap();
        let mut peer = Peer::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        peer.write_all(&[0, 4, 7]).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        peer.write_all(&[8, 0, 3, 9, 0]).unwrap();
        let first = next(&mut arrived).await;
        assert_eq!((first.bytes.as_slice(), first.protocol), (&[0, 4, 7, 8][..], TCP));
        assert_eq!(next(&mut arrived).await.bytes, [0, 3, 9]);
        // The answer uses the existing connection.
        let own = (Ipv4Addr::LOCALHOST.into(), port);
        streams.send(&Datagram { from: own, to: first.from, ..first.clone() }).unwrap();
        let mut answer = [0; 4];
        tokio::task::spawn_blocking(move || {
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [0, 4, 7, 8]);
        })
        .await
        .unwrap();
        let end = next(&mut arrived).await;
        assert_eq!((end.bytes.len(), end.from), (0, first.from));
    }

    #[tokio::test]
    async fn a_stream_that_is_no_messages_is_closed_and_one_that_cannot_be_opened_has_ended() {
        let port = port();
        let (streams, mut arrived) = Streams::open(Some(port), length, anybody()).unwrap();
        let mut peer = Peer::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        peer.write_all(&[0, 0, 1]).unwrap();
        assert!(next(&mut arrived).await.bytes.is_empty());
        let nobody = (Ipv4Addr::LOCALHOST.into(), self::port());
        let own = (Ipv4Addr::LOCALHOST.into(), port);
        let lost = Datagram {
            waited_ns: 0,
            interface: None,
            from: own,
            to: nobody,
            protocol: TCP,
            hop_limit: 0,
            bytes: vec![0, 2],
        };
        streams.send(&lost).unwrap();
        let end = next(&mut arrived).await;
        assert_eq!((end.bytes.len(), end.from), (0, nobody));
    }

    #[tokio::test]
    async fn one_address_does_not_take_all_connections() {
        let port = port();
        let (_streams, mut arrived) = Streams::open(Some(port), length, anybody()).unwrap();
        let mut peers = Vec::new();
        for n in 0..OF_ONE + 5 {
            let mut peer = Peer::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let _ = peer.write_all(&[0, 3, n as u8]);
            peers.push(peer);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for n in 0..OF_ONE {
            assert_eq!(next(&mut arrived).await.bytes, [0, 3, n as u8]);
        }
        // Further ones were closed; another address is accepted.
        let other = std::net::Ipv4Addr::new(127, 0, 0, 2);
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::new(other.into(), 0).into()).unwrap();
        socket.connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port).into()).unwrap();
        Peer::from(socket).write_all(&[0, 3, 99]).unwrap();
        let came = next(&mut arrived).await;
        assert_eq!((came.bytes.as_slice(), came.from.0), (&[0, 3, 99][..], other.into()));
    }

    #[tokio::test]
    async fn a_stranger_is_shut_out() {
        let port = port();
        let nobody: Allowed = Arc::new(|address| address != Ipv4Addr::LOCALHOST);
        let (_streams, mut arrived) = Streams::open(Some(port), length, nobody).unwrap();
        let mut stranger = Peer::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let _ = stranger.write_all(&[0, 3, 1]);
        let other = std::net::Ipv4Addr::new(127, 0, 0, 2);
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::new(other.into(), 0).into()).unwrap();
        socket.connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port).into()).unwrap();
        Peer::from(socket).write_all(&[0, 3, 2]).unwrap();
        assert_eq!(next(&mut arrived).await.bytes, [0, 3, 2]);
    }
}
