//! `[[cell]]` and `[[walk]]`, shared by test networks and scenarios: accesses of routers, and radios that attach to
//! them.

use schemars::JsonSchema;
use segue_clock::{Span, Time};
use segue_netem as netem;
use serde::Deserialize;

use crate::link::OverLink;
use crate::names::{check_address, check_name};
use crate::network::{Address, End, EndAddress, PrefixText};
use crate::placed::{Name, Spanned};
use crate::source::Mistake;
use crate::values::Duration;

/// A router's access: a separate link for each attached radio; up is from the radio.
pub type Cell = OverLink<Access>;

/// The keys of a cell other than its link parameters.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Access {
    /// Unique among cells
    pub name: Name,
    /// Its node
    pub router: Name,
    /// Radios without an address get one from it
    pub prefix: Option<Spanned<PrefixText>>,
    /// The router's address in the cell
    pub gateway: Option<Spanned<Address>>,
}

/// Number, within a cell's prefix, of the first address that a radio obtains.
pub const FIRST_ADDRESS: u32 = 2;

impl Access {
    /// Checks the name, the prefix and the gateway.
    ///
    /// # Errors
    /// The name or the gateway is invalid, or the prefix has no address for a radio.
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

/// A radio, and the cells that it visits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Walk {
    /// The radio, which this table creates, `radio` if no interface is named
    pub node: Spanned<End>,
    /// The cells that it passes; one if it stays there, none if only events move it
    pub cells: Spanned<Vec<Name>>,
    /// Addresses that it keeps everywhere; a prefix length may follow, as for links
    #[serde(default)]
    #[schemars(extend("x-unset" = "those of the cells"))]
    pub addresses: Vec<Spanned<EndAddress>>,
    /// When it attaches to the first cell
    #[schemars(extend("x-unset" = "at the start"))]
    pub begin: Option<Spanned<Duration>>,
    /// Time from one handover to the next
    pub period: Option<Duration>,
    /// Time from its beginning to the first handover
    #[schemars(extend("x-unset" = "the period"))]
    pub first: Option<Duration>,
    /// How long it is attached to both cells
    #[schemars(extend("x-unset" = "0"))]
    pub overlap: Option<Duration>,
    /// How long it is attached to neither cell
    #[schemars(extend("x-unset" = "0"))]
    pub gap: Option<Duration>,
    /// How long before leaving a cell the departure is announced to the radio and the cell's router, at the earliest on
    /// arrival
    #[schemars(extend("x-unset" = "no announcement"))]
    pub notice: Option<Duration>,
    /// It walks back from the last cell
    #[schemars(extend("x-unset" = "`true`"))]
    pub back_and_forth: Option<bool>,
    /// Number of radios that take turns: one handover per period, by one after the other
    #[schemars(extend("x-unset" = "no turns"))]
    pub turns: Option<u32>,
    /// Its place among them, from 0
    #[schemars(extend("x-unset" = "0"))]
    pub turn: Option<u32>,
}

impl Walk {
    /// The name of the radio at its node.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.node.get_ref().interface.as_deref().unwrap_or("radio")
    }

    /// The name of the radio: `NODE:INTERFACE`.
    #[must_use]
    pub fn radio(&self) -> String {
        format!("{}:{}", self.node.get_ref().node, self.interface())
    }

    /// Number of cells that the radio can be attached to at the same time: two with an overlap, else one.
    #[must_use]
    pub fn at_once(&self) -> u32 {
        if self.overlap.is_some_and(|Duration(overlap)| overlap > Span::ZERO) { 2 } else { 1 }
    }

    /// The first key that only applies to handovers, if one is set. An overlap also implies two cells at a time.
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

    /// The walk through `cells`, in order, with as many handovers as possible; `None` if it visits at most one cell.
    /// Times count from `start`.
    ///
    /// # Errors
    /// There are several cells, or a key about handovers, without a period; the turn does not exist; or the times make
    /// no valid walk.
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
