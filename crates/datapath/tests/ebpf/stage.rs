//! Common parts of all tests of a datapath in the kernel.

use std::time::{Duration, Instant};

use segue_linux::link::{self, Feature, set_feature};

/// How veth wires treat packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Super-packets cross it unsegmented.
    Whole,
    /// Packets are segmented before it.
    NoGso,
    /// Packets are segmented, and their checksums are complete.
    NoChecksum,
}

impl Wire {
    /// Configures one end accordingly, and sets it up.
    pub(crate) fn set_up(self, device: &str) {
        set_feature(device, Feature::Gro, true).unwrap();
        if self != Wire::Whole {
            set_feature(device, Feature::Tso, false).unwrap();
            set_feature(device, Feature::Gso, false).unwrap();
        }
        if self == Wire::NoChecksum {
            set_feature(device, Feature::TxChecksum, false).unwrap();
        }
        link::set_up(device, true).unwrap();
    }
}

/// True if the tests may run; prints a note otherwise.
pub(crate) fn may_run() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: namespaces and packet paths need root");
    }
    root
}

/// Waits until a condition holds, for at most ten seconds because the machine may be busy.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
