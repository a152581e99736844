//! Attaching programs to devices, so that nothing outlives this process where the kernel allows it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use segue_linux::netns::Netns;

use crate::DatapathError;
use crate::maps::kernel;

/// Which side of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ingress,
    Egress,
}

/// A program attached to a device; detached when dropped.
#[derive(Debug)]
pub(crate) enum Attached {
    /// A BPF link: the kernel detaches it when the descriptor closes, also after a crash.
    Link { fd: OwnedFd },
    /// A link whose only descriptor is on its way from one socket to the other: see
    /// [`Attached::outlive`].
    Parked { _sockets: (UnixDatagram, UnixDatagram) },
    /// A filter of the clsact queueing discipline, for kernels before 6.6. It outlives a crash; the
    /// program lets packets pass when the heartbeat stops.
    Filter { program: OwnedFd, ifindex: u32, side: Side, netns: Netns },
}

impl Attached {
    /// Attaches to TC: through tcx where the kernel has it and `tcx` allows it, else as a filter.
    pub(crate) fn tc(
        program: BorrowedFd<'_>,
        ifindex: u32,
        side: Side,
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
        Attached::filter(program, ifindex, side)
    }

    /// Attaches to a driver's XDP hook; fails if the driver has none.
    pub(crate) fn xdp(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Attached> {
        let fd = link(program, ifindex, libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_DRV_MODE)?;
        Ok(Attached::Link { fd })
    }

    /// Lets a link outlive everything that this process holds by a descriptor, even when the process is killed.
    ///
    /// The kernel chooses the order in which a dying process closes its descriptors. A link in a socket's queue is
    /// released by the socket's own release, which the kernel defers until it has closed everything that the process
    /// itself held. A filter outlives the process anyway.
    ///
    /// # Errors
    /// When there are no more descriptors; the link is gone then.
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
    ) -> Result<Attached, DatapathError> {
        let netns = Netns::current().map_err(|e| DatapathError::Kernel {
            what: "remember the network namespace",
            source: io::Error::other(e.to_string()),
        })?;
        let program = program
            .try_clone_to_owned()
            .map_err(|source| DatapathError::Kernel { what: "keep an eBPF program", source })?;
        let mut hook = filter_hook(program.as_fd(), ifindex, side);
        hook.create().map_err(|e| kernel("add the clsact queueing discipline", &e))?;
        hook.attach().map_err(|e| kernel("attach a TC filter", &e))?;
        Ok(Attached::Filter { program, ifindex, side, netns })
    }
}

/// The library's messages, including a verifier's log of hundreds of lines, go to the log and not to standard error:
/// the returned error has what a person needs to know.
pub(crate) fn messages_to_log() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| {
        tracing::debug!("libbpf: {}", text.trim_end());
    })));
}

/// Removes the filters that a crashed daemon left on a device of the calling thread's namespace; returns their
/// programs' names. Filters of other owners with the same priority and handle stay.
#[must_use]
pub fn remove_stale_filters(ifindex: u32) -> Vec<String> {
    messages_to_log();
    // Querying or detaching a hook needs no program.
    let nothing = io::stdin();
    let mut removed = Vec::new();
    for side in [Side::Ingress, Side::Egress] {
        let mut hook = filter_hook(nothing.as_fd(), ifindex, side);
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

fn filter_hook(program: BorrowedFd<'_>, ifindex: u32, side: Side) -> TcHook {
    let point = match side {
        Side::Ingress => TC_INGRESS,
        Side::Egress => TC_EGRESS,
    };
    TcHookBuilder::new(program)
        .ifindex(ifindex as i32)
        .replace(true)
        .handle(1)
        .priority(5005)
        .hook(point)
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Attached::Filter { program, ifindex, side, netns } = self {
            // The caller may have changed its namespace. A device that is gone took its filters along. The queueing
            // discipline stays: others may use it.
            let _ = netns.run(|| filter_hook(program.as_fd(), *ifindex, *side).detach());
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
