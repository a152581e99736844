//! Attaches programs to devices so that, where the kernel allows it, none outlives this process.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use segue_linux::netns::Netns;

use crate::DatapathError;
use crate::maps::kernel;

/// The direction of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ingress,
    Egress,
}

/// The owner of a program: each datapath has its own filter on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Owner {
    Paths = 1,
    Relay = 2,
}

impl Owner {
    const ALL: [Owner; 2] = [Owner::Paths, Owner::Relay];
}

/// A program attached to a device; detached when dropped.
#[derive(Debug)]
pub(crate) enum Attached {
    /// A BPF link: the kernel detaches it when the descriptor closes, even after a crash.
    Link { fd: OwnedFd },
    /// A link whose only descriptor is in transit from one socket to the other: see [`Attached::outlive`].
    Parked { _sockets: (UnixDatagram, UnixDatagram) },
    /// A filter of the clsact queueing discipline, for kernels before 6.6. It outlives a crash; the program lets
    /// packets pass when the heartbeat stops.
    Filter { program: OwnedFd, ifindex: u32, side: Side, owner: Owner, netns: Netns },
}

impl Attached {
    /// Attaches to TC: through tcx if the kernel supports it and `tcx` permits it, otherwise as a filter.
    pub(crate) fn tc(
        program: BorrowedFd<'_>,
        ifindex: u32,
        side: Side,
        owner: Owner,
        tcx: bool,
    ) -> Result<Attached, DatapathError> {
        let kind = match side {
            Side::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Side::Egress => libbpf_sys::BPF_TCX_EGRESS,
        };
        if tcx {
            match link(program, ifindex, kind, 0) {
                Ok(fd) => return Ok(Attached::Link { fd }),
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(source) => {
                    return Err(DatapathError::Kernel { what: "attach to tcx", source });
                }
            }
        }
        Attached::filter(program, ifindex, side, owner)
    }

    /// Attaches to a driver's XDP hook; fails if the driver does not support XDP.
    pub(crate) fn xdp(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Attached> {
        let fd = link(program, ifindex, libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_DRV_MODE)?;
        Ok(Attached::Link { fd })
    }

    /// Lets a link outlive everything that this process holds by a descriptor, even if the process is killed.
    ///
    /// The kernel chooses the order in which a dying process closes its descriptors. A link in a socket's queue is
    /// released when the socket is, which the kernel defers until it has closed all of the process's own
    /// descriptors. A filter outlives the process in any case.
    ///
    /// # Errors
    /// When no descriptors are left; the link is then lost.
    pub(crate) fn outlive(self) -> io::Result<Attached> {
        let Attached::Link { fd } = &self else { return Ok(self) };
        let sockets = UnixDatagram::pair()?;
        let fds = [fd.as_raw_fd()];
        sendmsg::<()>(
            sockets.0.as_raw_fd(),
            &[IoSlice::new(&[0])],
            &[ControlMessage::ScmRights(&fds)],
            MsgFlags::empty(),
            None,
        )?;
        Ok(Attached::Parked { _sockets: sockets })
    }

    fn filter(
        program: BorrowedFd<'_>,
        ifindex: u32,
        side: Side,
        owner: Owner,
    ) -> Result<Attached, DatapathError> {
        let netns = Netns::current().map_err(|e| DatapathError::Kernel {
            what: "remember the network namespace",
            source: io::Error::other(e.to_string()),
        })?;
        let program = program
            .try_clone_to_owned()
            .map_err(|source| DatapathError::Kernel { what: "keep an eBPF program", source })?;
        let mut hook = filter_hook(program.as_fd(), ifindex, side, owner);
        hook.create().map_err(|e| kernel("add the clsact queueing discipline", &e))?;
        hook.attach().map_err(|e| kernel("attach a TC filter", &e))?;
        Ok(Attached::Filter { program, ifindex, side, owner, netns })
    }
}

/// Sends libbpf's messages, including verifier logs of hundreds of lines, to the log and not to standard error. The
/// returned error is sufficient for users.
pub(crate) fn messages_to_log() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| {
        tracing::debug!("libbpf: {}", text.trim_end());
    })));
}

/// Removes the filters that a crashed daemon left on a device in the calling thread's namespace; returns the names
/// of their programs. Filters of other owners with the same priority and handle stay.
#[must_use]
pub fn remove_stale_filters(ifindex: u32) -> Vec<String> {
    messages_to_log();
    // Querying or detaching a hook needs no program.
    let nothing = io::stdin();
    let mut removed = Vec::new();
    let both = |owner| [Side::Ingress, Side::Egress].map(|side| (owner, side));
    for (owner, side) in Owner::ALL.into_iter().flat_map(both) {
        let mut hook = filter_hook(nothing.as_fd(), ifindex, side, owner);
        let Ok(id) = hook.query() else { continue };
        let name = ProgInfoIter::default()
            .find(|program| program.id == id)
            .map(|program| program.name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|name| name.starts_with("segue"))
            && hook.detach().is_ok()
        {
            removed.push(name);
        }
    }
    removed
}

fn filter_hook(program: BorrowedFd<'_>, ifindex: u32, side: Side, owner: Owner) -> TcHook {
    let point = match side {
        Side::Ingress => TC_INGRESS,
        Side::Egress => TC_EGRESS,
    };
    TcHookBuilder::new(program)
        .ifindex(ifindex as i32)
        .replace(true)
        .handle(owner as u32)
        .priority(5005)
        .hook(point)
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Attached::Filter { program, ifindex, side, owner, netns } = self {
            // The caller may have changed its namespace. If the device is gone, so are its filters. The queueing
            // discipline stays, because others may use it.
            let _ = netns.run(|| filter_hook(program.as_fd(), *ifindex, *side, *owner).detach());
        }
    }
}

fn link(program: BorrowedFd<'_>, ifindex: u32, kind: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call, and the descriptor is borrowed for it.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            ifindex as i32,
            kind,
            &raw const options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given this descriptor, and nothing else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
