//! What can go wrong while a datapath is set up or changed.

use std::io;
use std::net::IpAddr;

/// An operation of the datapath that failed; nothing of it was applied.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// A kernel facility is missing or refused.
    #[error("{what}: {source}")]
    Kernel {
        /// What was tried, in plain words.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Another program has the tunnel device.
    #[error("another program uses the device {device}: give this daemon another `device`")]
    Taken {
        /// The device's name.
        device: String,
    },
    /// A thread that carries packets has ended.
    #[error("no packets are carried any more, the thread {thread} has ended: {why}")]
    Ended {
        /// Its name.
        thread: &'static str,
        /// What it said.
        why: String,
    },
    /// A slot outside the table.
    #[error("path slot {slot} is outside the table of {max}")]
    Slot {
        /// The slot.
        slot: u32,
        /// Number of slots.
        max: u32,
    },
    /// A slot without a path.
    #[error("there is no path in slot {slot}")]
    NoPath {
        /// The slot.
        slot: u32,
    },
    /// A flow to an inner address was to take another host's path.
    #[error("{address} is not an address of the host whose path is in slot {slot}")]
    Owner {
        /// The flow's inner destination.
        address: IpAddr,
        /// The slot.
        slot: u32,
    },
    /// A relay was given two tunnels whose arriving packets it could not tell apart.
    #[error("tunnel {number} has the ends and the form of another one")]
    SameEnds {
        /// The later one's number.
        number: u32,
    },
    /// There is no such tunnel.
    #[error("there is no tunnel {number}")]
    NoTunnel {
        /// Its number.
        number: u32,
    },
    /// A tunnel with home addresses in its packets' headers, which the relay does not carry in user space.
    #[error(
        "tunnel {number} has home addresses in its headers, which only the relay's programs in the kernel carry"
    )]
    HomeAddresses {
        /// Its number.
        number: u32,
    },
    /// The kernel's own forwarding.
    #[error(transparent)]
    Linux(#[from] segue_linux::LinuxError),
    /// A path with UPMT's packets, which this datapath does not carry.
    #[error(
        "encapsulation \"upmt\" is carried in user space only: set datapath = \"user\", or use \"segue\""
    )]
    Upmt,
    /// A table in the kernel is full.
    #[error("the {what} table is full")]
    Full {
        /// Which table.
        what: &'static str,
    },
}

impl DatapathError {
    /// The TUN device cannot be made.
    pub(crate) fn of_device(device: impl AsRef<[u8]>, source: io::Error) -> DatapathError {
        match source.kind() {
            io::ErrorKind::ResourceBusy => DatapathError::Taken {
                device: String::from_utf8_lossy(device.as_ref()).into_owned(),
            },
            _ => DatapathError::Kernel { what: "create the TUN device", source },
        }
    }
}
