//! Decisions and their reasons.

use alloc::vec::Vec;
use core::fmt;

use segue_clock::Span;

use crate::{PathId, Score};

/// The path chosen for a class, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The path to use.
    pub path: PathId,
    /// The path used before; equal to `path` if flows stay, `None` for the first choice.
    pub previous: Option<PathId>,
    /// The reason.
    pub reason: Reason,
    /// The scores of all usable paths, best first.
    pub scores: Vec<(PathId, Score)>,
}

impl Decision {
    /// Whether flows have to move.
    #[must_use]
    pub fn is_move(&self) -> bool {
        self.previous != Some(self.path)
    }
}

/// Why a path was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There was no previous path.
    First,
    /// The path in use is unusable.
    Down,
    /// The path in use no longer exists.
    Removed,
    /// The path in use loses packets. The new path scores higher even at the upper bound of its own loss.
    Lossy,
    /// Another path scores higher.
    Better {
        /// Its lead in points at the time of the move.
        by: f64,
        /// How long its lead had exceeded the margin.
        held: Span,
    },
    /// An operator requested this path.
    Requested,
    /// The path in use is kept.
    Unchanged,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::First => f.write_str("the best path at the start"),
            Reason::Down => f.write_str("the path in use went down"),
            Reason::Removed => f.write_str("the path in use was removed"),
            Reason::Lossy => f.write_str("the path in use loses packets"),
            Reason::Better { by, held } => {
                write!(f, "better by {by:.1} points for {:.0} ms", held.as_secs_f64() * 1e3)
            }
            Reason::Requested => f.write_str("requested by the operator"),
            Reason::Unchanged => f.write_str("no reason to move"),
        }
    }
}
