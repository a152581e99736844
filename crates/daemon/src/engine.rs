//! What the loop drives: a role's machine over what carries its packets.

use std::collections::BTreeMap;
use std::task::Context;

use anyhow::bail;
use segue_clock::Time;
use segue_ip::{Datagram, Forward, Input, Output};

use crate::trouble::Trouble;

/// A machine over what is below it: that of an end of tunnels over a packet path ([`crate::ends::TunnelEnd`]).
pub trait Engine {
    /// The machine's own inputs.
    type Own;
    /// What it wants of its role.
    type Wish;
    /// What it tells.
    type News;
    /// What it stores.
    type Record;
    /// What comes from below.
    type Event;
    /// Where that waits. It stands apart, so that the loop can wait for it and for the role's chores at once.
    type Queue: Queue<Event = Self::Event>;
    /// Work that is under way: begun by the calls below, and completed by [`Engine::poll`].
    type Turn;

    /// When [`Engine::at_deadline`] is due.
    fn deadline(&self) -> Option<Time>;

    /// Gives the machine an input.
    fn handle(&mut self, input: Input<Self::Own, Self::Record>) -> Self::Turn;

    /// Takes an event from below.
    fn on_event(&mut self, event: Self::Event) -> Self::Turn;

    /// Does what is due. What waits in the queue and bears on it goes first.
    fn at_deadline(&mut self, queue: &mut Self::Queue) -> Self::Turn;

    /// Brings up to date what its status will say.
    fn refresh(&mut self) -> Self::Turn;

    /// Sends a datagram of the machine.
    fn send(&mut self, datagram: Datagram);

    /// The machine's next output, except what the engine carries out itself.
    fn poll(&mut self, turn: &mut Self::Turn) -> Option<ToLoop<Self>>;

    /// Gives what is below a part of forwarding that the kernel has not: a tunnel, an inner source, a binding; or takes it
    /// back.
    ///
    /// # Errors
    /// It cannot have it.
    fn carry(&mut self, part: &Forward, _given: bool) -> anyhow::Result<()> {
        bail!("nothing carries {part:?} here")
    }

    /// Logs what could not be done.
    fn finish(&mut self, turn: Self::Turn, trouble: &mut Trouble);

    /// Once a second.
    ///
    /// # Errors
    /// What is below has broken, and the daemon is of no use any more.
    fn heartbeat(&mut self) -> anyhow::Result<()>;

    /// Refused packets by reason.
    fn drops(&mut self) -> BTreeMap<String, u64>;
}

/// What an engine leaves to the loop.
pub type ToLoop<E> = Output<<E as Engine>::Wish, <E as Engine>::News, <E as Engine>::Record>;

/// What waits for an engine.
pub trait Queue {
    /// Of this kind.
    type Event;

    /// Takes a turn's batch; wakes the task when there is more.
    fn take(&mut self, context: &mut Context<'_>, into: impl FnMut(Self::Event));
}
