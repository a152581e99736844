//! Responders on a UDP socket: one packet per system call, like the C program of paper 1, and in batches.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use segue_wire::Probe;

use super::Running;
use super::state::States;
use crate::BenchError;
use crate::error::system;
use crate::world::World;

/// Interval at which a thread checks whether to stop.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// Maximum number of packets in one system call.
const BATCH: usize = 64;
/// Longer datagrams are truncated and then rejected because of their length.
const BUFFER: usize = 128;

/// A thread of this process, whose processor time includes it.
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts `body`, which must return soon after the flag is set.
    pub(super) fn start(
        body: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<Thread, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("responder".into())
            .spawn(move || body(&flag))
            .map_err(system("start a thread"))?;
        Ok(Thread { stop, thread: Some(thread) })
    }
}

impl Running for Thread {}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn socket(world: &World) -> Result<UdpSocket, BenchError> {
    let socket = world.far_socket()?;
    socket.set_read_timeout(Some(LOOK)).map_err(system("set a socket up"))?;
    Ok(socket)
}

/// One request at a time: recvfrom, answer, sendto.
pub(super) fn one_by_one(world: &World, paths: u32) -> Result<Thread, BenchError> {
    let socket = socket(world)?;
    let mut states = States::new(paths);
    Thread::start(move |stop| {
        let mut buffer = [0; BUFFER];
        while !stop.load(Ordering::Relaxed) {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            if let Some(answer) = states.answer(&buffer[..len]) {
                // An answer that does not fit into the device's queue is lost, as in practice.
                let _ = socket.send_to(&answer, from);
            }
        }
    })
}

/// In batches: recvmmsg, answer all, sendmmsg.
pub(super) fn batched(world: &World, paths: u32) -> Result<Thread, BenchError> {
    let socket = socket(world)?;
    let mut states = States::new(paths);
    Thread::start(move |stop| {
        let mut batch = Batch::new();
        while !stop.load(Ordering::Relaxed) {
            let received = batch.receive(&socket);
            batch.answer(received, &mut states);
            batch.send(&socket);
        }
    })
}

struct Batch {
    requests: Box<[[u8; BUFFER]; BATCH]>,
    answers: Vec<[u8; Probe::PACKET_LEN]>,
    names: Box<[libc::sockaddr_in; BATCH]>,
    lengths: [usize; BATCH],
    /// Index of the address for each answer.
    to: Vec<usize>,
}

impl Batch {
    fn new() -> Batch {
        // SAFETY: sockaddr_in is plain data for which all zero is a valid value.
        let names = Box::new(unsafe { std::mem::zeroed() });
        Batch {
            requests: Box::new([[0; BUFFER]; BATCH]),
            answers: Vec::with_capacity(BATCH),
            names,
            lengths: [0; BATCH],
            to: Vec::with_capacity(BATCH),
        }
    }

    fn receive(&mut self, socket: &UdpSocket) -> usize {
        let mut parts: [libc::iovec; BATCH] = std::array::from_fn(|i| libc::iovec {
            iov_base: self.requests[i].as_mut_ptr().cast(),
            iov_len: BUFFER,
        });
        let mut messages: [libc::mmsghdr; BATCH] =
            std::array::from_fn(|i| message(&raw mut self.names[i], &raw mut parts[i]));
        // SAFETY: each message points to a name and, by its part, to a buffer of the length given;
        // all outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).unwrap_or(0);
        for (length, message) in self.lengths.iter_mut().zip(&messages[..received]) {
            *length = message.msg_len as usize;
        }
        received
    }

    fn answer(&mut self, received: usize, states: &mut States) {
        self.answers.clear();
        self.to.clear();
        for i in 0..received {
            if let Some(answer) = states.answer(&self.requests[i][..self.lengths[i]]) {
                self.answers.push(answer);
                self.to.push(i);
            }
        }
    }

    fn send(&mut self, socket: &UdpSocket) {
        let count = self.answers.len();
        let mut parts: [libc::iovec; BATCH] =
            std::array::from_fn(|i| match self.answers.get_mut(i) {
                Some(answer) => {
                    libc::iovec { iov_base: answer.as_mut_ptr().cast(), iov_len: answer.len() }
                }
                None => libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            });
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|i| {
            let name = self.to.get(i).copied().unwrap_or(0);
            message(&raw mut self.names[name], &raw mut parts[i])
        });
        let mut done = 0;
        while done < count {
            // SAFETY: the first `count` messages point to a name and, by their part, to an answer; all
            // outlive the call, which only reads them.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    messages[done..].as_mut_ptr(),
                    (count - done) as u32,
                    0,
                )
            };
            // Skip the failed message, which is lost, as in practice.
            done += usize::try_from(sent).unwrap_or(0).max(1);
        }
    }
}

fn message(name: *mut libc::sockaddr_in, part: *mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data for which all zero is a valid value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = name.cast();
    message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message
}
