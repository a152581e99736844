//! Ctrl-C and SIGTERM as a descriptor that can be polled together with sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use segue_clock::Span;

use crate::clock;

/// SIGINT and SIGTERM, blocked and read from a descriptor. Commands inherit the block: see
/// [`unblock_signals`](crate::process::unblock_signals).
pub struct StopSignals(SignalFd);

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// SIGINT or SIGTERM.
    pub signal: Signal,
    /// Ctrl-C, which the terminal sends to all processes of the foreground process group; otherwise a process sent it.
    pub from_terminal: bool,
}

impl StopSignals {
    /// Blocks both signals in the calling thread, which must still be the only one of the process.
    ///
    /// # Errors
    /// A system call failed.
    pub fn take() -> io::Result<StopSignals> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(StopSignals(SignalFd::with_flags(&set, flags)?))
    }

    /// Takes the next signal that has arrived.
    ///
    /// # Errors
    /// The system call failed.
    pub fn read(&self) -> io::Result<Option<Received>> {
        let Some(info) = self.0.read_signal()? else { return Ok(None) };
        let signal = Signal::try_from(info.ssi_signo as i32)?;
        Ok(Some(Received { signal, from_terminal: info.ssi_code == libc::SI_KERNEL }))
    }

    /// Waits until one of `sockets` is readable, `until` is reached, or a signal arrives. Returns whether a signal
    /// arrived.
    ///
    /// # Errors
    /// The system call failed.
    pub fn wait<'a>(
        &self,
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
        until: Option<segue_clock::Time>,
    ) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
        let timeout = until.map(|until| {
            let Span(ns) = until.since(clock::monotonic());
            TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
        });
        match ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds[0].any().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn a_signal_is_read_once() {
        let signals = StopSignals::take().unwrap();
        assert_eq!(signals.read().unwrap(), None);
        raise(Signal::SIGTERM).unwrap();
        assert!(signals.wait(std::iter::empty(), None).unwrap());
        let received = Received { signal: Signal::SIGTERM, from_terminal: false };
        assert_eq!(signals.read().unwrap(), Some(received));
        assert_eq!(signals.read().unwrap(), None);
    }
}
