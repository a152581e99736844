//! The anchor's STAMP reflector in user space: it answers requests that the eBPF programs pass on, or all of them
//! without those programs. It has a separate thread, because work for unknown senders must not delay the daemon.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_datapath::StampOptions;
use segue_probe::stamp::reflector::{self, RATE_MAX, Reflector, SOURCE_RATE_MAX};

pub use crate::settings::Stamp as Settings;

/// Longest wait in milliseconds. Between waits, the thread ends old sessions and reads the clock's quality.
const WAIT_MS: u16 = 1_000;

impl Settings {
    /// Options of the reflector in the kernel; `None` with a key, which the kernel cannot use.
    pub fn in_kernel(&self) -> Option<StampOptions> {
        let plain = StampOptions {
            port: self.port,
            stateful: true,
            rate: RATE_MAX,
            source_rate: SOURCE_RATE_MAX,
            echo_dscp: true,
        };
        self.key.is_none().then_some(plain)
    }
}

/// Refused requests by reason.
type Drops = BTreeMap<&'static str, u64>;

/// The running reflector; dropping it stops it.
pub struct Stamp {
    drops: Arc<Mutex<Drops>>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Stamp {
    /// Opens the port and starts the thread, which inherits the caller's scheduling.
    pub fn start(settings: &Settings) -> anyhow::Result<Stamp> {
        let port = settings.port;
        let how = reflector::Settings { key: settings.key.clone(), ..Default::default() };
        let reflector = Reflector::bind((Ipv6Addr::UNSPECIFIED, port).into(), None, how)
            .with_context(|| {
                format!("cannot answer STAMP on UDP port {port}; set another: stamp = PORT")
            })?;
        let (stop, stopped) = UnixStream::pair().context("no stop signal for the reflector")?;
        let drops = Arc::<Mutex<Drops>>::default();
        let counted = Arc::clone(&drops);
        let thread = std::thread::Builder::new()
            .name("segue-stamp".into())
            .spawn(move || {
                if let Err(error) = serve(reflector, &counted, &stopped) {
                    tracing::error!(%error, "the thread that answers STAMP ends");
                }
            })
            .context("no thread for the reflector")?;
        Ok(Stamp { drops, stop: Some(stop), thread: Some(thread) })
    }

    /// Refused requests by reason.
    pub fn drops(&self) -> Drops {
        self.drops.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers requests until the other end of `stopped` is closed.
fn serve(mut reflector: Reflector, drops: &Mutex<Drops>, stopped: &UnixStream) -> io::Result<()> {
    loop {
        reflector.serve()?;
        drops.lock().unwrap_or_else(PoisonError::into_inner).clone_from(reflector.drops());
        let mut fds =
            [reflector.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::from(WAIT_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[1].any().unwrap_or(true) {
            return Ok(());
        }
    }
}
