//! Serves the page of metrics: a thread takes one HTTP request at a time and asks the measuring
//! thread for the page. That thread renders it between two probes, only on request.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;

/// The port, if none is given.
pub(super) const PORT: u16 = 9_105;
/// How long a client may take to send its request and to read the answer, and the measuring thread
/// to render the page.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after the system has failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest request accepted.
const REQUEST_MAX: usize = 8_192;

/// The measuring thread's end.
pub struct Server {
    address: SocketAddr,
    /// Readable when a page is wanted.
    wanted: UnixStream,
    pages: SyncSender<String>,
}

/// The address that `ADDR`, `ADDR:PORT` or `:PORT` means; without an address it is the loopback
/// one, so that outsiders are served only on purpose.
///
/// # Errors
/// One line that shows what an address looks like.
pub fn address(text: &str) -> anyhow::Result<SocketAddr> {
    listening(text).with_context(|| {
        format!(
            "--metrics {text}: not an address; examples: :{PORT}, 192.0.2.1:{PORT}, [::1]:{PORT}"
        )
    })
}

/// The same for text from any source; `None` if it is not an address.
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
    /// Starts listening. The thread ends with the process. It inherits the caller's scheduling, so
    /// start it before that is raised.
    ///
    /// # Errors
    /// If the address is unavailable.
    pub fn start(address: SocketAddr) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot serve metrics on {address}"))?;
        let address = listener.local_addr()?;
        let (wanted, mut ask) = UnixStream::pair()?;
        wanted.set_nonblocking(true)?;
        let (pages, receiver) = sync_channel(1);
        let serve = move || {
            loop {
                match listener.accept() {
                    // An error only means that the client has left.
                    Ok((stream, _)) => drop(serve(&stream, &mut ask, &receiver)),
                    // Without a free descriptor the connection stays in the queue, and accepting
                    // would fail again at once.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        std::thread::Builder::new().name("segue-metrics".into()).spawn(serve)?;
        Ok(Server { address, wanted, pages })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when a page is wanted, for callers that cannot wait on the borrowed descriptor; do
    /// not read from it.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn wanted(&self) -> io::Result<UnixStream> {
        self.wanted.try_clone()
    }

    /// Gives the page to the waiting client.
    pub fn answer(&self, page: impl FnOnce() -> String) {
        let mut asked = [0; 16];
        if matches!((&self.wanted).read(&mut asked), Ok(1..)) {
            // One client waits at a time. A page that comes too late is dropped.
            let _ = self.pages.try_send(page());
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wanted.as_fd()
    }
}

fn serve(stream: &TcpStream, ask: &mut UnixStream, pages: &Receiver<String>) -> io::Result<()> {
    let (status, body) = match request(stream)?.as_str() {
        "GET /metrics" => {
            // A page that came too late for the previous client.
            while pages.try_recv().is_ok() {}
            ask.write_all(&[1])?;
            match pages.recv_timeout(PATIENCE) {
                Ok(page) => ("200 OK", page),
                Err(_) => ("503 Service Unavailable", "the measuring thread is busy\n".to_owned()),
            }
        }
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

/// Writes everything, as long as the client reads in time: others wait meanwhile.
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

/// Method and path of the request. Reads the head to its end, within the bounds.
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
    fn a_client_that_reads_a_little_now_and_then_does_not_keep_the_page_from_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (gone, done) = sync_channel::<()>(1);
        let reader = std::thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            // Slow enough to take minutes, but never silent as long as one write may wait.
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
