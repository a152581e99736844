//! What can go wrong between this crate and the kernel, in plain words.

use std::io;

use nix::errno::Errno;

/// A request that the kernel refused. The text says what was tried; the kernel's reason follows it.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// A system call or netlink request failed.
    #[error("cannot {what}: {}{}", source, hint(source))]
    Refused {
        /// What was tried, as a verb phrase: "add address 10.0.0.1/24 to wifi".
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No device of this name in the calling thread's namespace.
    #[error("there is no network interface {name:?} here (list them with: ip link)")]
    NoSuchDevice {
        /// The name that was looked up.
        name: String,
    },
    /// No named network namespace of this name.
    #[error("there is no network namespace {name:?} (list them with: ip netns list)")]
    NoSuchNamespace {
        /// The name that was looked up.
        name: String,
    },
    /// A name that the kernel or the file system cannot take.
    #[error("{name:?} cannot be the name of {of}: {why}")]
    BadName {
        /// The refused name.
        name: String,
        /// What it should have named.
        of: &'static str,
        /// The rule it breaks.
        why: &'static str,
    },
    /// Unprivileged user namespaces are unavailable.
    #[error("cannot make a user namespace without root: {limit}")]
    UserNamespace {
        /// Which setting or limit forbids it, and how to change it.
        limit: String,
    },
}

impl LinuxError {
    pub(crate) fn refused(what: impl Into<String>, source: impl Into<io::Error>) -> LinuxError {
        LinuxError::Refused { what: what.into(), source: source.into() }
    }

    /// The kernel's error number, if there was one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            LinuxError::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (needs root or CAP_NET_ADMIN)",
        _ => "",
    }
}

/// The result of a request to the kernel.
pub type Result<T> = std::result::Result<T, LinuxError>;
