//! What waits for a daemon, taken in turns: of each source a bounded batch, so that a flood from one holds the
//! others up by its batch alone, and timers by all batches of a turn. A turn lasts milliseconds.

use std::future::poll_fn;
use std::task::{Context, Poll};

use segue_datapath::{Event, ProbeEvent};
use segue_linux::monitor::{Device, Monitor, MonitorError};
use segue_wire::TooBig;
use tokio::sync::mpsc;

use super::packets::Queue;
use super::routers;
use crate::control::Asked;

/// Messages and changes of signalling connections in a turn.
const SIGNALS: usize = 16;
/// Requests over the control socket in a turn.
const ASKED: usize = 4;
/// Words of routers in a turn.
const TOO_BIG: usize = 4;

/// What a daemon has to see to.
pub enum Work<S> {
    /// The datapath tells.
    Packet(Event),
    /// Signalling tells.
    Signal(S),
    /// Somebody asks over the control socket.
    Asked(Asked),
    /// A router says that a packet was too big.
    TooBig(TooBig),
    /// The interfaces have changed.
    Interfaces(Result<Vec<Device>, MonitorError>),
}

/// Where work comes from.
pub struct Sources<S> {
    packets: Queue,
    signalled: mpsc::Receiver<S>,
    asked: mpsc::Receiver<Asked>,
    too_big: mpsc::Receiver<TooBig>,
    interfaces: mpsc::Receiver<Result<Vec<Device>, MonitorError>>,
}

impl<S> Sources<S> {
    /// These sources; the interfaces are watched from here on, and routers are listened to.
    pub fn new(
        packets: Queue,
        signalled: mpsc::Receiver<S>,
        asked: mpsc::Receiver<Asked>,
        monitor: Monitor,
    ) -> Sources<S> {
        let (too_big, interfaces) = (routers::listen(), watch(monitor));
        Sources { packets, signalled, asked, too_big, interfaces }
    }

    /// Waits until there is work, and takes a batch of each kind. What is not waited for is not lost.
    pub async fn turn(&mut self) -> Vec<Work<S>> {
        poll_fn(|context| {
            let mut works = Vec::new();
            self.packets.take(context, |event| works.push(Work::Packet(event)));
            take(&mut self.signalled, SIGNALS, context, |event| works.push(Work::Signal(event)));
            take(&mut self.asked, ASKED, context, |asked| works.push(Work::Asked(asked)));
            take(&mut self.too_big, TOO_BIG, context, |said| works.push(Work::TooBig(said)));
            take(&mut self.interfaces, 1, context, |all| works.push(Work::Interfaces(all)));
            if works.is_empty() { Poll::Pending } else { Poll::Ready(works) }
        })
        .await
    }

    /// The probes that wait at this moment.
    pub fn probes(&mut self) -> Vec<ProbeEvent> {
        self.packets.waiting()
    }
}

/// Takes at most so many; wakes the task when there are some where there were none.
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

/// A task that tells of changes of the interfaces, up to the first error: to look at them costs more than to
/// wait, so that it is not begun anew in each turn.
fn watch(mut monitor: Monitor) -> mpsc::Receiver<Result<Vec<Device>, MonitorError>> {
    let (changes, changed) = mpsc::channel(1);
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
