//! Runs a machine that does not know the simulator: it greets every neighbour on its links and remembers who
//! answered.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec;
use core::net::IpAddr;

use segue_clock::Deadline;
use segue_netem::LinkSpec;

use super::*;
use crate::{AgentId, Network};

const PORT: u16 = 698;
const EVERY: Span = Span::from_secs(1);
const MS: u64 = 1_000_000;

type Out = Output<(), IpAddr, IpAddr>;

#[derive(Default)]
struct Greeter {
    interfaces: Vec<Interface>,
    known: BTreeSet<IpAddr>,
    next: Option<Time>,
    events: Vec<LinkEvent>,
    out: VecDeque<Out>,
}

impl Greeter {
    fn say(&mut self, interface: u32, to: IpAddr, word: u8) {
        let own = self.interfaces.iter().find(|known| known.index == interface);
        let Some(from) = own.and_then(|known| known.addresses.first()) else { return };
        let (from, to, interface) = ((*from, PORT), (to, PORT), Some(interface));
        let (protocol, hop_limit, bytes) = (UDP, 1, vec![word]);
        let datagram = Datagram { waited_ns: 0, interface, from, to, protocol, hop_limit, bytes };
        self.out.push_back(Output::Send(datagram, None));
    }
}

impl Machine for Greeter {
    type Input = Input<(), IpAddr>;
    type Output = Out;

    fn handle(&mut self, now: Time, input: Input<(), IpAddr>) {
        match input {
            Input::Interfaces(interfaces) => {
                self.interfaces = interfaces;
                self.next = Some(now);
            }
            Input::Link(event) => self.events.push(event),
            Input::Datagram(came) => {
                let all: IpAddr = "224.0.0.1".parse().unwrap();
                assert_eq!((came.to.0 == all, came.hop_limit), (came.bytes == [0], 1));
                if came.bytes == [0] {
                    self.say(came.interface.unwrap(), came.from.0, 1);
                } else if self.known.insert(came.from.0) {
                    self.out.push_back(Output::Persist(came.from.0));
                    self.out.push_back(Output::Report(came.from.0));
                }
            }
            Input::Record(known) => drop(self.known.insert(known)),
            Input::Own(()) => self.out.push_back(Output::Own(())),
        }
    }

    fn tick(&mut self, now: Time) {
        if self.next.take_if(|at| *at <= now).is_some() {
            self.next = Some(now + EVERY);
            for index in 0..self.interfaces.len() {
                let interface = self.interfaces[index].index;
                self.say(interface, "224.0.0.1".parse().unwrap(), 0);
            }
        }
    }

    fn poll(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        self.next.map(|at| (at, "greeting"))
    }
}

/// Everything the simulator needs to know about the machine.
#[derive(Default)]
struct Greeting {
    asked: u64,
}

impl Role for Greeting {
    type Engine = Pure<Greeter>;
    type Order = ();

    fn start(&mut self, _start: &Start) -> Pure<Greeter> {
        Pure(Greeter::default())
    }

    fn order(agent: &mut RoleAgent<Greeting>, io: &mut Io<'_>, (): ()) {
        agent.handle(io, Input::Own(()));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut Pure<Greeter>, (): ()) {
        self.asked += 1;
    }

    fn key(record: &IpAddr) -> String {
        record.to_string()
    }

    fn results(agent: &RoleAgent<Greeting>, name: &str, results: &mut Results) {
        results.int(format!("{name}.known"), agent.engine.0.known.len() as u64);
        results.int(format!("{name}.starts"), agent.starts);
    }
}

/// Two nodes on one link with a greeter each; the orders are for the first one.
fn run(orders: &[(u64, Order<()>)], until_ms: u64) -> (Network, [AgentId; 2]) {
    let mut network = Network::new(1);
    let nodes = ["a", "b"].map(|name| network.add_node(name));
    for (node, address) in nodes.into_iter().zip(["10.0.0.1", "10.0.0.2"]) {
        let index = network.add_interface(node, "eth0");
        let adapter = &mut network.node_mut(node).adapters[index as usize - 1];
        adapter.interface.addresses.push(address.parse().unwrap());
    }
    let wire = LinkSpec { delay: Span::from_millis(1), ..LinkSpec::default() };
    network.connect((nodes[0], 1), (nodes[1], 1), wire.clone(), wire).unwrap();
    let agents = nodes.map(|node| {
        let agent = RoleAgent::of(Greeting::default(), 1);
        network.add_agent(node, format!("g{}", node.0), &[(UDP, PORT)], Box::new(agent))
    });
    let first: &mut RoleAgent<Greeting> = network.agent_mut(agents[0]).unwrap();
    for (ms, order) in orders {
        first.order(Time(ms * MS), order.clone());
    }
    network.run_until(Time(until_ms * MS));
    (network, agents)
}

fn of(network: &Network, agent: AgentId) -> &RoleAgent<Greeting> {
    network.agent(agent).unwrap()
}

#[test]
fn a_machine_runs_with_its_role_alone() {
    let (network, agents) = run(&[(5, Order::Own(()))], 100);
    for (agent, other) in agents.into_iter().zip(["10.0.0.2", "10.0.0.1"]) {
        let other: IpAddr = other.parse().unwrap();
        let agent = of(&network, agent);
        assert_eq!(agent.reports(), [(Time(2 * MS), other)], "a greeting there, an answer back");
        assert_eq!(agent.records().collect::<Vec<_>>(), [&other]);
    }
    assert_eq!(agents.map(|agent| of(&network, agent).role().asked), [1, 0]);
    assert_eq!(network.results().get("g0.known"), Some(&crate::Value::Int(1)));
}

#[test]
fn after_a_restart_it_has_what_it_stored_and_in_between_it_is_silent() {
    let crash = [(500, Order::Restart(Span::from_secs(2))), (600, Order::Own(()))];
    let (network, [first, second]) = run(&crash, 700);
    assert_eq!(
        (of(&network, first).role().asked, of(&network, first).deadline()),
        (0, Some(Time(2_500 * MS)))
    );
    let greeted = |network: &Network| {
        network.channels().map(|(_, c)| c.counters().delivered).collect::<Vec<_>>()
    };
    // Each has greeted once and answered once.
    assert_eq!(greeted(&network), [2, 2]);
    let (network, _) = run(&crash, 2_400);
    assert_eq!(greeted(&network), [2, 4], "nobody answers the greetings of the other");
    let (network, _) = run(&crash, 2_600);
    let first = of(&network, first);
    assert_eq!(
        (first.engine().0.known.len(), first.reports().len()),
        (1, 1),
        "no news the second time"
    );
    assert_eq!((first.starts, greeted(&network)), (1, vec![3, 5]));
    assert_eq!(of(&network, second).reports().len(), 1);
}
