//! A role's machine with its RADIUS client and its IEEE 802.21 function. The client's datagrams are UDP datagrams to and
//! from [`RADIUS_PORT`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use segue_aaa::{Aaa, AaaConfig, AaaInput, AaaReport, AaaWish, Verdict, Volume};
use segue_clock::planted::fault;
use segue_clock::{Deadline, Machine, Time, earlier};
use segue_ip::{FlowKey, Input, Output, Prefix};
use segue_mih::{Mihf, MihfConfig, Report as MihReport};
use segue_pmip::LinkLayer;

use crate::links::{Heard, Links, Listener};
use crate::programs::{Carried, ProgramInput, Programs};
use crate::{Decided, Event, Order, RADIUS_PORT};

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
    /// About a program that decides about flows, by its number.
    Program(u64, ProgramInput),
    /// The answer to a request to read the traffic of flows.
    Carried(Vec<(FlowKey, Carried)>),
    /// Which station is at each interface, from a driver whose interfaces have one station each.
    Present(BTreeMap<u32, LinkLayer>),
    /// The node stops: its function deregisters.
    Leave,
}

/// A request of a node to its driver.
#[derive(Clone, Debug, PartialEq)]
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
    /// Send this to a program, or to all. The driver adds the traffic of a flow ([`Event::carried_mut`]).
    Tell {
        /// The number of the program.
        to: Option<u64>,
        /// What it learns.
        event: Event,
    },
}

/// A report of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport<R> {
    /// From the role's machine.
    Role(R),
    /// From the RADIUS client.
    Radius(AaaReport),
    /// From the IEEE 802.21 function.
    Mih(MihReport),
}

impl<R: fmt::Display> fmt::Display for NodeReport<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReport::Role(report) => report.fmt(f),
            NodeReport::Radius(report) => report.fmt(f),
            NodeReport::Mih(report) => report.fmt(f),
        }
    }
}

/// A role's machine, with a client if RADIUS servers know its hosts, and a function if it uses events of links.
pub struct Node<R: Decided> {
    machine: R,
    client: Option<Aaa<R::Key>>,
    listener: Option<Listener<R::Links>>,
    programs: Programs,
    /// Requests to the client.
    requests: VecDeque<AaaInput<R::Key>>,
    /// The quality of a path has changed, and programs have not been told yet.
    quality_changed: bool,
    out: VecDeque<<Node<R> as Machine>::Output>,
}

impl<R: Decided> Node<R> {
    /// A node around a machine; `radius` configures the client.
    #[must_use]
    pub fn new(machine: R, radius: Option<AaaConfig>) -> Node<R> {
        let client = radius.map(Aaa::new);
        Node {
            machine,
            client,
            listener: None,
            programs: Programs::default(),
            requests: VecDeque::new(),
            quality_changed: false,
            out: VecDeque::new(),
        }
    }

    /// The same with a function that receives events of links.
    #[must_use]
    pub fn listening(self, config: MihfConfig, links: R::Links) -> Node<R> {
        Node { listener: Some(Listener::new(config, links)), ..self }
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

    /// The function, and what the role knows of its links.
    pub(crate) fn listener(&self) -> Option<(&Mihf, &R::Links)> {
        self.listener.as_ref().map(|listener| (&listener.mihf, &listener.links))
    }

    /// Tells a program, or all.
    fn tell(&mut self, to: Option<u64>, mut event: Event) {
        if let Some((key, rate)) = event.carried_mut() {
            rate.rate_kbps = self.programs.rate(&key);
        }
        self.out.push_back(Output::Own(NodeWish::Tell { to, event }));
    }

    /// Handles what happened to a program.
    fn on_program(&mut self, now: Time, number: u64, input: ProgramInput) {
        let order = match input {
            // Its connection was closed meanwhile.
            ProgramInput::Ordered(_) if !self.programs.has(number) => return,
            ProgramInput::Connected => {
                self.programs.set(now, number, false);
                let present = self.machine.present(now);
                return present.into_iter().for_each(|event| self.tell(Some(number), event));
            }
            ProgramInput::Gone => {
                self.programs.remove(number);
                return self.decide(now);
            }
            ProgramInput::Ordered(order) => order,
        };
        let (flow, bid) = match order {
            Order::Decide {} | Order::Observe {} => {
                self.programs.set(now, number, order == Order::Decide {});
                return self.decide(now);
            }
            Order::Place { flow, bid } | Order::Move { flow, bid } => (flow, Some(bid)),
            Order::Default { flow } => (flow, None),
        };
        let (key, before) = (flow.into(), self.machine.not_placed());
        if let Some(own) = R::place(key, bid) {
            self.machine.handle(now, Input::Own(own));
        }
        if self.machine.not_placed() > before {
            self.drain_machine();
            let why = format!("{key}: {}", self.machine.why_not(&key, bid));
            self.tell(Some(number), Event::Refused { why });
        }
    }

    /// Tells the machine whether any program decides.
    fn decide(&mut self, now: Time) {
        if let Some(own) = R::deciding(self.programs.decide()) {
            self.machine.handle(now, Input::Own(own));
        }
    }

    /// Takes the traffic of flows, and tells programs of those that carried something.
    fn on_carried(&mut self, now: Time, flows: Vec<(FlowKey, Carried)>) {
        let hears = self.programs.any();
        for (key, carried) in flows.iter().filter(|_| hears) {
            let Some((since, event)) = self.machine.rate(key) else { continue };
            if self.programs.look(now, *key, since, carried) {
                self.tell(None, event);
            }
        }
        let flows = flows.into_iter().map(|(key, carried)| (key, carried.last_sent)).collect();
        if let Some(own) = R::last_sent(flows) {
            self.machine.handle(now, Input::Own(own));
        }
    }

    /// Tells programs the quality of all measured paths.
    fn tell_quality(&mut self) {
        if self.programs.any() {
            self.machine.qualities().into_iter().for_each(|event| self.tell(None, event));
        }
    }

    /// Passes on a request of the machine, and tells programs what follows from it.
    fn on_wish(&mut self, wish: R::Wish) {
        let event = if self.programs.any() { self.machine.event(&wish) } else { None };
        self.out.push_back(Output::Own(NodeWish::Own(wish)));
        let Some(event) = event else { return };
        if let Event::FlowEnded { flow } = &event {
            self.programs.forget(&(*flow).into());
        }
        self.tell(None, event);
    }

    /// Passes events, requests and verdicts between the parts until none has any left.
    fn settle(&mut self, now: Time) {
        let mut verdicts = VecDeque::new();
        loop {
            while let Some(heard) = self.listener.as_mut().and_then(|own| own.poll(now)) {
                match heard {
                    Heard::Send(datagram) => self.out.push_back(Output::Send(datagram, None)),
                    Heard::Report(report) => {
                        self.out.push_back(Output::Report(NodeReport::Mih(report)));
                    }
                    Heard::Own(own) => {
                        self.machine.handle(now, Input::Own(own));
                        self.drain_machine();
                    }
                }
            }
            self.drain_machine();
            self.drain_client(&mut verdicts);
            if let (Some(client), Some(request)) = (&mut self.client, self.requests.pop_front()) {
                client.handle(now, Input::Own(request));
            } else if let Some((key, verdict)) = verdicts.pop_front() {
                self.machine.handle(now, Input::Own(R::on_verdict(key, verdict)));
            } else {
                break;
            }
        }
        if core::mem::take(&mut self.quality_changed) {
            self.tell_quality();
        }
    }

    fn drain_machine(&mut self) {
        while let Some(output) = self.machine.poll() {
            let output = match output {
                Output::Own(wish) => match self.machine.radius_request(wish) {
                    Ok(AaaInput::Ended { .. }) if fault(58) => continue,
                    Ok(request) => {
                        self.requests.push_back(request);
                        continue;
                    }
                    Err(wish) => {
                        self.on_wish(wish);
                        continue;
                    }
                },
                Output::Report(report) => {
                    self.quality_changed |= R::changes_quality(&report);
                    Output::Report(NodeReport::Role(report))
                }
                Output::Send(datagram, after) => Output::Send(datagram, after),
                Output::Forward(part) => Output::Forward(part),
                Output::Withdraw(part) => Output::Withdraw(part),
                Output::Persist(record) => Output::Persist(record),
            };
            self.out.push_back(output);
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

impl<R: Decided> Machine for Node<R> {
    type Input = Input<NodeInput<R::Own>, R::Record>;
    type Output = Output<NodeWish<R::Wish>, NodeReport<R::Report>, R::Record>;

    fn handle(&mut self, now: Time, input: Self::Input) {
        if let Some(listener) = &mut self.listener {
            listener.wake(now);
            match &input {
                Input::Interfaces(all) => listener.links.on_interfaces(all),
                Input::Link(event) => listener.links.on_link(now, event),
                Input::Datagram(came) if listener.is_for(came) => {
                    listener.receive(now, came);
                    return self.settle(now);
                }
                _ => {}
            }
        }
        match input {
            Input::Own(NodeInput::Present(present)) => {
                if let Some(listener) = &mut self.listener {
                    listener.links.on_present(present);
                }
            }
            Input::Own(NodeInput::Program(number, input)) => self.on_program(now, number, input),
            Input::Own(NodeInput::Carried(flows)) => self.on_carried(now, flows),
            Input::Own(NodeInput::Leave) => {
                if let Some(listener) = &mut self.listener {
                    listener.leave(now);
                }
            }
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
        if let Some(listener) = &mut self.listener {
            listener.tick(now);
        }
        if self.programs.is_due(now) {
            self.tell_quality();
        }
        self.settle(now);
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let client = self.client.as_ref().and_then(Machine::deadline);
        let listener = self.listener.as_ref().and_then(Listener::deadline);
        let programs = self.programs.deadline().map(|at| (at, "to tell programs of qualities"));
        earlier(earlier(self.machine.deadline(), client), earlier(listener, programs))
    }
}
