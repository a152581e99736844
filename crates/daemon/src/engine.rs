//! The interface between the loop and a role's machine with the layer below it.

use std::collections::BTreeMap;
use std::task::Context;

use anyhow::bail;
use segue_clock::Time;
use segue_ip::{Datagram, Forward, Input, Output};

use crate::trouble::Trouble;

/// A machine together with the layer below it, such as an end of tunnels over a packet path
/// ([`crate::ends::TunnelEnd`]).
pub trait Engine {
    /// The machine's own inputs.
    type Own;
    /// The machine's requests to its role.
    type Wish;
    /// The machine's reports.
    type News;
    /// The machine's records.
    type Record;
    /// An event of the layer below.
    type Event;
    /// The queue of these events. It is separate, so that the loop can wait for it and for the role's chores at the
    /// same time.
    type Queue: Queue<Event = Self::Event>;
    /// Work in progress: started by the calls below, and completed by [`Engine::poll`].
    type Turn;

    /// The time at which to call [`Engine::at_deadline`].
    fn deadline(&self) -> Option<Time>;

    /// Passes an input to the machine.
    fn handle(&mut self, input: Input<Self::Own, Self::Record>) -> Self::Turn;

    /// Handles an event of the layer below.
    fn on_event(&mut self, event: Self::Event) -> Self::Turn;

    /// Handles everything that is due. Queued events that affect it are handled first.
    fn at_deadline(&mut self, queue: &mut Self::Queue) -> Self::Turn;

    /// Updates the data that the status reports.
    fn refresh(&mut self) -> Self::Turn;

    /// Sends a datagram of the machine.
    fn send(&mut self, datagram: Datagram);

    /// The machine's next output, except outputs that the engine carries out itself.
    fn poll(&mut self, turn: &mut Self::Turn) -> Option<ToLoop<Self>>;

    /// Installs a part of the forwarding that the layer below handles instead of the kernel: a tunnel, an inner source
    /// or a binding; or removes it.
    ///
    /// # Errors
    /// The layer below cannot install it.
    fn carry(&mut self, part: &Forward, _given: bool) -> anyhow::Result<()> {
        bail!("nothing carries {part:?} here")
    }

    /// Ends a turn, and logs its failures.
    fn finish(&mut self, turn: Self::Turn, trouble: &mut Trouble);

    /// Called once a second.
    ///
    /// # Errors
    /// The layer below has failed, and the daemon cannot go on.
    fn heartbeat(&mut self) -> anyhow::Result<()>;

    /// Refused packets by reason.
    fn drops(&mut self) -> BTreeMap<String, u64>;
}

/// An output that the engine leaves to the loop.
pub type ToLoop<E> = Output<<E as Engine>::Wish, <E as Engine>::News, <E as Engine>::Record>;

/// Events that wait for an engine.
pub trait Queue {
    /// The type of events.
    type Event;

    /// Takes one turn's batch; wakes the task if more events remain.
    fn take(&mut self, context: &mut Context<'_>, into: impl FnMut(Self::Event));
}
