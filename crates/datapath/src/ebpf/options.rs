//! Choices of the eBPF datapath.

use super::StampOptions;

/// Where XDP decapsulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xdp {
    /// On drivers that have it natively, but not on virtual Ethernet pairs: those carry super-packets
    /// whole, which an XDP program at the receiving end stops.
    #[default]
    Auto,
    /// On every driver that has it natively.
    On,
    /// Nowhere.
    Off,
}

/// Choices that seldom need to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EbpfOptions {
    /// Where XDP decapsulates.
    pub xdp: Xdp,
    /// Attach through tcx where the kernel has it (6.6 and later). Otherwise use filters of the clsact queueing
    /// discipline.
    pub tcx: bool,
    /// Answer STAMP too, on the attached interfaces.
    pub stamp: Option<StampOptions>,
}

impl Default for EbpfOptions {
    fn default() -> EbpfOptions {
        EbpfOptions { xdp: Xdp::Auto, tcx: true, stamp: None }
    }
}
