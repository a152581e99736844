//! Errors of the bench.

use std::io;

use segue_datapath::DatapathError;
use segue_linux::LinuxError;

/// Reason why a bench could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Namespaces, eBPF and packet sockets need root.
    #[error("this bench makes network namespaces and loads eBPF programs: run it as root")]
    NotRoot,
    /// A program or a facility of the kernel is missing.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The missing program or facility.
        what: &'static str,
        /// How to provide it.
        remedy: String,
    },
    /// A responder was started but does not answer.
    #[error("{responder} was started and does not answer")]
    Silent {
        /// Name of the responder.
        responder: &'static str,
    },
    /// An invalid option.
    #[error("{0}")]
    Option(&'static str),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// The error from the system.
        #[source]
        source: io::Error,
    },
    /// An error of namespaces or devices.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// An error of the packet path under test.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}

/// Converts a system error.
pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |source| BenchError::System { what, source: source.into() }
}

/// Returns the last system error if `result` is negative.
pub(crate) fn check(what: &'static str, result: i32) -> Result<i32, BenchError> {
    if result < 0 { Err(system(what)(io::Error::last_os_error())) } else { Ok(result) }
}

/// Converts an error of libbpf.
pub(crate) fn bpf(what: &'static str) -> impl Fn(libbpf_rs::Error) -> BenchError {
    move |e| BenchError::System { what, source: io::Error::other(format!("{e:#}")) }
}
