//! What can go wrong.

use std::io;

use segue_datapath::DatapathError;
use segue_linux::LinuxError;

/// Why a bench could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Namespaces, eBPF and packet sockets need root.
    #[error("this bench makes network namespaces and loads eBPF programs: run it as root")]
    NotRoot,
    /// A program or a facility of the kernel is missing.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// What to do about it.
        remedy: String,
    },
    /// A responder was started and answers nothing.
    #[error("{responder} was started and does not answer")]
    Silent {
        /// Its name.
        responder: &'static str,
    },
    /// A request that makes no sense.
    #[error("{0}")]
    Option(&'static str),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Namespaces or devices.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The packet path under test.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}

/// Turns an error of the system into ours.
pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |source| BenchError::System { what, source: source.into() }
}

/// The last error of a system call if `result` is negative.
pub(crate) fn check(what: &'static str, result: i32) -> Result<i32, BenchError> {
    if result < 0 { Err(system(what)(io::Error::last_os_error())) } else { Ok(result) }
}

/// A refusal of libbpf.
pub(crate) fn bpf(what: &'static str) -> impl Fn(libbpf_rs::Error) -> BenchError {
    move |e| BenchError::System { what, source: io::Error::other(format!("{e:#}")) }
}
