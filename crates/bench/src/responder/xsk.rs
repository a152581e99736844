//! Answers frames of an AF_XDP socket, which bypass the kernel's network stack in both directions. Uses copy mode,
//! which every driver with XDP supports.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Running;
use super::state::States;
use super::user::{LOOK, Thread};
use crate::BenchError;
use crate::error::{check, system};
use crate::skel::Attached;
use crate::world::World;

/// Number of frames for both directions, with one packet per frame.
const FRAMES: u32 = RING;
const FRAME: u32 = 2048;
/// Entries of each ring.
const RING: u32 = 2048;
/// Ethernet, IPv4 and UDP header of a request.
const HEADERS: usize = 42;

/// The thread is dropped first, so that it ends before the program is removed.
struct Socket {
    _thread: Thread,
    _program: Attached,
}

impl Running for Socket {}

/// Starts a thread with a socket on the first queue of the far device.
pub(super) fn start(world: &World, paths: u32) -> Result<impl Running + use<>, BenchError> {
    let mut rings = world.far.run(|| Rings::open(world.far_ifindex))??;
    world.programs.set_socket(rings.fd.as_fd())?;
    let program =
        world.far.run(|| Attached::xdp(&world.programs.to_socket, world.far_ifindex))??;
    let mut states = States::new(paths);
    let thread = Thread::start(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(rings.fd.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::NONE);
            let _ = poll(&mut fds, timeout);
            rings.answer_all(&mut states);
        }
    })?;
    Ok(Socket { _thread: thread, _program: program })
}

/// Descriptor of a frame in a ring.
type Desc = libc::xdp_desc;

/// A mapping of the socket or of anonymous memory; unmapped when dropped.
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping's owner has exclusive access to the memory, in any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize, fd: Option<(&OwnedFd, i64)>) -> Result<Mapping, BenchError> {
        let (flags, raw, offset) = match fd {
            Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, raw, offset) };
        if at == libc::MAP_FAILED {
            return Err(system("map an AF_XDP ring")(std::io::Error::last_os_error()));
        }
        let at = NonNull::new(at.cast()).ok_or(BenchError::Option("a mapping at address zero"))?;
        Ok(Mapping { at, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nothing else holds it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A ring: this end advances one of its two counters, the kernel the other.
struct Ring<T> {
    memory: Mapping,
    offsets: libc::xdp_ring_offset,
    /// This end's counter.
    own: u32,
    entries: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn open(
        fd: &OwnedFd,
        offsets: libc::xdp_ring_offset,
        page: i64,
    ) -> Result<Ring<T>, BenchError> {
        let len = offsets.desc as usize + RING as usize * size_of::<T>();
        let memory = Mapping::new(len, Some((fd, page)))?;
        Ok(Ring { memory, offsets, own: 0, entries: std::marker::PhantomData })
    }

    fn count(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel places an aligned 32-bit count at this offset of the mapping, which lives
        // as long as `self`; both ends use it atomically.
        unsafe { &*self.memory.at.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.offsets.desc as usize + (number % RING) as usize * size_of::<T>();
        // SAFETY: the mapping holds RING entries from `desc` on.
        unsafe { self.memory.at.as_ptr().add(at).cast() }
    }

    /// Takes the next entry from the kernel, if any.
    fn take(&mut self) -> Option<T> {
        if self.count(self.offsets.producer).load(Ordering::Acquire) == self.own {
            return None;
        }
        // SAFETY: the kernel has filled this entry and does not modify it until the counter advances.
        let value = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        self.count(self.offsets.consumer).store(self.own, Ordering::Release);
        Some(value)
    }

    /// Passes an entry to the kernel; false if the ring is full.
    fn give(&mut self, value: T) -> bool {
        let taken = self.count(self.offsets.consumer).load(Ordering::Acquire);
        if self.own.wrapping_sub(taken) >= RING {
            return false;
        }
        // SAFETY: the kernel does not read this entry until the counter advances.
        unsafe { self.entry(self.own).write(value) };
        self.own = self.own.wrapping_add(1);
        self.count(self.offsets.producer).store(self.own, Ordering::Release);
        true
    }
}

/// The socket, its memory and its four rings.
struct Rings {
    fd: OwnedFd,
    frames: Mapping,
    received: Ring<Desc>,
    send: Ring<Desc>,
    fill: Ring<u64>,
    completed: Ring<u64>,
}

impl Rings {
    /// Opens a socket on queue 0 of a device of the calling thread's namespace.
    fn open(ifindex: u32) -> Result<Rings, BenchError> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let remedy = "the kernel has no CONFIG_XDP_SOCKETS".into();
            return Err(BenchError::Missing { what: "AF_XDP", remedy });
        }
        // SAFETY: a descriptor just made, with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let frames = Mapping::new((FRAMES * FRAME) as usize, None)?;
        let region = libc::xdp_umem_reg {
            addr: frames.at.as_ptr() as u64,
            len: u64::from(FRAMES * FRAME),
            chunk_size: FRAME,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&fd, libc::XDP_UMEM_REG, &region)?;
        let rings = [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ];
        for ring in rings {
            set(&fd, ring, &RING)?;
        }
        let offsets = offsets(&fd)?;
        let mut opened = Rings {
            received: Ring::open(&fd, offsets.rx, libc::XDP_PGOFF_RX_RING)?,
            send: Ring::open(&fd, offsets.tx, libc::XDP_PGOFF_TX_RING)?,
            fill: Ring::open(&fd, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?,
            completed: Ring::open(&fd, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?,
            fd,
            frames,
        };
        for frame in 0..RING {
            opened.fill.give(u64::from(frame * FRAME));
        }
        bind(&opened.fd, ifindex)?;
        Ok(opened)
    }

    /// Answers all requests that have arrived and returns their frames to the kernel.
    fn answer_all(&mut self, states: &mut States) {
        let mut answers = 0;
        while let Some(desc) = self.received.take() {
            if answer(self.frame(desc), states) && self.send.give(desc) {
                answers += 1;
            } else {
                self.fill.give(base(desc.addr));
            }
        }
        if answers > 0 {
            // SAFETY: no memory is passed; the call makes the kernel process the ring.
            unsafe {
                libc::sendto(
                    self.fd.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
        }
        while let Some(at) = self.completed.take() {
            self.fill.give(base(at));
        }
    }

    fn frame(&mut self, desc: Desc) -> &mut [u8] {
        let (at, len) = (desc.addr as usize, desc.len as usize);
        if at.checked_add(len).is_none_or(|end| end > self.frames.len) {
            return &mut [];
        }
        // SAFETY: within the mapping. The kernel has handed this frame over, and only a ring, which requires `self`
        // again, returns it.
        unsafe { std::slice::from_raw_parts_mut(self.frames.at.as_ptr().add(at), len) }
    }
}

/// Start address of the frame that contains `address`.
fn base(address: u64) -> u64 {
    address / u64::from(FRAME) * u64::from(FRAME)
}

/// Turns the frame of a request into the frame of its response.
fn answer(frame: &mut [u8], states: &mut States) -> bool {
    let Some((headers, packet)) = frame.split_at_mut_checked(HEADERS) else { return false };
    let Some(answer) = states.answer(packet) else { return false };
    packet.copy_from_slice(&answer);
    // Swapping 16-bit words does not change the checksums.
    let swap = |bytes: &mut [u8], first: usize, second: usize, len: usize| {
        for i in 0..len {
            bytes.swap(first + i, second + i);
        }
    };
    swap(headers, 0, 6, 6);
    swap(headers, 26, 30, 4);
    swap(headers, 34, 36, 2);
    true
}

fn set<T>(fd: &OwnedFd, option: i32, value: &T) -> Result<(), BenchError> {
    // SAFETY: the kernel reads one value of the size given, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check("set an AF_XDP socket up", result).map(drop)
}

fn offsets(fd: &OwnedFd) -> Result<libc::xdp_mmap_offsets, BenchError> {
    // SAFETY: xdp_mmap_offsets is plain data for which all zero is a valid value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut len,
        )
    };
    check("ask for the AF_XDP rings", result)?;
    Ok(offsets)
}

fn bind(fd: &OwnedFd, ifindex: u32) -> Result<(), BenchError> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: bind reads one sockaddr_xdp, which outlives the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    check("bind an AF_XDP socket", result).map(drop)
}
