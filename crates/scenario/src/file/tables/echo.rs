//! `[[echo_server]]` and `[[echo_client]]`: `segue-echo`, the protocol that serves as a pattern for others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use segue_echo::{ClientConfig, Order, PORT, ServerConfig};
use segue_grammar::values::{MIN, S};
use segue_grammar::{Duration, End, EventKeys, Mistake, Name, PrefixText, Spanned, named};
use segue_sim::echo::{EchoClient, EchoServer};
use segue_sim::role::Order as At;
use segue_sim::{AgentId, NodeId, RoleAgent};
use serde::Deserialize;

use super::apps::UDP;
use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::reach;
use crate::file::table::{Kind, Table};

pub(super) const SERVER: Kind = Kind::of::<Server>("echo_server", &[]);
pub(super) const CLIENT: Kind = Kind::of::<Client>("echo_client", &[RELEASE]);

/// Seeds of both roles (`Network::seed_of`).
const ECHO: u64 = 0x6563_686f;

/// Shared state of the tables.
#[derive(Default)]
struct Ends {
    servers: BTreeMap<String, (NodeId, IpAddr)>,
    clients: BTreeMap<String, AgentId>,
    /// Number of ends with a seed; a client also uses it as its number.
    seeds: u32,
}

/// A server.
#[derive(Deserialize, JsonSchema)]
struct Server {
    /// In front of its results
    name: Name,
    /// Where it is
    node: Spanned<End>,
    /// The addresses that it leases, except the first of the network
    pool: Spanned<PrefixText>,
    /// How long a lease lasts
    #[serde(default)]
    lifetime: Duration<MIN, 1>,
}

/// A client.
#[derive(Deserialize, JsonSchema)]
struct Client {
    /// In front of its results
    name: Name,
    /// Where it is
    node: Name,
    /// Its server
    server: Name,
    /// Time between echoes
    #[serde(default)]
    period: Duration<{ S }, 1>,
}

impl Table for Server {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.end_node(&self.node)?;
        let Some(address) = builder.addresses(&self.node, node)?.first().copied() else {
            return Err(Mistake::of(&self.node, "it has no address"));
        };
        let PrefixText(pool) = *self.pool.get_ref();
        let Some(config) = ServerConfig::new(pool, self.lifetime.0) else {
            return Err(Mistake::of(&self.pool, "a pool needs room for the network and a client"));
        };
        take_port(builder, node, &self.node, &self.name)?;
        let (name, seed) = (self.name.get_ref(), seed(builder).1);
        let agent = RoleAgent::of(EchoServer(config), seed);
        let agent = Box::new(agent);
        let id = builder.network.add_agent(node, name, &[(UDP, PORT)], agent);
        builder.add_role::<EchoServer>(name, id);
        builder.kept::<Ends>().servers.insert(name.clone(), (node, address));
        Ok(())
    }
}

impl Table for Client {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.node(&self.node)?;
        let (there, server) = named("echo server", &self.server, &builder.kept::<Ends>().servers)?;
        take_port(builder, node, &self.node, &self.name)?;
        self.expect_reach(builder, node, there, server)?;
        let (name, (number, seed)) = (self.name.get_ref(), seed(builder));
        let server = SocketAddr::new(server, PORT);
        let config = ClientConfig { owner: number.into(), server, period: self.period.0, seed: 0 };
        let agent = Box::new(RoleAgent::of(EchoClient(config), seed));
        let id = builder.network.add_agent(node, name, &[(UDP, PORT)], agent);
        builder.add_role::<EchoClient>(name, id);
        builder.kept::<Ends>().clients.insert(name.clone(), id);
        Ok(())
    }
}

impl Client {
    /// Checks that it can reach its server over its first suitable interface, which it uses. A radio has no cell before
    /// the run.
    fn expect_reach(
        &self,
        builder: &Builder<'_>,
        node: NodeId,
        there: NodeId,
        server: IpAddr,
    ) -> Result<(), Mistake> {
        let network = &builder.network;
        let adapters = &network.node(node).adapters;
        let fits = |own: &&IpAddr| own.is_ipv4() == server.is_ipv4();
        let first = adapters.iter().find_map(|adapter| {
            Some((adapter.interface.index, *adapter.interface.addresses.iter().find(fits)?))
        });
        let Some((index, own)) = first else {
            if adapters.iter().any(|adapter| adapter.air) {
                return Ok(());
            }
            let message = "it has no interface with an address of its server's family";
            return Err(Mistake::of(&self.node, message));
        };
        let ask = reach::probe((own, PORT), (server, PORT), UDP, 0);
        let answer = reach::probe((server, PORT), (own, PORT), UDP, 0);
        let asked = reach::follow_over(network, node, index, &ask);
        // Behind a translator, answers are sent to a different address.
        let both = asked.and_then(|translated| {
            if translated { Ok(true) } else { reach::follow(network, there, &answer) }
        });
        both.map(drop).map_err(Mistake::at(&self.server))
    }
}

fn take_port<T>(
    builder: &mut Builder<'_>,
    node: NodeId,
    place: &Spanned<T>,
    owner: &Name,
) -> Result<(), Mistake> {
    let port = Spanned::new(place.span(), PORT);
    builder.take_ports(node, UDP, &port, 1, owner.get_ref()).map(drop)
}

/// A number and a seed for the next end.
fn seed(builder: &mut Builder<'_>) -> (u32, u64) {
    let seeds = &mut builder.kept::<Ends>().seeds;
    *seeds += 1;
    let number = *seeds;
    (number, builder.network.seed_of(ECHO, number))
}

/// Makes a client release its address and request a new one.
const RELEASE: EventKind = EventKind {
    keys: EventKeys { name: "release", with: &[] },
    add: |builder, _, at, name| {
        let id = named("echo client", name, &builder.kept::<Ends>().clients)?;
        let agent = builder.network.agent_mut::<RoleAgent<EchoClient>>(id);
        agent.expect("it is a client").order(at, At::Own(Order::Release));
        Ok(())
    },
};

#[cfg(test)]
mod tests {
    use segue_sim::{Results, Value};

    use crate::file::Scenario;

    const NETWORK: &str = "duration = \"30s\"
[[node]]
name = \"phone\"
[[node]]
name = \"core\"
[[link]]
name = \"wifi\"
ends = [\"phone\", \"core\"]
addresses = [[\"10.0.0.2\"], [\"10.0.0.1\"]]
delay = \"10ms\"
[[echo_client]]
name = \"phone\"
node = \"phone\"
server = \"leases\"
period = \"500ms\"
[[echo_server]]
name = \"leases\"
node = \"core:wifi\"
pool = \"10.9.0.0/29\"
lifetime = \"4s\"
";

    #[test]
    fn a_client_has_its_echoes_answered_and_asks_anew_when_it_is_told_to_release() {
        let run = |text: &str| Scenario::parse(text, "s.toml").unwrap().run(None).unwrap();
        let has = |results: &Results, name, count| {
            assert_eq!(results.get(name), Some(&Value::Int(count)), "{name}");
        };
        let calm = run(NETWORK);
        has(&calm, "phone.answers", 60);
        has(&calm, "leases.leases", 1);
        let restart = "[[event]]\nat = \"20s\"\nrestart = \"leases\"\n";
        // The first echo is sent as soon as there is a lease: one more in the run.
        let release = "[[event]]\nat = \"10.2s\"\nrelease = \"phone\"\n";
        let moved = run(&format!("{NETWORK}{restart}{release}"));
        has(&moved, "leases.starts", 1);
        has(&moved, "phone.answers", 61);
    }

    #[test]
    fn mistakes_have_their_place() {
        for (old, new, expected) in [
            ("10.9.0.0/29", "10.9.0.0/32", "19: echo_server.leases.pool: a pool needs room for"),
            ("\"500ms\"", "\"0s\"", "15: echo_client.phone.period: must be above zero"),
            (
                "server = \"leases\"",
                "server = \"lease\"",
                "14: echo_client.phone.server: there is no",
            ),
            (
                "\"core:wifi\"",
                "\"phone\"",
                "13: echo_client.phone.node: port 4007 of phone is used",
            ),
            ("\"10.0.0.2\"", "\"fd00::2\"", "13: echo_client.phone.node: it has no interface"),
        ] {
            let text = NETWORK.replacen(old, new, 1);
            let error = Scenario::parse(&text, "s.toml").err().map(|e| e.to_string());
            let error = error.unwrap_or_else(|| panic!("taken: {new}"));
            assert!(error.starts_with(&format!("s.toml:{expected}")), "{error}");
        }
    }
}
