//! What was decided and why.

use alloc::vec::Vec;
use core::fmt;

use segue_clock::Span;

use crate::{PathId, Score};

/// The path of a class, and why it is that one.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The path to use.
    pub path: PathId,
    /// The path used until now; the same as `path` if nothing moves, `None` before the first choice.
    pub previous: Option<PathId>,
    /// Why.
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
    /// There was no path before.
    First,
    /// The path in use is no longer usable.
    Down,
    /// The path in use no longer exists.
    Removed,
    /// The path in use loses packets, and the other is better even if it loses as many as its counts allow.
    Lossy,
    /// Another path was better.
    Better {
        /// Its lead in points of score at the time of the move.
        by: f64,
        /// For how long its lead had been above the margin.
        held: Span,
    },
    /// An operator asked for this path.
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
