//! Sends requests at a constant rate, singly or in bursts, and receives the answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_linux::udp::TimestampedSocket;

use crate::BenchError;
use crate::error::{check, system};
use crate::protocol::{Format, GENERATOR_PORT, Id, Requests};
use crate::world::World;

/// Maximum number of requests in one system call.
pub(crate) const BURST_MAX: usize = 64;
/// Time to wait for answers after the last request.
const GRACE: Duration = Duration::from_millis(20);

/// Rate and duration of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Requests in one system call.
    pub(crate) burst: usize,
    /// Duration.
    pub(crate) duration: Duration,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Generator {
    socket: OwnedFd,
    requests: Requests,
    frames: Vec<Vec<u8>>,
    ids: Vec<Id>,
}

impl Generator {
    pub(crate) fn new(world: &World, requests: Requests) -> Result<Generator, BenchError> {
        let socket = world.near.run(|| open(world.near_ifindex))??;
        Ok(Generator { socket, requests, frames: vec![Vec::new(); BURST_MAX], ids: Vec::new() })
    }

    /// Format of the requests.
    pub(crate) fn format(&self) -> Format {
        self.requests.format()
    }

    /// Sends one burst; returns how many requests the device accepted.
    fn send(&mut self, burst: usize) -> Result<usize, BenchError> {
        let burst = burst.clamp(1, BURST_MAX);
        let now_us = (monotonic().0 / 1000) as u32;
        self.ids.clear();
        for frame in &mut self.frames[..burst] {
            self.ids.push(self.requests.write(now_us, frame));
        }
        let mut parts: [libc::iovec; BURST_MAX] = std::array::from_fn(|i| libc::iovec {
            iov_base: self.frames[i].as_mut_ptr().cast(),
            iov_len: self.frames[i].len(),
        });
        // SAFETY: mmsghdr is plain data for which all zero is a valid value.
        let mut messages: [libc::mmsghdr; BURST_MAX] = unsafe { std::mem::zeroed() };
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each message points to a part and each part to a frame, all of which outlive the
        // call; sendmmsg only reads them.
        let sent = unsafe {
            libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), burst as u32, 0)
        };
        match check("send requests", sent) {
            Ok(sent) => Ok(sent as usize),
            Err(_) if Errno::last() == Errno::ENOBUFS => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Sends at a constant rate without reading answers. Returns the number of requests sent, after waiting for
    /// answers.
    pub(crate) fn send_paced(&mut self, pace: Pace) -> Result<u64, BenchError> {
        let mut sent = 0;
        for at in departures(pace) {
            sleep_until(at);
            sent += self.send(pace.burst)? as u64;
        }
        std::thread::sleep(GRACE);
        Ok(sent)
    }

    /// Sends at a constant rate and measures the turnaround of each answer in nanoseconds: from before the system call
    /// that sends the burst to the kernel's stamp of the answer's arrival. Requests do not wait for earlier answers.
    pub(crate) fn turnarounds(
        &mut self,
        pace: Pace,
        listener: &mut Listener,
    ) -> Result<Vec<u64>, BenchError> {
        listener.forget();
        for at in departures(pace) {
            listener.wait_until(at)?;
            let now = monotonic();
            let sent = self.send(pace.burst)?;
            listener.expect(&self.ids[..sent], now);
        }
        listener.wait_until(Time(monotonic().0 + GRACE.as_nanos() as u64))?;
        Ok(std::mem::take(&mut listener.turnarounds_ns))
    }
}

/// Departure times of the bursts. A late burst does not delay the others.
fn departures(pace: Pace) -> impl Iterator<Item = Time> {
    let start = monotonic().0;
    let gap_ns = pace.burst as f64 / pace.rate * 1e9;
    let bursts = (pace.duration.as_nanos() as f64 / gap_ns).max(1.0) as u64;
    (0..bursts).map(move |i| Time(start + (i as f64 * gap_ns) as u64))
}

fn sleep_until(at: Time) {
    let at = TimeSpec::from_duration(Duration::from_nanos(at.0));
    // An interruption by a signal only sends a burst early.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
}

/// A send-only packet socket.
fn open(ifindex: u32) -> Result<OwnedFd, BenchError> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    check("open a packet socket", fd)?;
    // SAFETY: a descriptor just made, with no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: bind reads one sockaddr_ll, which outlives the call.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    check("bind a packet socket", bound)?;
    Ok(fd)
}

/// Counts of requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Requests sent.
    pub sent: u64,
    /// Requests with a valid response.
    pub answered: u64,
    /// Invalid answers: wrong length, MAC, cookie or counters.
    pub invalid: u64,
}

/// The receiving half: a socket with kernel timestamps.
pub(crate) struct Listener {
    socket: TimestampedSocket,
    format: Format,
    /// The last unanswered request of each path.
    awaited: Vec<Option<(u32, Time)>>,
    turnarounds_ns: Vec<u64>,
    pub(crate) judged: Checked,
}

impl Listener {
    pub(crate) fn new(world: &World, format: Format, paths: u32) -> Result<Listener, BenchError> {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, GENERATOR_PORT));
        let socket = world.near.run(|| TimestampedSocket::bind(local, None))?;
        let mut socket = socket.map_err(|e| {
            system("open the generator's socket")(std::io::Error::other(e.to_string()))
        })?;
        socket.receive_stamps_only();
        socket.set_receive_buffer(4 << 20);
        Ok(Listener {
            socket,
            format,
            awaited: vec![None; paths as usize],
            turnarounds_ns: Vec::new(),
            judged: Checked::default(),
        })
    }

    fn forget(&mut self) {
        while self.socket.recv(&mut [0; 2048]).is_ok_and(|d| d.is_some()) {}
        self.awaited.fill(None);
        self.turnarounds_ns.clear();
    }

    fn expect(&mut self, ids: &[Id], sent: Time) {
        self.judged.sent += ids.len() as u64;
        for id in ids {
            self.awaited[id.slot as usize] = Some((id.seq, sent));
        }
    }

    /// Processes answers that arrive until `at`.
    fn wait_until(&mut self, at: Time) -> Result<(), BenchError> {
        let receive = system("receive answers");
        loop {
            let mut buffer = [0; 2048];
            while let Some(datagram) = self.socket.recv(&mut buffer).map_err(&receive)? {
                self.take(&buffer[..datagram.len], datagram.at);
            }
            let left = at.0.saturating_sub(monotonic().0);
            if left == 0 {
                return Ok(());
            }
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let timeout = TimeSpec::from_duration(Duration::from_nanos(left));
            match ppoll(&mut fds, Some(timeout), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(receive(error.into())),
            }
        }
    }

    fn take(&mut self, payload: &[u8], arrived: Time) {
        let Some(id) = self.format.answer(payload) else {
            self.judged.invalid += 1;
            return;
        };
        let awaited = self.awaited.get_mut(id.slot as usize);
        if let Some((_, sent)) = awaited.and_then(|a| a.take_if(|(seq, _)| *seq == id.seq)) {
            self.judged.answered += 1;
            self.turnarounds_ns.push(arrived.0.saturating_sub(sent.0));
        }
    }
}
