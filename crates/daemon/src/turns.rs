//! Takes a daemon's queued work in turns: a bounded batch from each source. A flood from one source delays the others
//! by one batch, and timers by all batches of a turn. A turn lasts milliseconds.

use std::future::poll_fn;
use std::task::{Context, Poll};

use segue_linux::monitor::{Change, Monitor, MonitorError};
use tokio::sync::mpsc;

use crate::control::{Asked, Vocabulary};
use crate::engine::Queue;

/// Most events of signalling per turn.
const SIGNALLED: usize = 16;
/// Most changes of interfaces per turn.
const CHANGED: usize = 4;
/// Most requests over the control socket per turn.
const ASKED: usize = 4;

/// One piece of work for a daemon.
pub enum Work<B, S, V: Vocabulary> {
    /// An event of the layer below the machine.
    Below(B),
    /// An event of signalling.
    Signalling(S),
    /// A request over the control socket.
    Asked(Asked<V>),
    /// The interfaces have changed.
    Interfaces(Result<Change, MonitorError>),
}

/// The sources of work.
pub struct Sources<Q, S, V: Vocabulary> {
    /// The queue of the layer below the machine.
    pub below: Q,
    signalled: mpsc::Receiver<S>,
    asked: mpsc::Receiver<Asked<V>>,
    interfaces: mpsc::Receiver<Result<Change, MonitorError>>,
}

impl<Q: Queue, S, V: Vocabulary> Sources<Q, S, V> {
    /// Bundles these sources, and starts watching interfaces.
    pub fn new(
        below: Q,
        signalled: mpsc::Receiver<S>,
        asked: mpsc::Receiver<Asked<V>>,
        monitor: Monitor,
    ) -> Sources<Q, S, V> {
        Sources { below, signalled, asked, interfaces: watch(monitor) }
    }

    /// Waits until there is work, and takes a batch of each kind. Cancel-safe.
    pub async fn turn(&mut self) -> Vec<Work<Q::Event, S, V>> {
        poll_fn(|context| {
            let mut works = Vec::new();
            self.below.take(context, |event| works.push(Work::Below(event)));
            take(&mut self.signalled, SIGNALLED, context, |event| {
                works.push(Work::Signalling(event))
            });
            take(&mut self.asked, ASKED, context, |asked| works.push(Work::Asked(asked)));
            take(&mut self.interfaces, CHANGED, context, |change| {
                works.push(Work::Interfaces(change))
            });
            if works.is_empty() { Poll::Pending } else { Poll::Ready(works) }
        })
        .await
    }
}

/// Takes at most this many items; wakes the task when an empty queue receives one.
pub fn take<T>(
    source: &mut mpsc::Receiver<T>,
    most: usize,
    context: &mut Context<'_>,
    into: impl FnMut(T),
) {
    let mut taken = Vec::new();
    let _ = source.poll_recv_many(context, &mut taken, most);
    taken.into_iter().for_each(into);
}

/// Starts a task that reports interface changes, up to the first error. Reading the interfaces
/// costs more than waiting, so it is not restarted in each turn.
fn watch(mut monitor: Monitor) -> mpsc::Receiver<Result<Change, MonitorError>> {
    let (changes, changed) = mpsc::channel(CHANGED);
    tokio::spawn(async move {
        loop {
            let change = monitor.changed().await;
            let ends = change.is_err();
            if changes.send(change).await.is_err() || ends {
                return;
            }
        }
    });
    changed
}
