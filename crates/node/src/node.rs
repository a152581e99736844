//! A role's machine with its RADIUS client. The client's datagrams are UDP datagrams to and from [`RADIUS_PORT`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use segue_aaa::{Aaa, AaaConfig, AaaInput, AaaReport, AaaWish, Verdict, Volume};
use segue_clock::{Deadline, Machine, Time, earlier};
use segue_ip::{Input, Output, Prefix};

use crate::{RADIUS_PORT, Role};

const UDP: u8 = 17;

/// An input of a node, in addition to those of every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeInput<I> {
    /// For the role's machine.
    Own(I),
    /// The answer to [`NodeWish::Count`].
    Counted {
        /// The session.
        session: u64,
        /// Its traffic so far.
        volume: Volume,
    },
}

/// A request of a node to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWish<W> {
    /// From the role's machine.
    Own(W),
    /// Read the traffic of a session; answer with [`NodeInput::Counted`].
    Count {
        /// The session.
        session: u64,
        /// Its prefixes.
        prefixes: Vec<Prefix>,
        /// The session ends: nothing reads these prefixes again for it.
        last: bool,
    },
}

/// A report of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport<R> {
    /// From the role's machine.
    Role(R),
    /// From the RADIUS client.
    Radius(AaaReport),
}

impl<R: fmt::Display> fmt::Display for NodeReport<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReport::Role(report) => report.fmt(f),
            NodeReport::Radius(report) => report.fmt(f),
        }
    }
}

/// A role's machine, with a client if RADIUS servers know its hosts.
pub struct Node<R: Role> {
    machine: R,
    client: Option<Aaa<R::Key>>,
    out: VecDeque<<Node<R> as Machine>::Output>,
}

impl<R: Role> Node<R> {
    /// A node around a machine; `radius` configures the client.
    #[must_use]
    pub fn new(machine: R, radius: Option<AaaConfig>) -> Node<R> {
        Node { machine, client: radius.map(Aaa::new), out: VecDeque::new() }
    }

    /// The role's machine.
    #[must_use]
    pub fn machine(&self) -> &R {
        &self.machine
    }

    /// The RADIUS client, if there is one.
    #[must_use]
    pub fn radius(&self) -> Option<&Aaa<R::Key>> {
        self.client.as_ref()
    }

    /// Passes requests and verdicts between the machine and the client until neither has any left.
    fn settle(&mut self, now: Time) {
        let (mut requests, mut verdicts) = (VecDeque::new(), VecDeque::new());
        loop {
            self.drain_machine(&mut requests);
            self.drain_client(&mut verdicts);
            if let (Some(client), Some(request)) = (&mut self.client, requests.pop_front()) {
                client.handle(now, Input::Own(request));
            } else if let Some((key, verdict)) = verdicts.pop_front() {
                self.machine.handle(now, Input::Own(R::on_verdict(key, verdict)));
            } else {
                return;
            }
        }
    }

    fn drain_machine(&mut self, requests: &mut VecDeque<AaaInput<R::Key>>) {
        while let Some(output) = self.machine.poll() {
            self.out.push_back(match output {
                Output::Own(wish) => match self.machine.radius_request(wish) {
                    Ok(request) => {
                        requests.push_back(request);
                        continue;
                    }
                    Err(wish) => Output::Own(NodeWish::Own(wish)),
                },
                Output::Report(report) => Output::Report(NodeReport::Role(report)),
                Output::Send(datagram, after) => Output::Send(datagram, after),
                Output::Forward(part) => Output::Forward(part),
                Output::Withdraw(part) => Output::Withdraw(part),
                Output::Persist(record) => Output::Persist(record),
            });
        }
    }

    fn drain_client(&mut self, verdicts: &mut VecDeque<(R::Key, Verdict)>) {
        while let Some(output) = self.client.as_mut().and_then(Machine::poll) {
            self.out.push_back(match output {
                Output::Own(AaaWish::Answered { key, verdict }) => {
                    verdicts.push_back((key, verdict));
                    continue;
                }
                Output::Own(AaaWish::Count { session, prefixes, last }) => {
                    Output::Own(NodeWish::Count { session, prefixes, last })
                }
                Output::Report(report) => Output::Report(NodeReport::Radius(report)),
                Output::Send(datagram, after) => Output::Send(datagram, after),
                // A client forwards and stores nothing.
                Output::Forward(_) | Output::Withdraw(_) | Output::Persist(()) => continue,
            });
        }
    }
}

impl<R: Role> Machine for Node<R> {
    type Input = Input<NodeInput<R::Own>, R::Record>;
    type Output = Output<NodeWish<R::Wish>, NodeReport<R::Report>, R::Record>;

    fn handle(&mut self, now: Time, input: Self::Input) {
        match input {
            Input::Datagram(came) if came.protocol == UDP && came.to.1 == RADIUS_PORT => {
                if let Some(client) = &mut self.client {
                    client.handle(now, Input::Datagram(came));
                }
            }
            Input::Own(NodeInput::Counted { session, volume }) => {
                if let Some(client) = &mut self.client {
                    client.handle(now, Input::Own(AaaInput::Counted { session, volume }));
                }
            }
            Input::Own(NodeInput::Own(own)) => {
                if let (Some(client), Some(day)) = (&mut self.client, R::time_of_day(&own)) {
                    client.handle(now, Input::Own(AaaInput::TimeOfDay(day)));
                }
                self.machine.handle(now, Input::Own(own));
            }
            Input::Interfaces(all) => self.machine.handle(now, Input::Interfaces(all)),
            Input::Link(event) => self.machine.handle(now, Input::Link(event)),
            Input::Datagram(came) => self.machine.handle(now, Input::Datagram(came)),
            Input::Record(record) => self.machine.handle(now, Input::Record(record)),
        }
        self.settle(now);
    }

    fn tick(&mut self, now: Time) {
        self.machine.tick(now);
        if let Some(client) = &mut self.client {
            client.tick(now);
        }
        self.settle(now);
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        earlier(self.machine.deadline(), self.client.as_ref().and_then(Machine::deadline))
    }
}
