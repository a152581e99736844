//! A function of IEEE 802.21 in the daemon of another role, which hears what happens to links.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use segue_clock::Time;
use segue_ip::{Input, Output};
use segue_linux::clock::realtime_ns;
use segue_mih::{Event, Mihf, MihfConfig, MihfInput, MihfWish};
use tracing::{info, warn};

use super::frame_length;
use crate::engine::{Engine, Queue};
use crate::sockets::{Arrivals, Sockets};
use crate::until;

/// A function that listens.
pub struct Listener {
    end: Sockets<Mihf>,
    arrivals: Arrivals,
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// There is no socket for it.
    pub fn start(config: MihfConfig) -> anyhow::Result<Listener> {
        let machine = Mihf::new(MihfConfig { port: 0, seed: realtime_ns(), ..config });
        let (mut end, mut arrivals) = Sockets::open(machine, &[0])?;
        end.ignore_hosts();
        end.stream(&mut arrivals, None, frame_length, Arc::new(|_| false))?;
        Ok(Listener { end, arrivals })
    }

    /// Waits until something has come or is due; for ever if there is none. What comes is with the machine then.
    pub async fn wait(listener: Option<&mut Listener>) {
        let Some(Listener { end, arrivals }) = listener else {
            return std::future::pending().await;
        };
        let deadline: Option<Time> = end.deadline();
        let came = poll_fn(|context| {
            let mut any = Poll::Pending;
            arrivals.take(context, |datagram| {
                end.on_event(datagram);
                any = Poll::Ready(());
            });
            any
        });
        tokio::select! {
            () = came => {}
            () = until(deadline) => {}
        }
    }

    /// Does what is due, and gives the events that were told.
    pub fn turn(&mut self) -> Vec<Event> {
        self.end.at_deadline(&mut self.arrivals);
        let mut events = Vec::new();
        while let Some(output) = self.end.poll(&mut ()) {
            match output {
                Output::Send(datagram) => self.end.send(datagram),
                Output::Own(MihfWish::Event(event)) => events.push(event),
                Output::Report(
                    report @ (segue_mih::Report::Lost(_) | segue_mih::Report::Silent(_)),
                ) => warn!("{report}"),
                Output::Report(report @ segue_mih::Report::RegisteredAt(_)) => info!("{report}"),
                _ => {}
            }
        }
        events
    }

    /// Interfaces have changed, or may have: accesses of gateways, whose hosts it ignores, may be others.
    pub fn find_hosts(&mut self) {
        self.end.find_hosts();
    }

    /// What it has dropped, by reason.
    pub fn drops(&mut self) -> BTreeMap<String, u64> {
        self.end.drops()
    }

    /// Gives its machine an order.
    pub fn order(&mut self, input: MihfInput) {
        self.end.handle(Input::Own(input));
    }

    /// Deregisters: whoever tells is not to wait for this one.
    pub fn leave(mut self) {
        self.end.handle(Input::Own(MihfInput::Leave));
        drop(self.turn());
    }

    /// What its machine knows.
    #[must_use]
    pub fn machine(&self) -> &Mihf {
        &self.end.machine
    }
}
