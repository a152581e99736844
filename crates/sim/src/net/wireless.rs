//! Wireless attachment: cells of access routers, and the radios that attach to them.
//!
//! A radio has a separate link to every cell to which it is attached, with the cell's parameters in each
//! direction: hosts in a cell do not share its rate. Fading is not modelled; the loss of a cell is the one in its
//! [`LinkSpec`].

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use segue_ip::Prefix;
use segue_netem::{LinkSpec, SpecError, WalkError};

use super::ChannelId;
use super::ids::{CellId, NodeId, RadioId};

/// The cell of an access router.
#[derive(Clone, Debug, PartialEq)]
pub struct CellConfig {
    /// The access router.
    pub router: NodeId,
    /// The router's address on the air, which is the gateway of the radios. It becomes one of the router's own
    /// addresses.
    pub gateway: Option<IpAddr>,
    /// Prefix from which radios without a fixed address get one, numbered from 2 above the prefix's first
    /// address.
    pub prefix: Option<Prefix>,
    /// The air link from router to host.
    pub down: LinkSpec,
    /// The air link from host to router.
    pub up: LinkSpec,
}

/// An interface of a node that attaches to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioConfig {
    /// The node.
    pub node: NodeId,
    /// The interface; it must not be connected. If it has addresses they are fixed: it keeps them, and routes to
    /// them from beyond the cell are up to others. Without any it gets an address in each cell that has a prefix.
    pub interface: u32,
    /// Number of cells to which it can be attached at once: 1, or 2 for make-before-break. A further attachment
    /// replaces the oldest.
    pub at_once: u32,
}

/// Why a cell, radio or walk is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WirelessError {
    /// Invalid parameters of the air link.
    Link(SpecError),
    /// The node has no interface with this index.
    NoInterface(u32),
    /// The interface is connected, or is a radio already.
    Connected(u32),
    /// The number of simultaneous cells is neither 1 nor 2.
    AtOnce(u32),
    /// An invalid walk.
    Walk(WalkError),
    /// The walk has an overlap, but the radio attaches to one cell at a time.
    NoOverlap,
    /// The cell's prefix has no address left.
    PrefixFull(CellId),
    /// No such cell.
    NoCell(CellId),
    /// No such radio.
    NoRadio(RadioId),
}

impl fmt::Display for WirelessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WirelessError::Link(error) => write!(f, "air link: {error}"),
            WirelessError::NoInterface(index) => write!(f, "the node has no interface {index}"),
            WirelessError::Connected(index) => {
                write!(f, "interface {index} is connected, a radio is not")
            }
            WirelessError::AtOnce(n) => {
                write!(f, "a radio attaches to 1 cell at a time or to 2, not to {n}")
            }
            WirelessError::Walk(error) => write!(f, "{error}"),
            WirelessError::NoOverlap => {
                f.write_str("the walk has an overlap, but its radio attaches to one cell at a time")
            }
            WirelessError::PrefixFull(cell) => {
                write!(f, "the prefix of cell {} has no address left", cell.0)
            }
            WirelessError::NoCell(cell) => write!(f, "there is no cell {}", cell.0),
            WirelessError::NoRadio(radio) => write!(f, "there is no radio {}", radio.0),
        }
    }
}

impl core::error::Error for WirelessError {}

impl From<WalkError> for WirelessError {
    fn from(error: WalkError) -> WirelessError {
        WirelessError::Walk(error)
    }
}

impl From<SpecError> for WirelessError {
    fn from(error: SpecError) -> WirelessError {
        WirelessError::Link(error)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Radio {
    pub(super) config: RadioConfig,
    pub(super) fixed: bool,
}

/// A radio and a cell that have met.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) radio: RadioId,
    pub(super) cell: CellId,
    /// The router's interface towards this radio.
    pub(super) interface: u32,
    pub(super) down: ChannelId,
    pub(super) up: ChannelId,
    /// The radio's address in this cell, if the cell assigns one.
    pub(super) address: Option<IpAddr>,
}

/// Cells, radios, and the pairs that have met.
#[derive(Clone, Debug, Default)]
pub(super) struct Wireless {
    pub(super) cells: Vec<CellConfig>,
    pub(super) radios: Vec<Radio>,
    /// Sorted by cell and radio.
    pub(super) pairs: Vec<Pair>,
}
