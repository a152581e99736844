//! Options of the eBPF datapath.

use super::StampOptions;

/// The devices on which XDP decapsulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xdp {
    /// On drivers with native XDP, except veth pairs: an XDP program at the receiving end would stop veth from
    /// passing super-packets unsegmented.
    #[default]
    Auto,
    /// On every driver with native XDP.
    On,
    /// Nowhere.
    Off,
}

/// Options that rarely need a value other than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EbpfOptions {
    /// The devices on which XDP decapsulates.
    pub xdp: Xdp,
    /// Attach through tcx if the kernel supports it (6.6 and later). Otherwise, and on older kernels, use
    /// filters of the clsact queueing discipline.
    pub tcx: bool,
    /// Also answer STAMP on the attached interfaces.
    pub stamp: Option<StampOptions>,
}

impl Default for EbpfOptions {
    fn default() -> EbpfOptions {
        EbpfOptions { xdp: Xdp::Auto, tcx: true, stamp: None }
    }
}
