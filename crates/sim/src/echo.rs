//! Adapts `segue-echo`, the template of a protocol, to the simulator.

use alloc::string::{String, ToString};
use core::convert::Infallible;

use segue_echo::{Client, ClientConfig, Lease, Order, Server, ServerConfig};
use segue_ip::Input;

use crate::role::{Pure, Role, RoleAgent, Start};
use crate::{Io, Results};

/// The server role.
pub struct EchoServer(pub ServerConfig);

impl Role for EchoServer {
    type Engine = Pure<Server>;
    type Order = Infallible;

    fn start(&mut self, _start: &Start) -> Pure<Server> {
        Pure(Server::new(self.0.clone()))
    }

    fn order(_agent: &mut RoleAgent<EchoServer>, _io: &mut Io<'_>, order: Infallible) {
        match order {}
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut Pure<Server>, wish: Infallible) {
        match wish {}
    }

    fn key(lease: &Lease) -> String {
        lease.place.to_string()
    }

    fn results(agent: &RoleAgent<EchoServer>, name: &str, results: &mut Results) {
        let leases = agent.engine().0.leases().count();
        results.int(alloc::format!("{name}.leases"), leases as u64);
        results.int(alloc::format!("{name}.starts"), agent.starts());
    }
}

/// The client role. Its `seed` is drawn at each start.
pub struct EchoClient(pub ClientConfig);

impl Role for EchoClient {
    type Engine = Pure<Client>;
    type Order = Order;

    fn start(&mut self, start: &Start) -> Pure<Client> {
        let seed = start.rng().next_u64();
        Pure(Client::new(ClientConfig { seed, ..self.0.clone() }))
    }

    fn order(agent: &mut RoleAgent<EchoClient>, io: &mut Io<'_>, order: Order) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut Pure<Client>, wish: Infallible) {
        match wish {}
    }

    fn key(never: &Infallible) -> String {
        match *never {}
    }

    fn results(agent: &RoleAgent<EchoClient>, name: &str, results: &mut Results) {
        results.int(alloc::format!("{name}.answers"), agent.engine().0.answers());
        results.int(alloc::format!("{name}.starts"), agent.starts());
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::format;
    use core::net::IpAddr;

    use segue_clock::{Span, Time};
    use segue_netem::LinkSpec;

    use super::*;
    use crate::role::Order as At;
    use crate::{AgentId, Network, NodeId, Value};

    const PORTS: [(u8, u16); 1] = [(crate::packet::UDP, segue_echo::PORT)];

    /// A server and two clients, with one link to each client. The server crashes after 10 s, the first client
    /// after 20 s.
    fn network() -> (Network, [AgentId; 2]) {
        let mut network = Network::new(1);
        let nodes = ["server", "a", "b"].map(|name| network.add_node(name));
        let wire = LinkSpec { delay: Span::from_millis(10), ..LinkSpec::default() };
        for (n, node) in nodes.into_iter().enumerate().skip(1) {
            for (end, address) in [(nodes[0], [10, 0, 0, 1]), (node, [10, 0, n as u8, 2])] {
                let index = network.add_interface(end, format!("eth{n}"));
                let adapter = &mut network.node_mut(end).adapters[index as usize - 1];
                adapter.interface.addresses.push(IpAddr::from(address));
            }
            network.connect((nodes[0], n as u32), (node, 1), wire.clone(), wire.clone()).unwrap();
        }
        let pool = "10.9.0.0/29".parse().unwrap();
        let config = ServerConfig::new(pool, Span::from_secs(4)).unwrap();
        let mut server = RoleAgent::of(EchoServer(config), 9);
        server.order(Time(10_000_000_000), At::Restart(Span::from_millis(500)));
        network.add_agent(nodes[0], "server", &PORTS, Box::new(server));
        let clients = [1, 2].map(|n| {
            let server = ([10, 0, 0, 1], segue_echo::PORT).into();
            let (owner, period) = (n as u64, Span::from_millis(500));
            let config = ClientConfig { owner, server, period, seed: 0 };
            let mut client = RoleAgent::of(EchoClient(config), owner);
            if n == 1 {
                client.order(Time(20_000_000_000), At::Restart(Span::ZERO));
                client.order(Time(25_000_000_000), At::Own(Order::Release));
            }
            network.add_agent(nodes[n], format!("client{n}"), &PORTS, Box::new(client))
        });
        (network, clients)
    }

    #[test]
    fn clients_keep_their_addresses_over_restarts_of_either_side() {
        let (mut network, clients) = network();
        let has = |network: &Network, n: usize| {
            let agent: &RoleAgent<EchoClient> = network.agent(clients[n]).unwrap();
            let held = agent.engine().0.address().map(|address| address.to_string());
            let node = network.node(NodeId(n as u32 + 1));
            let own = held.as_ref().map(|held| held.split('/').next().unwrap().parse().unwrap());
            assert!(own.is_none_or(|own| node.owns(own)), "the node has what is leased");
            held
        };
        for s in [1, 9, 12, 19, 21, 26, 60] {
            network.run_until(Time(s * 1_000_000_000));
            let held = [0, 1].map(|n| has(&network, n));
            assert_eq!(held, [Some("10.9.0.1/29".into()), Some("10.9.0.2/29".into())], "{s} s");
        }
        let results = network.results();
        assert_eq!(results.get("server.starts"), Some(&Value::Int(1)));
        assert_eq!(results.get("server.leases"), Some(&Value::Int(2)));
        // 120 echoes, minus one or two during the server's outage.
        let Some(Value::Int(answers)) = results.get("client2.answers") else { panic!("no count") };
        assert!((117..=119).contains(answers), "{answers}");
    }
}
