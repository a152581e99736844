//! Serves the page of metrics. Each HTTP request has a thread, which requests the page from the measuring thread; that
//! thread renders the page between two probes, and only on request. A slow client, or one that sends half a request,
//! blocks no one: if too many connections are open, the oldest one is closed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Default port.
pub(super) const PORT: u16 = 9_105;
/// How long a client may take to send its request and to read the answer, and how long the measuring thread may take to
/// render the page.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after the system failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum length of a request in bytes.
const REQUEST_MAX: usize = 8_192;
/// Maximum number of open connections; the oldest is closed to make room.
const OPEN_MAX: usize = 64;
/// Maximum number of threads, including threads whose connection was just closed.
const THREADS_MAX: usize = 2 * OPEN_MAX;

/// The measuring thread's side of the server.
pub struct Server {
    address: SocketAddr,
    /// Readable when a page is requested.
    wanted: UnixStream,
    pages: SyncSender<String>,
}

/// Parses `ADDR`, `ADDR:PORT` or `:PORT`. The default is the loopback address, so that the page is never exposed to
/// other machines by accident.
///
/// # Errors
/// One line that shows the form of an address.
pub fn address(text: &str) -> anyhow::Result<SocketAddr> {
    listening(text).with_context(|| {
        format!(
            "--metrics {text}: not an address; examples: :{PORT}, 192.0.2.1:{PORT}, [::1]:{PORT}"
        )
    })
}

/// The same without an error message; `None` if the text is not an address.
#[must_use]
pub fn listening(text: &str) -> Option<SocketAddr> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = |text: &str| Some(SocketAddr::new(local, text.strip_prefix(':')?.parse().ok()?));
    let alone = |text: &str| {
        let host = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        Some(SocketAddr::new(host.unwrap_or(text).parse().ok()?, PORT))
    };
    text.parse().ok().or_else(|| alone(text)).or_else(|| port(text))
}

impl Server {
    /// Starts listening. The thread ends with the process. It inherits the caller's scheduling, so call this before
    /// raising the caller's priority.
    ///
    /// # Errors
    /// The address is unavailable.
    pub fn start(address: SocketAddr) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot serve metrics on {address}"))?;
        let address = listener.local_addr()?;
        let (wanted, ask) = UnixStream::pair()?;
        wanted.set_nonblocking(true)?;
        let (pages, receiver) = sync_channel(1);
        let desk = Arc::new(Desk {
            measuring: Mutex::new((ask, receiver)),
            open: Mutex::new(BTreeMap::new()),
        });
        let serve = move || {
            for number in 0.. {
                match listener.accept() {
                    Ok((stream, _)) => desk.take(number, stream),
                    // Without a free descriptor, the connection stays in the queue, and accepting it would immediately
                    // fail again.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        thread().spawn(serve)?;
        Ok(Server { address, wanted, pages })
    }

    /// The address of its socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when a page is requested, for callers that cannot wait on a borrowed descriptor. Do not read from it.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn wanted(&self) -> io::Result<UnixStream> {
        self.wanted.try_clone()
    }

    /// Sends the page to the waiting client.
    pub fn answer(&self, page: impl FnOnce() -> String) {
        let mut asked = [0; 16];
        if matches!((&self.wanted).read(&mut asked), Ok(1..)) {
            // Only one client waits at a time. A page that is too late is dropped.
            let _ = self.pages.try_send(page());
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wanted.as_fd()
    }
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("segue-metrics".into())
}

/// State that the connection threads share.
struct Desk {
    /// Requests to the measuring thread, for one client at a time.
    measuring: Mutex<(UnixStream, Receiver<String>)>,
    /// Open connections, oldest first.
    open: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

impl Desk {
    /// Serves a new connection in a separate thread.
    fn take(self: &Arc<Desk>, number: u64, stream: TcpStream) {
        // Shared rather than duplicated: there may be no free descriptor.
        let stream = Arc::new(stream);
        let mut open = self.open();
        if open.len() >= OPEN_MAX
            && let Some((_, oldest)) = open.pop_first()
        {
            // The thread of that connection notices that it is closed.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        if Arc::strong_count(self) > THREADS_MAX {
            return;
        }
        open.insert(number, Arc::clone(&stream));
        drop(open);
        let desk = Arc::clone(self);
        let serve = move || {
            // An error only means that the client has disconnected.
            let _ = serve(&stream, &desk);
            desk.open().remove(&number);
        };
        if thread().spawn(serve).is_err() {
            self.open().remove(&number);
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the page; `None` if the measuring thread is busy.
    fn page(&self) -> io::Result<Option<String>> {
        let mut measuring = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let (ask, pages) = &mut *measuring;
        // Discards a page that was too late for the previous client.
        while pages.try_recv().is_ok() {}
        ask.write_all(&[1])?;
        Ok(pages.recv_timeout(PATIENCE).ok())
    }
}

fn serve(stream: &TcpStream, desk: &Desk) -> io::Result<()> {
    let (status, body) = match request(stream)?.as_str() {
        "GET /metrics" => match desk.page()? {
            Some(page) => ("200 OK", page),
            None => ("503 Service Unavailable", "the measuring thread is busy\n".to_owned()),
        },
        line if line.starts_with("GET ") => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let until = Instant::now() + PATIENCE;
    write(stream, head.as_bytes(), until)?;
    write(stream, body.as_bytes(), until)
}

/// Writes all bytes, as long as the client reads in time.
fn write(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Method and path of the request. Reads the whole header, within the limits.
fn request(mut stream: &TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1_024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= REQUEST_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => head.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    Ok(format!("{method} {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_address_only_this_machine_is_served() {
        let parsed = |text| address(text).map(|a| a.to_string()).ok();
        assert_eq!(parsed(":9"), Some("127.0.0.1:9".into()));
        assert_eq!(parsed("127.0.0.1"), Some("127.0.0.1:9105".into()));
        assert_eq!(parsed("192.0.2.1:9"), Some("192.0.2.1:9".into()));
        assert_eq!(parsed("::1"), Some("[::1]:9105".into()));
        assert_eq!(parsed("[::1]"), Some("[::1]:9105".into()));
        assert_eq!(parsed("[::1]:9"), Some("[::1]:9".into()));
        for text in ["", ":", ":x", "host", "[::1", "1.2.3.4:99999"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_page_is_served_and_nothing_hangs() {
        let server = Server::start((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let ask = |text: &'static str, page: bool| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            // The server may have closed the connection already.
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let reader = std::thread::spawn(move || {
                let mut answer = String::new();
                // A closed connection may be reset.
                let _ = stream.read_to_string(&mut answer);
                answer
            });
            while page && !reader.is_finished() {
                server.answer(|| "segue_sessions 1\n".to_owned());
                std::thread::sleep(Duration::from_millis(5));
            }
            reader.join().unwrap()
        };
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", true);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nsegue_sessions 1\n"), "{answer}");
        assert!(ask("GET / HTTP/1.0\r\n\r\n", false).starts_with("HTTP/1.1 404 "));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n", false).starts_with("HTTP/1.1 405 "));
        assert_eq!(ask("GET /metrics", false), "", "an unfinished request gets nothing");
        let long = "GET /metrics HTTP/1.1\r\n".to_owned() + &"x: y\r\n".repeat(5_000);
        assert_eq!(ask(Box::leak(long.into_boxed_str()), false), "", "nor does an endless one");
    }

    #[test]
    fn half_sent_requests_and_slow_readers_hold_up_nobody() {
        let server = Server::start((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let half: Vec<TcpStream> = (0..300)
            .map(|n| {
                let mut stream = connect();
                // Half of the clients have sent their complete request, and read nothing.
                let _ = stream.write_all(["GET /met", "GET / HTTP/1.1\r\n\r\n"][n % 2].as_bytes());
                stream
            })
            .collect();
        let begun = Instant::now();
        let mut stream = connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let reader = std::thread::spawn(move || {
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer
        });
        while !reader.is_finished() {
            server.answer(|| "segue_sessions 1\n".to_owned());
            std::thread::sleep(Duration::from_millis(5));
        }
        let answer = reader.join().unwrap();
        assert!(answer.ends_with("segue_sessions 1\n"), "{answer}");
        assert!(begun.elapsed() < PATIENCE, "after {:?}", begun.elapsed());
        drop(half);
    }

    #[test]
    fn a_client_that_reads_a_little_now_and_then_does_not_keep_the_page_from_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (gone, done) = sync_channel::<()>(1);
        let reader = std::thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            // So slow that it takes minutes, but never silent for as long as one write may wait.
            while done.recv_timeout(Duration::from_millis(100)).is_err() {
                let _ = client.read(&mut part);
            }
        });
        let page = vec![b'x'; 64 << 20];
        let error = write(&server, &page, Instant::now() + Duration::from_millis(1_000));
        gone.send(()).unwrap();
        drop(server);
        reader.join().unwrap();
        assert!(error.is_err(), "the page went out although its reader is slow");
    }
}
