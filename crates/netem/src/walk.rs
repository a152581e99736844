//! Movement of a radio from cell to cell, shared by the lab and the simulator.

use alloc::vec::Vec;
use core::fmt;

use segue_clock::{Span, Time};

/// Movement of a radio along a list of cells: it attaches to the first cell at `begin`, then moves to the next one each
/// period. The driver defines what a cell is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk<C> {
    /// The cells on the way.
    pub cells: Vec<C>,
    /// After the last cell, move back; otherwise the walk ends there.
    pub back_and_forth: bool,
    /// When the radio attaches to the first cell.
    pub begin: Time,
    /// Time from `begin` to the first handover.
    pub first: Span,
    /// Time between handovers.
    pub period: Span,
    /// How long the radio is attached to both cells at a handover.
    pub overlap: Span,
    /// How long the radio is attached to neither cell. Either this or `overlap` is 0.
    pub gap: Span,
    /// How long before leaving a cell the radio announces it; zero: never.
    pub notice: Span,
    /// Maximum number of handovers.
    pub handovers: u32,
}

/// An event of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<C> {
    /// The radio attaches to a cell.
    Attach(C),
    /// The radio leaves a cell.
    Detach(C),
    /// The radio will leave a cell at this time.
    Announce(C, Time),
}

/// Why a walk is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkError {
    /// The walk has fewer than two cells.
    FewCells,
    /// The cell at this index is the same as the previous one.
    SameCell(usize),
    /// The period is 0, or not longer than the overlap or the gap.
    Period,
    /// The walk has both an overlap and a gap.
    OverlapAndGap,
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::FewCells => f.write_str("a walk needs two cells"),
            WalkError::SameCell(i) => write!(f, "cell {} of the walk is the one before it", i + 1),
            WalkError::Period => {
                f.write_str("the walk's period is not longer than its overlap or gap")
            }
            WalkError::OverlapAndGap => f.write_str("a walk has an overlap or a gap, not both"),
        }
    }
}

impl core::error::Error for WalkError {}

impl<C: Copy + PartialEq> Walk<C> {
    /// A walk back and forth that starts at time 0 and moves once each `period`.
    #[must_use]
    pub fn new(cells: Vec<C>, period: Span, handovers: u32) -> Walk<C> {
        Walk {
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

    /// The walk of host number `turn` (from 0) of `hosts` that take turns: in each period of this walk, one of them
    /// moves.
    #[must_use]
    pub fn taking_turns(mut self, turn: u32, hosts: u32) -> Walk<C> {
        self.first = self.first + self.period * u64::from(turn);
        self.period = self.period * u64::from(hosts.max(1));
        self
    }

    /// Validates the walk. The caller must know if the radio can be attached to two cells at a time.
    ///
    /// # Errors
    /// Too few cells, a repeated cell, or conflicting times.
    pub fn check(&self) -> Result<(), WalkError> {
        if self.cells.len() < 2 {
            return Err(WalkError::FewCells);
        }
        if let Some(i) = self.cells.windows(2).position(|pair| pair[0] == pair[1]) {
            return Err(WalkError::SameCell(i + 1));
        }
        if self.overlap > Span::ZERO && self.gap > Span::ZERO {
            return Err(WalkError::OverlapAndGap);
        }
        if self.period <= self.overlap.max(self.gap) {
            return Err(WalkError::Period);
        }
        Ok(())
    }

    /// The steps of one handover, counted from 0, with their times; empty if there is no such handover. Steps at the
    /// same time must be taken in this order, after those of the previous handover. A departure is never announced
    /// before the radio has attached.
    pub fn handover(&self, number: u32) -> impl Iterator<Item = (Time, Step<C>)> + use<C> {
        let places =
            (number < self.handovers).then(|| (self.place(number), self.place(number + 1)));
        let steps = places.filter(|(from, to)| from != to).map(|(from, to)| {
            let (from, to) = (self.cells[from], self.cells[to]);
            let at = self.begin + self.first + self.period * u64::from(number);
            let leaves = at + self.overlap;
            let came = match number {
                0 => self.begin,
                _ => self.begin + self.first + self.period * u64::from(number - 1) + self.gap,
            };
            let notice = Time(leaves.0.saturating_sub(self.notice.0)).max(came);
            let told = (self.notice > Span::ZERO).then_some((notice, Step::Announce(from, leaves)));
            let moves = if self.overlap > Span::ZERO {
                [(at, Step::Attach(to)), (leaves, Step::Detach(from))]
            } else {
                [(at, Step::Detach(from)), (at + self.gap, Step::Attach(to))]
            };
            told.into_iter().chain(moves)
        });
        steps.into_iter().flatten()
    }

    /// Index of the cell after this many handovers.
    fn place(&self, handovers: u32) -> usize {
        let last = self.cells.len() - 1;
        if !self.back_and_forth {
            return last.min(handovers as usize);
        }
        let at = handovers as usize % (2 * last).max(1);
        if at <= last { at } else { 2 * last - at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    fn steps(walk: &Walk<char>) -> Vec<(u64, Step<char>)> {
        let all = (0..walk.handovers + 1).flat_map(|number| walk.handover(number));
        all.map(|(at, step)| (at.0 / MS, step)).collect()
    }

    #[test]
    fn a_walk_goes_back_and_forth_or_ends_at_its_last_cell() {
        let there = Walk::new(vec!['a', 'b', 'c'], ms(100), 5);
        let to = |walk: &Walk<char>| -> Vec<char> {
            let cell = |(_, step)| if let Step::Attach(cell) = step { Some(cell) } else { None };
            steps(walk).into_iter().filter_map(cell).collect()
        };
        assert_eq!(to(&there), ['b', 'c', 'b', 'a', 'b']);
        assert_eq!(to(&Walk { back_and_forth: false, ..there }), ['b', 'c']);
    }

    #[test]
    fn gap_overlap_and_notice_place_the_steps_around_the_handover() {
        let plain = Walk { begin: Time(7 * MS), ..Walk::new(vec!['a', 'b'], ms(100), 1) };
        let leaves = |at| Step::Announce('a', Time(at * MS));
        let (attach, detach) = (Step::Attach('b'), Step::Detach('a'));
        assert_eq!(steps(&plain), [(107, detach), (107, attach)]);
        let gap = Walk { gap: ms(30), notice: ms(50), ..plain.clone() };
        assert_eq!(steps(&gap), [(57, leaves(107)), (107, detach), (137, attach)]);
        let overlap = Walk { overlap: ms(30), notice: ms(50), ..plain.clone() };
        assert_eq!(steps(&overlap), [(87, leaves(137)), (107, attach), (137, detach)]);
        let early = Walk { notice: ms(500), handovers: 2, ..gap };
        let told = steps(&early).into_iter().filter(|(_, s)| matches!(s, Step::Announce(..)));
        let back = Step::Announce('b', Time(207 * MS));
        assert_eq!(told.collect::<Vec<_>>(), [(7, leaves(107)), (137, back)]);
    }

    #[test]
    fn what_makes_no_walk_is_refused() {
        let good = Walk::new(vec!['a', 'b'], ms(100), 5);
        let cases = [
            (Walk { cells: vec!['a'], ..good.clone() }, WalkError::FewCells),
            (Walk { cells: vec!['a', 'b', 'b'], ..good.clone() }, WalkError::SameCell(2)),
            (Walk { overlap: ms(1), gap: ms(1), ..good.clone() }, WalkError::OverlapAndGap),
            (Walk { gap: ms(100), ..good.clone() }, WalkError::Period),
            (Walk { period: Span::ZERO, ..good.clone() }, WalkError::Period),
        ];
        for (walk, error) in cases {
            assert_eq!(walk.check(), Err(error));
        }
        assert_eq!(good.check(), Ok(()));
    }
}
