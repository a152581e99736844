//! The client: obtains an address and keeps its lease.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Deadline, Machine, Rng, Span, Time, earlier};
use segue_ip::{Datagram, Forward, Input, Interface, Output, Prefix};

use crate::{Message, Refusal, Refused, Report};

/// Interval between requests until one is answered.
const RETRY: Span = Span::from_secs(1);
/// IP protocol number of UDP.
const UDP: u8 = 17;
/// Hop limit of sent datagrams.
const HOPS: u8 = 64;

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Identifies the client: unique, and the same after a restart.
    pub owner: u64,
    /// The server.
    pub server: SocketAddr,
    /// Interval between echoes.
    pub period: Span,
    /// Seed of request numbers. Should differ at each start, so that late answers from before a restart do not match.
    pub seed: u64,
}

/// An order from the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Give up the address and request one again.
    Release,
}

/// Outputs of a client. It stores no records and has no outputs of its role.
pub type ClientOutput = Output<Infallible, Report, Infallible>;

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No interface with a usable address.
    Down,
    /// Requesting a lease.
    Asking,
    /// Holding a lease.
    Leased,
}

/// An event of the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An interface is available.
    Up,
    /// The interface is gone.
    Gone,
    /// The server granted a lease.
    Granted,
    /// The server refused.
    Refused,
    /// The lease expired or was given up.
    Over,
}

impl State {
    /// The transition table; `None` if the event is ignored in this state.
    pub(crate) fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Down, Event::Up) => Some(State::Asking),
            (State::Asking | State::Leased, Event::Gone) => Some(State::Down),
            (State::Asking | State::Leased, Event::Granted) => Some(State::Leased),
            (State::Leased, Event::Refused | Event::Over) => Some(State::Asking),
            _ => None,
        }
    }
}

/// The client's machine.
pub struct Client {
    config: ClientConfig,
    state: State,
    /// Interface index and source address for sending.
    way: Option<(u32, IpAddr)>,
    /// Number and time of the pending request.
    asked: Option<(u64, Time)>,
    ask_at: Option<Time>,
    echo_at: Option<Time>,
    /// Leased address and expiry.
    lease: Option<(Prefix, Time)>,
    number: u64,
    /// Number of answered echoes.
    answers: u64,
    refused: Refused,
    out: VecDeque<ClientOutput>,
}

impl Client {
    /// A client without an interface.
    #[must_use]
    pub fn new(config: ClientConfig) -> Client {
        Client {
            state: State::Down,
            way: None,
            asked: None,
            ask_at: None,
            echo_at: None,
            lease: None,
            number: Rng::new(config.seed).next_u64(),
            answers: 0,
            refused: Refused::new(),
            out: VecDeque::new(),
            config,
        }
    }

    /// The configured owner.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.config.owner
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The leased address and its expiry.
    #[must_use]
    pub fn lease(&self) -> Option<(Prefix, Time)> {
        self.lease
    }

    /// The leased address.
    #[must_use]
    pub fn address(&self) -> Option<Prefix> {
        self.lease.map(|(address, _)| address)
    }

    /// Number of answered echoes.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Refused datagrams, by reason.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    fn on(&mut self, now: Time, event: Event) {
        let Some(next) = self.state.next(event) else { return };
        self.state = next;
        if next != State::Leased {
            self.give_back();
        }
        self.ask_at = match next {
            State::Down => None,
            State::Asking if event == Event::Refused => Some(now + RETRY),
            State::Asking => Some(now),
            State::Leased => self.ask_at,
        };
    }

    fn give_back(&mut self) {
        (self.echo_at, self.asked) = (None, None);
        if let (Some((address, _)), Some((interface, _))) = (self.lease.take(), self.way) {
            let owner = self.config.owner;
            self.out.push_back(Output::Withdraw(Forward::Address { interface, prefix: address }));
            self.out.push_back(Output::Report(Report::Ended { owner, address }));
        }
    }

    fn interfaces(&mut self, now: Time, all: &[Interface]) {
        let own = self.address().map(|prefix| prefix.addr);
        let fits = |a: &&IpAddr| Some(**a) != own && a.is_ipv4() == self.config.server.is_ipv4();
        let ways = all.iter().filter_map(|i| Some((i.index, *i.addresses.iter().find(fits)?)));
        let ways: Vec<(u32, IpAddr)> = ways.collect();
        if self.way.is_some_and(|way| ways.contains(&way)) {
            return;
        }
        self.on(now, Event::Gone);
        self.way = ways.first().copied();
        if self.way.is_some() {
            self.on(now, Event::Up);
        }
    }

    fn send(&mut self, message: Message) {
        let Some((interface, from)) = self.way else { return };
        let server = self.config.server;
        let (interface, from) = (Some(interface), (from, crate::PORT));
        let (to, bytes) = ((server.ip(), server.port()), message.emit());
        let datagram =
            Datagram { waited_ns: 0, interface, from, to, protocol: UDP, hop_limit: HOPS, bytes };
        self.out.push_back(Output::Send(datagram, None));
    }

    fn next_number(&mut self) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn take(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        if came.from != (self.config.server.ip(), self.config.server.port()) {
            return Err(Refusal::Stranger);
        }
        let open = |number: u64| self.asked.filter(|(open, _)| *open == number);
        match Message::parse(&came.bytes).ok_or(Refusal::Malformed)? {
            Message::Grant { number, address, lifetime } => {
                let (_, asked_at) = open(number).ok_or(Refusal::Stale)?;
                self.granted(now, address, asked_at, lifetime);
            }
            Message::Refuse { number, .. } => {
                // The refusal may answer the latest echo, which is not kept as pending.
                if open(number).is_none() && number != self.number {
                    return Err(Refusal::Stale);
                }
                self.on(now, Event::Refused);
                self.asked = None;
            }
            Message::Answer { .. } => self.answers += 1,
            Message::Ask { .. } | Message::Echo { .. } => return Err(Refusal::Stranger),
        }
        Ok(())
    }

    /// Starts or renews the lease. Its time counts from the request, so it ends before the server's however late the
    /// grant arrives.
    fn granted(&mut self, now: Time, address: Prefix, asked_at: Time, lifetime: Span) {
        let until = asked_at + lifetime;
        if until <= now {
            return;
        }
        let before = self.lease.map(|(address, _)| address);
        if before.is_some_and(|before| before != address) {
            self.on(now, Event::Over);
        }
        self.asked = None;
        self.ask_at = Some(asked_at + Span(lifetime.0 / 2).max(Span(1)));
        self.on(now, Event::Granted);
        if self.lease.replace((address, until)).is_none()
            && let Some((interface, _)) = self.way
        {
            let owner = self.config.owner;
            self.echo_at = Some(now);
            self.out.push_back(Output::Forward(Forward::Address { interface, prefix: address }));
            self.out.push_back(Output::Report(Report::Leased { owner, address }));
        }
    }
}

impl Machine for Client {
    type Input = Input<Order, Infallible>;
    type Output = ClientOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        match input {
            Input::Interfaces(all) => self.interfaces(now, &all),
            Input::Datagram(came) => {
                if let Err(why) = self.take(now, &came) {
                    *self.refused.entry(why).or_default() += 1;
                }
            }
            Input::Own(Order::Release) => self.on(now, Event::Over),
            Input::Link(_) => {}
            Input::Record(never) => match never {},
        }
    }

    fn tick(&mut self, now: Time) {
        if self.lease.is_some_and(|(_, until)| until <= now) {
            self.on(now, Event::Over);
        }
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now + RETRY);
            let (owner, number) = (self.config.owner, self.next_number());
            self.asked = Some((number, now));
            self.send(Message::Ask { owner, number });
        }
        if self.echo_at.is_some_and(|at| at <= now) {
            self.echo_at = Some(now + self.config.period);
            let (owner, number) = (self.config.owner, self.next_number());
            self.send(Message::Echo { owner, number });
        }
    }

    fn poll(&mut self) -> Option<ClientOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let lease = self.lease.map(|(_, until)| (until, "the lease ends"));
        let echo = self.echo_at.map(|at| (at, "an echo is due"));
        earlier(earlier(lease, self.ask_at.map(|at| (at, "to ask"))), echo)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    /// The table as documented.
    const TABLE: &str = "\
Down + Up -> Asking
Asking + Gone -> Down
Asking + Granted -> Leased
Leased + Gone -> Down
Leased + Granted -> Leased
Leased + Refused -> Asking
Leased + Over -> Asking
";

    #[test]
    fn the_transition_table_is_the_one_that_is_written_down() {
        let mut table = String::new();
        for state in [State::Down, State::Asking, State::Leased] {
            let events = [Event::Up, Event::Gone, Event::Granted, Event::Refused, Event::Over];
            for (event, next) in events.map(|event| (event, state.next(event))) {
                table += &next
                    .map_or(String::new(), |next| format!("{state:?} + {event:?} -> {next:?}\n"));
            }
        }
        assert_eq!(table, TABLE);
    }

    fn came(message: Message) -> Input<Order, Infallible> {
        let (server, own) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (from, to, bytes) = ((server, crate::PORT), (own, crate::PORT), message.emit());
        Input::Datagram(Datagram {
            waited_ns: 0,
            interface: Some(1),
            from,
            to,
            protocol: UDP,
            hop_limit: HOPS,
            bytes,
        })
    }

    #[test]
    fn a_lease_counts_from_the_question_and_an_old_answer_grants_nothing() {
        let server = SocketAddr::from(([10, 0, 0, 1], crate::PORT));
        let period = Span::from_secs(10);
        let mut client = Client::new(ClientConfig { owner: 7, server, period, seed: 1 });
        let addresses = [IpAddr::from([10, 0, 0, 2])].into();
        let eth0 = Interface { index: 1, addresses, ..Interface::default() };
        let at = |ms: u64| Time(ms * 1_000_000);
        client.handle(at(0), Input::Interfaces([eth0].into()));
        client.tick(at(0));
        let (number, _) = client.asked.unwrap();
        let address = Prefix::new([10, 0, 0, 9], 24);
        let lifetime = Span::from_secs(4);
        let grant = |number| came(Message::Grant { number, address, lifetime });
        client.handle(at(500), grant(number.wrapping_sub(1)));
        assert_eq!((client.address(), client.refused()[&Refusal::Stale]), (None, 1));
        client.handle(at(500), grant(number));
        assert_eq!((client.address(), client.state()), (Some(address), State::Leased));
        assert_eq!(client.lease.unwrap().1, at(4_000));
        client.tick(at(3_999));
        assert_eq!(client.address(), Some(address));
        client.tick(at(4_000));
        assert_eq!((client.address(), client.state()), (None, State::Asking));
        let withdrawn = Output::Withdraw(Forward::Address { interface: 1, prefix: address });
        assert!(client.out.contains(&withdrawn));
    }
}
