//! `[[cell]]` and `[[walk]]`, the same in test networks and scenarios: accesses of routers, and radios that attach to
//! them.

use segue_clock::{Span, Time};
use segue_netem as netem;
use serde::Deserialize;
use toml::Spanned;

use crate::link::OverLink;
use crate::names::{check_address, check_name};
use crate::network::{Address, End, EndAddress, PrefixText};
use crate::source::{Mistake, Name};
use crate::values::Duration;

/// An access of a router: a separate link for each radio in it, with up from the radio.
pub type Cell = OverLink<Access>;

/// What a cell is, beside the parameters of its links.
#[derive(Clone, Debug, Deserialize)]
pub struct Access {
    /// Unique among cells.
    pub name: Name,
    /// The access router.
    pub router: Name,
    /// Radios without an address get one from this prefix.
    pub prefix: Option<Spanned<PrefixText>>,
    /// The router's address on the air.
    pub gateway: Option<Spanned<Address>>,
}

/// The number in a cell's prefix of the first address that a radio gets.
pub const FIRST_ADDRESS: u32 = 2;

impl Access {
    /// Checks its name, its prefix and its gateway.
    ///
    /// # Errors
    /// A name or a gateway that cannot be, or a prefix without an address for a radio.
    pub fn check(&self) -> Result<(), Mistake> {
        check_name(&self.name)?;
        let gateway = self.gateway.as_ref();
        if let Some(written) = &self.prefix {
            let prefix = written.get_ref().0;
            let first = (FIRST_ADDRESS..FIRST_ADDRESS + 2).filter_map(|n| prefix.nth(n));
            if { first }.all(|address| gateway.is_some_and(|own| own.get_ref().0 == address)) {
                let message = format!("{prefix} has no room for a radio");
                return Err(Mistake::of(written, message));
            }
        }
        gateway.map_or(Ok(()), |gateway| check_address(gateway.get_ref().0, gateway))
    }
}

/// A radio, and where it goes.
#[derive(Clone, Debug, Deserialize)]
pub struct Walk {
    /// The node and the name of its radio.
    pub node: Spanned<End>,
    /// Cells along its way; a single one if it stays there, none if it attaches to nothing by itself.
    pub cells: Spanned<Vec<Name>>,
    /// Addresses that it keeps; without, it gets one in each cell.
    #[serde(default)]
    pub addresses: Vec<Spanned<EndAddress>>,
    /// When it attaches to the first cell.
    pub begin: Option<Spanned<Duration>>,
    /// Time from one handover to the next.
    pub period: Option<Duration>,
    /// Time from its beginning to the first handover; by default the period.
    pub first: Option<Duration>,
    /// How long it is attached to both cells.
    pub overlap: Option<Duration>,
    /// How long it is attached to neither.
    pub gap: Option<Duration>,
    /// How long before it leaves a cell both ends learn of it.
    pub notice: Option<Duration>,
    /// It walks back from the last cell.
    pub back_and_forth: Option<bool>,
    /// Of this many hosts that take turns … …
    pub turns: Option<u32>,
    /// … it is this one, from 0.
    pub turn: Option<u32>,
}

impl Walk {
    /// The name of the radio at its node.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.node.get_ref().interface.as_deref().unwrap_or("radio")
    }

    /// What the radio is called: `NODE:INTERFACE`.
    #[must_use]
    pub fn radio(&self) -> String {
        format!("{}:{}", self.node.get_ref().node, self.interface())
    }

    /// How many cells the radio can be attached to at a time: two if it has an overlap.
    #[must_use]
    pub fn at_once(&self) -> u32 {
        if self.overlap.is_some_and(|Duration(overlap)| overlap > Span::ZERO) { 2 } else { 1 }
    }

    /// A key that says how it goes from cell to cell. An overlap also says that it can be in two cells at a time.
    fn of_handovers(&self) -> Option<&'static str> {
        let keys = [
            ("first", self.first.is_some()),
            ("gap", self.gap.is_some()),
            ("notice", self.notice.is_some()),
            ("back_and_forth", self.back_and_forth.is_some()),
            ("turns", self.turns.is_some()),
            ("turn", self.turn.is_some()),
        ];
        keys.into_iter().find_map(|(key, written)| written.then_some(key))
    }

    /// The way through its cells, which are given in their order, with as many handovers as there can be; `None` if it
    /// goes through at most one. Its times count from `start`.
    ///
    /// # Errors
    /// Several cells, or a word on handovers, without a period, a turn that does not exist, or times that make no walk.
    pub fn way<C: Copy + PartialEq>(
        &self,
        cells: Vec<C>,
        start: Time,
    ) -> Result<Option<netem::Walk<C>>, Mistake> {
        let Some(Duration(period)) = self.period else {
            if cells.len() > 1 {
                return Err(Mistake::of(&self.cells, "a way through cells needs a period"));
            }
            if let Some(key) = self.of_handovers() {
                return Err(Mistake::beside(&self.cells, key, "it needs a period"));
            }
            return Ok(None);
        };
        let span = |written: Option<Duration>| written.map_or(Span::ZERO, |d| d.0);
        let mut way = netem::Walk {
            begin: start + self.begin.as_ref().map_or(Span::ZERO, |at| at.get_ref().0),
            first: self.first.map_or(period, |d| d.0),
            overlap: span(self.overlap),
            gap: span(self.gap),
            notice: span(self.notice),
            back_and_forth: self.back_and_forth.unwrap_or(true),
            ..netem::Walk::new(cells, period, u32::MAX)
        };
        if let Some(turns) = self.turns {
            let turn = self.turn.unwrap_or(0);
            if turn >= turns {
                let message = format!("turn {turn} of {turns}: they count from 0");
                return Err(Mistake::of(&self.node, message));
            }
            way = way.taking_turns(turn, turns);
        }
        if self.turn.is_some() && self.turns.is_none() {
            return Err(Mistake::beside(&self.cells, "turn", "it needs turns, of how many it is"));
        }
        way.check().map_err(Mistake::at(&self.cells))?;
        Ok(Some(way))
    }
}
