//! An IEEE 802.21 function inside the daemon of another role, which subscribes to link events.

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

/// A subscribing function.
pub struct Listener {
    end: Sockets<Mihf>,
    arrivals: Arrivals,
}

impl Listener {
    /// Registers with the configured functions.
    ///
    /// # Errors
    /// Its sockets cannot be opened.
    pub fn start(config: MihfConfig) -> anyhow::Result<Listener> {
        let machine = Mihf::new(MihfConfig { port: 0, seed: realtime_ns(), ..config });
        let (mut end, mut arrivals) = Sockets::open(machine, &[0])?;
        end.ignore_hosts();
        end.stream(&mut arrivals, None, frame_length, Arc::new(|_| false))?;
        Ok(Listener { end, arrivals })
    }

    /// Waits until a datagram arrives or a timer is due; forever without a listener. Datagrams have been passed to the
    /// machine by then.
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

    /// Handles everything that is due, and returns the events received.
    pub fn turn(&mut self) -> Vec<Event> {
        self.end.at_deadline(&mut self.arrivals);
        let mut events = Vec::new();
        while let Some(output) = self.end.poll(&mut ()) {
            match output {
                Output::Send(datagram, _) => self.end.send(datagram),
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

    /// Finds accesses of gateways again, whose hosts it ignores. Call it when interfaces may have changed.
    pub fn find_hosts(&mut self) {
        self.end.find_hosts();
    }

    /// Dropped datagrams by reason.
    pub fn drops(&mut self) -> BTreeMap<String, u64> {
        self.end.drops()
    }

    /// Passes an input to its machine.
    pub fn order(&mut self, input: MihfInput) {
        self.end.handle(Input::Own(input));
    }

    /// Deregisters, so that no function waits for this one.
    pub fn leave(mut self) {
        self.end.handle(Input::Own(MihfInput::Leave));
        drop(self.turn());
    }

    /// Its machine.
    #[must_use]
    pub fn machine(&self) -> &Mihf {
        &self.end.machine
    }
}
