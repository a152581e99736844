//! Scheduled events of a lab, and the thread that executes them.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike};
use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use segue_netem::{Step, Walk};

use crate::air::SharedAir;
use crate::log::Direction;
use crate::topology::Emulated;

/// Maximum duration of a sleep.
const LONGEST: Span = Span::from_secs(60);

/// Scheduled events, by time and then in the order of insertion.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    due: BTreeMap<(Time, u64), Due>,
    added: u64,
    walks: Vec<Way>,
}

/// The walk of a radio; it refers to cells by their index.
#[derive(Debug)]
struct Way {
    radio: String,
    cells: Vec<String>,
    walk: Walk<usize>,
}

#[derive(Debug)]
enum Due {
    Act(Act),
    /// Plans the next handover of a walk, because walks may be endless.
    Plan(usize, u32),
}

/// An event.
#[derive(Debug)]
pub(crate) enum Act {
    /// A step of a radio, with the name of the cell.
    Radio(String, Step<String>),
    /// Directions of a link are cut (true) or mended.
    Cut(Arc<Emulated>, Vec<Direction>, bool),
}

impl Act {
    /// Executes the event. Ignores attachments that exist already and detachments of absent radios.
    fn happen(self, air: Option<&SharedAir>) -> Result<()> {
        match (self, air) {
            (Act::Cut(link, ways, cut), _) => link.cut(&ways, cut),
            (Act::Radio(radio, step), Some(air)) => {
                let mut air = air.lock();
                match step {
                    Step::Attach(cell) => air.come(&radio, &cell).map(drop),
                    Step::Detach(cell) => air.leave(&radio, &cell).map(drop),
                    Step::Announce(cell, leaves) => {
                        air.announce(&radio, &cell, leaves);
                        Ok(())
                    }
                }
            }
            (Act::Radio(..), None) => Ok(()),
        }
    }
}

impl Agenda {
    /// Adds an event at a time.
    pub(crate) fn add(&mut self, at: Time, act: Act) {
        self.put(at, Due::Act(act));
    }

    /// Adds the walk of a radio; the walk's indices refer to these names of cells.
    pub(crate) fn add_walk(&mut self, radio: &str, cells: Vec<String>, walk: Walk<usize>) {
        let (radio, begin) = (radio.to_owned(), walk.begin);
        self.add(begin, Act::Radio(radio.clone(), Step::Attach(cells[walk.cells[0]].clone())));
        self.walks.push(Way { radio, cells, walk });
        self.put(begin, Due::Plan(self.walks.len() - 1, 0));
    }

    /// Whether there are no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    fn put(&mut self, at: Time, due: Due) {
        self.added += 1;
        self.due.insert((at, self.added), due);
    }

    /// Time of the next event.
    fn next(&self) -> Option<Time> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next event due by `now`.
    fn take(&mut self, now: Time) -> Option<Act> {
        loop {
            let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
            match entry.remove() {
                Due::Act(act) => return Some(act),
                Due::Plan(walk, handover) => self.plan(walk, handover),
            }
        }
    }

    /// Adds the steps of a handover, and the planning of the next one for when the radio has arrived.
    fn plan(&mut self, number: usize, handover: u32) {
        let Way { radio, cells, walk } = &self.walks[number];
        let named = |step: Step<usize>| match step {
            Step::Attach(cell) => Step::Attach(cells[cell].clone()),
            Step::Detach(cell) => Step::Detach(cells[cell].clone()),
            Step::Announce(cell, leaves) => Step::Announce(cells[cell].clone(), leaves),
        };
        let steps: Vec<_> = walk
            .handover(handover)
            .map(|(at, step)| (at, Act::Radio(radio.clone(), named(step))))
            .collect();
        let comes = |(_, act): &&(Time, Act)| matches!(act, Act::Radio(_, Step::Attach(_)));
        let come = steps.iter().find(comes).map(|(at, _)| *at);
        for (at, act) in steps {
            self.add(at, act);
        }
        if let (Some(at), Some(next)) = (come, handover.checked_add(1)) {
            self.put(at, Due::Plan(number, next));
        }
    }
}

/// The thread that executes events and accepts listeners. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Clockwork {
    /// Closing it stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Clockwork {
    pub(crate) fn start(agenda: Agenda, air: Option<SharedAir>) -> Result<Clockwork> {
        let (stop, stopped) = UnixStream::pair().context("make a pair of sockets")?;
        let thread = std::thread::Builder::new()
            .name("segue-lab".to_owned())
            .spawn(move || run(agenda, air.as_ref(), &stopped))
            .context("start the thread of a lab's events")?;
        Ok(Clockwork { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut agenda: Agenda, air: Option<&SharedAir>, stopped: &UnixStream) {
    loop {
        // One event at a time: an overloaded agenda must not keep the lab from ending.
        if let Some(Err(error)) = agenda.take(monotonic()).map(|act| act.happen(air)) {
            tracing::warn!("an event of the lab failed: {error:#}");
        }
        let mut fds = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        fds.extend(air.map(|air| PollFd::new(air.socket().as_fd(), PollFlags::POLLIN)));
        let wait = agenda.next().map_or(LONGEST, |at| at.since(monotonic())).min(LONGEST);
        let wait = TimeSpec::nanoseconds(wait.0 as i64);
        match ppoll(&mut fds, Some(wait), None) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => {
                tracing::warn!("a lab's events have ended: {error}");
                return;
            }
        }
        if fds[0].any() == Some(true) {
            return;
        }
        if let Some(air) = air {
            air.lock().welcome();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn steps(agenda: &mut Agenda, until: Time) -> Vec<(u64, Step<String>)> {
        let mut steps = Vec::new();
        while let Some(at) = agenda.next().filter(|at| *at <= until) {
            if let Some(Act::Radio(_, step)) = agenda.take(at) {
                steps.push((at.0 / MS, step));
            }
        }
        steps
    }

    #[test]
    fn a_walk_without_an_end_is_planned_one_handover_ahead() {
        let ms = Span::from_millis;
        let walk =
            Walk { gap: ms(10), notice: ms(500), ..Walk::new(vec![0, 1], ms(100), u32::MAX) };
        let mut agenda = Agenda::default();
        agenda.add_walk("phone:radio", vec!["a".to_owned(), "b".to_owned()], walk);
        let cell = str::to_owned;
        let leaves = |at| Time(at * MS);
        let expected = [
            (0, Step::Attach(cell("a"))),
            (0, Step::Announce(cell("a"), leaves(100))),
            (100, Step::Detach(cell("a"))),
            (110, Step::Attach(cell("b"))),
            (110, Step::Announce(cell("b"), leaves(200))),
            (200, Step::Detach(cell("b"))),
            (210, Step::Attach(cell("a"))),
        ];
        assert_eq!(steps(&mut agenda, Time(210 * MS - 1))[..], expected[..6]);
        assert!(agenda.due.len() < 5);
        assert_eq!(steps(&mut agenda, Time(210 * MS))[0], expected[6]);
        let later = steps(&mut agenda, Time(100_000 * MS));
        assert!(later.len() > 2_900, "{}", later.len());
        assert!(agenda.due.len() < 5);
    }

    #[test]
    fn what_is_due_at_one_time_happens_in_the_order_in_which_it_was_added() {
        let mut agenda = Agenda::default();
        for cell in ["b", "a"] {
            let act = Act::Radio("x".to_owned(), Step::Attach(cell.to_owned()));
            agenda.add(Time(5), act);
        }
        assert!(agenda.take(Time(4)).is_none());
        let cells = steps(&mut agenda, Time(5)).into_iter().map(|(_, step)| step);
        let expected = ["b", "a"].map(|cell| Step::Attach(cell.to_owned()));
        assert_eq!(cells.collect::<Vec<_>>(), expected);
    }
}
