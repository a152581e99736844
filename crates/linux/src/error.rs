//! Errors of requests to the kernel, in plain words.

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;

/// A failed request. The text names the attempted action, followed by the kernel's reason.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// A system call or netlink request failed.
    #[error("cannot {what}: {}{}", source, hint(source))]
    Refused {
        /// The attempted action, as a verb phrase: "add address 10.0.0.1/24 to wifi".
        what: String,
        /// The error from the kernel.
        source: io::Error,
    },
    /// IPv6 is disabled where the request requires it.
    #[error(
        "cannot {what}: IPv6 is switched off here (sysctl net.ipv6.conf.all.disable_ipv6, or that of the device)"
    )]
    Ipv6Off {
        /// The attempted action, as a verb phrase.
        what: String,
    },
    /// The calling thread's namespace has no device with this name.
    #[error("there is no network interface {name:?} here (list them with: ip link)")]
    NoSuchDevice {
        /// The name that was looked up.
        name: String,
    },
    /// No named network namespace with this name exists.
    #[error("there is no network namespace {name:?} (list them with: ip netns list)")]
    NoSuchNamespace {
        /// The name that was looked up.
        name: String,
    },
    /// A name that the kernel or the file system does not accept.
    #[error("{name:?} cannot be the name of {of}: {why}")]
    BadName {
        /// The rejected name.
        name: String,
        /// The kind of object to be named.
        of: &'static str,
        /// The rule that the name breaks.
        why: &'static str,
    },
    /// Unprivileged user namespaces are unavailable.
    #[error("cannot make a user namespace without root: {limit}")]
    UserNamespace {
        /// The setting or limit that forbids it, and how to change it.
        limit: String,
    },
}

impl LinuxError {
    pub(crate) fn refused(what: impl Into<String>, source: impl Into<io::Error>) -> LinuxError {
        LinuxError::Refused { what: what.into(), source: source.into() }
    }

    /// Like [`LinuxError::refused`] for a request about the address `ip`. The kernel rejects IPv6 with `EACCES` if it
    /// is disabled, and missing privileges with `EPERM`.
    pub(crate) fn refused_at(what: impl Into<String>, ip: IpAddr, source: io::Error) -> LinuxError {
        match source.raw_os_error() {
            Some(libc::EACCES) if ip.is_ipv6() => LinuxError::Ipv6Off { what: what.into() },
            _ => LinuxError::refused(what, source),
        }
    }

    /// The error number from the kernel, if any.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            LinuxError::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            LinuxError::Ipv6Off { .. } => Some(Errno::EACCES),
            _ => None,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if nix::unistd::geteuid().is_root() => {
            " (although this is root: a container without CAP_NET_ADMIN, or a security module forbids it)"
        }
        Some(libc::EROFS) => {
            " (this container may not change it: set it outside, on the machine that runs it)"
        }
        Some(libc::EPERM | libc::EACCES) => " (needs root or CAP_NET_ADMIN)",
        _ => "",
    }
}

/// The result of a request to the kernel.
pub type Result<T> = std::result::Result<T, LinuxError>;
