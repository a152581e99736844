//! Wireless attachment: cells of access routers, radios that attach to them, and walks from cell to cell.
//!
//! A radio has a link of its own to every cell that it is attached to, with the cell's parameters in each
//! direction: cells do not share their rate among the hosts in them. Nothing is said here about fading;
//! the loss of a cell is that of its [`LinkSpec`].

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::{LinkSpec, SpecError};

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

/// A way from cell to cell: attached to the first from its beginning, then to the next with every period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Who walks.
    pub radio: RadioId,
    /// Where it comes along.
    pub cells: Vec<CellId>,
    /// From the last cell it walks back; otherwise it stays there.
    pub back_and_forth: bool,
    /// When it attaches to the first cell.
    pub begin: Time,
    /// From its beginning to its first handover.
    pub first: Span,
    /// From one handover to the next.
    pub period: Span,
    /// How long it is attached to both cells; needs a radio that can.
    pub overlap: Span,
    /// How long it is attached to neither. One of the two is 0.
    pub gap: Span,
    /// How long before it leaves a cell that is announced; zero: never.
    pub notice: Span,
    /// How many handovers at most; those behind the end of a run cost nothing but their memory.
    pub handovers: u32,
}

impl Walk {
    /// A walk from time 0 back and forth, with a handover every `period`.
    #[must_use]
    pub fn new(radio: RadioId, cells: Vec<CellId>, period: Span, handovers: u32) -> Walk {
        Walk {
            radio,
            cells,
            back_and_forth: true,
            begin: Time::ZERO,
            first: period,
            period,
            overlap: Span::ZERO,
            gap: Span::ZERO,
            notice: Span::ZERO,
            handovers,
        }
    }

    /// The walk of host `turn` (from 0) of `hosts` who take turns: one handover in the period that was
    /// given, by one host after the other.
    #[must_use]
    pub fn taking_turns(mut self, turn: u32, hosts: u32) -> Walk {
        self.first = self.first + self.period * u64::from(turn);
        self.period = self.period * u64::from(hosts.max(1));
        self
    }

    /// Where the walk is after so many handovers: a place in the list of cells.
    pub(super) fn place(&self, handovers: u32) -> usize {
        let last = self.cells.len() - 1;
        if !self.back_and_forth {
            return last.min(handovers as usize);
        }
        let at = handovers as usize % (2 * last).max(1);
        if at <= last { at } else { 2 * last - at }
    }
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
    /// A walk through fewer than two cells.
    FewCells,
    /// A cell stands twice in succession in a walk, the second time at this position.
    SameCell(usize),
    /// The period is 0, or no longer than overlap or gap.
    Period,
    /// Overlap and gap exclude each other.
    OverlapAndGap,
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
            WirelessError::FewCells => f.write_str("a walk needs two cells"),
            WirelessError::SameCell(i) => {
                write!(f, "cell {} of the walk is the one before it", i + 1)
            }
            WirelessError::Period => {
                f.write_str("the walk's period is not longer than its overlap or gap")
            }
            WirelessError::OverlapAndGap => f.write_str("a walk has an overlap or a gap, not both"),
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
