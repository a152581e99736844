//! Wireless attachment: cells of access routers, and radios that attach to them.
//!
//! A radio has a link of its own to every cell that it is attached to, with the cell's parameters in each
//! direction: cells do not share their rate among the hosts in them. Nothing is said here about fading;
//! the loss of a cell is that of its [`LinkSpec`].

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
    /// Its address on the air, the gateway of radios; it becomes one of the router's own.
    pub gateway: Option<IpAddr>,
    /// The prefix from which radios without an address of their own get one: the prefix's first address
    /// and a number, from 2.
    pub prefix: Option<Prefix>,
    /// The air link from router to host.
    pub down: LinkSpec,
    /// The air link from host to router.
    pub up: LinkSpec,
}

/// A node's interface that attaches to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioConfig {
    /// The node.
    pub node: NodeId,
    /// Its interface, which is connected to nothing. Addresses that it has are fixed: it keeps them, and
    /// routes to them from beyond the cell are others' concern. Without one it gets an address in each
    /// cell that has a prefix.
    pub interface: u32,
    /// Cells that it can be attached to at one time: 1, or 2 for make-before-break. Attaching to one more
    /// leaves the oldest.
    pub at_once: u32,
}

/// Parameters that make no cell, radio or walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WirelessError {
    /// The air link makes no link.
    Link(SpecError),
    /// The node has no interface with this index.
    NoInterface(u32),
    /// The radio's interface is connected, or a radio already.
    Connected(u32),
    /// A radio attaches to one cell at a time or to two.
    AtOnce(u32),
    /// It makes no walk.
    Walk(WalkError),
    /// An overlap for a radio that attaches to one cell at a time.
    NoOverlap,
    /// The cell's prefix has no address left.
    PrefixFull(CellId),
    /// There is no such cell.
    NoCell(CellId),
    /// There is no such radio.
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
    /// The radio's address in this cell, if it gets one.
    pub(super) address: Option<IpAddr>,
}

/// Cells, radios, and which have met.
#[derive(Clone, Debug, Default)]
pub(super) struct Wireless {
    pub(super) cells: Vec<CellConfig>,
    pub(super) radios: Vec<Radio>,
    /// By cell and radio, in ascending order.
    pub(super) pairs: Vec<Pair>,
}
