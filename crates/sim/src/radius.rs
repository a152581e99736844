//! A RADIUS server on a simulated node (RFC 2865, 2866, 6572): identifies the hosts of gateways, authorizes those of
//! anchors, and keeps their sessions.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;

use segue_clock::{Deadline, Machine, Span, Time};
use segue_ip::{Datagram, Input, Output};
use segue_pmip::LinkLayer;
use segue_wire::radius::{
    AcctStatusType, Attribute, AttributeType, Code, Packet, Secret, TerminationAction, View,
};

use crate::role::{Pure, Role, RoleAgent, Start};
use crate::{Io, Results};

/// Ports of authentication (RFC 2865) and accounting (RFC 2866).
pub const PORTS: [u16; 2] = [1_812, 1_813];

/// A server's settings.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// The secret that it shares with its clients.
    pub secret: Secret,
    /// Identities of hosts, by the link-layer addresses of their interfaces.
    pub hosts: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Session-Timeout, after which clients ask again; `None`: unlimited.
    pub session: Option<Span>,
}

/// An order to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RadiusInput {
    /// From now on refuse this host.
    Refuse(Vec<u8>),
    /// Accept it again.
    Accept(Vec<u8>),
}

/// A session that a client has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Link-layer address of the host's interface.
    pub station: Vec<u8>,
    /// The client: its NAS-Identifier, or else its NAS-IPv6-Address.
    pub client: Vec<u8>,
    /// When its first record arrived.
    pub since: Time,
    /// Its end was reported.
    pub ended: bool,
    /// Octets from and to the host, as last reported.
    pub octets: [u64; 2],
}

/// The server's machine. Datagrams that no client with the secret has sent are dropped.
pub struct RadiusServer {
    config: RadiusConfig,
    refused: BTreeSet<Vec<u8>>,
    /// By Acct-Session-Id, which clients draw at random.
    sessions: BTreeMap<Vec<u8>, Session>,
    accepts: u64,
    rejects: u64,
    out: VecDeque<Output<Infallible, String, Infallible>>,
}

impl RadiusServer {
    /// A server without sessions.
    #[must_use]
    pub fn new(config: RadiusConfig) -> RadiusServer {
        let (refused, sessions) = (BTreeSet::new(), BTreeMap::new());
        RadiusServer { config, refused, sessions, accepts: 0, rejects: 0, out: VecDeque::new() }
    }

    /// The reported sessions, by Acct-Session-Id.
    #[must_use]
    pub fn sessions(&self) -> &BTreeMap<Vec<u8>, Session> {
        &self.sessions
    }

    /// True if it refuses this host.
    #[must_use]
    pub fn refuses(&self, node: &[u8]) -> bool {
        self.refused.contains(node)
    }

    fn serve(&mut self, now: Time, came: &Datagram) -> Option<()> {
        let view = View::parse(&came.bytes).ok()?;
        view.check_request(&self.config.secret).ok()?;
        let request = Packet::of(&view);
        let (code, attributes) = match view.code() {
            Code::ACCESS_REQUEST => self.authorize(&request),
            Code::ACCOUNTING_REQUEST => {
                self.account(now, &request)?;
                (Code::ACCOUNTING_RESPONSE, Vec::new())
            }
            _ => return None,
        };
        let reply = Packet { code, id: view.id(), authenticator: [0; 16], attributes };
        let signs = code != Code::ACCOUNTING_RESPONSE;
        let bytes = reply.seal_reply(&view.authenticator(), &self.config.secret, signs).ok()?;
        let reply = Datagram { from: came.to, to: came.from, bytes, ..came.clone() };
        self.out
            .push_back(Output::Send(Datagram { interface: None, hop_limit: 64, ..reply }, None));
        Some(())
    }

    /// The answer to an Access-Request: a gateway names the interface, an anchor the host too.
    fn authorize(&mut self, request: &Packet) -> (Code, Vec<Attribute>) {
        let octets = |kind| request.first(kind).map(|found| found.value.clone());
        let station = octets(AttributeType::CALLING_STATION_ID).unwrap_or_default();
        let known = || self.config.hosts.get(&link_layer(&station)).cloned();
        let node = octets(AttributeType::MOBILE_NODE_IDENTIFIER).or_else(known);
        let Some(node) = node.filter(|node| !self.refused.contains(node)) else {
            self.rejects += 1;
            return (Code::ACCESS_REJECT, Vec::new());
        };
        self.accepts += 1;
        let mut all = Vec::from([Attribute::octets(AttributeType::MOBILE_NODE_IDENTIFIER, &node)]);
        if let Some(session) = self.config.session {
            let again = TerminationAction::RADIUS_REQUEST.0;
            let seconds = session.as_micros() / 1_000_000;
            all.push(Attribute::integer(AttributeType::SESSION_TIMEOUT, seconds as u32));
            all.push(Attribute::integer(AttributeType::TERMINATION_ACTION, again));
        }
        (Code::ACCESS_ACCEPT, all)
    }

    /// Takes an accounting record; `None` if it lacks an attribute.
    fn account(&mut self, now: Time, request: &Packet) -> Option<()> {
        let octets = |kind| request.first(kind).map(|found| found.value.clone());
        let integer = |kind| request.first(kind).and_then(Attribute::to_integer);
        let client = octets(AttributeType::NAS_IDENTIFIER);
        let client = client.or_else(|| octets(AttributeType::NAS_IPV6_ADDRESS))?;
        let status = AcctStatusType(integer(AttributeType::ACCT_STATUS_TYPE)?);
        if status == AcctStatusType::ACCOUNTING_ON {
            // The client has started: its former sessions have ended.
            let own = self.sessions.values_mut().filter(|session| session.client == client);
            own.for_each(|session| session.ended = true);
            return Some(());
        }
        let session = octets(AttributeType::ACCT_SESSION_ID)?;
        let station = octets(AttributeType::CALLING_STATION_ID).unwrap_or_default();
        let new = Session { since: now, ..Session::default() };
        let session = self.sessions.entry(session).or_insert(new);
        session.station = link_layer(&station);
        session.client = client;
        session.ended |= status == AcctStatusType::STOP;
        let count = |low, high| {
            let high = integer(high).unwrap_or_default();
            Some(u64::from(high) << 32 | u64::from(integer(low)?))
        };
        let input = count(AttributeType::ACCT_INPUT_OCTETS, AttributeType::ACCT_INPUT_GIGAWORDS);
        let output = count(AttributeType::ACCT_OUTPUT_OCTETS, AttributeType::ACCT_OUTPUT_GIGAWORDS);
        for (own, reported) in session.octets.iter_mut().zip([input, output]) {
            *own = reported.map_or(*own, |reported| reported.max(*own));
        }
        Some(())
    }
}

/// A link-layer address from a Calling-Station-Id (RFC 3580, 3.21).
fn link_layer(text: &[u8]) -> Vec<u8> {
    let text = core::str::from_utf8(text).unwrap_or_default();
    text.split('-').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect()
}

impl Machine for RadiusServer {
    type Input = Input<RadiusInput, Infallible>;
    type Output = Output<Infallible, String, Infallible>;

    fn handle(&mut self, now: Time, input: Self::Input) {
        match input {
            Input::Datagram(came) => {
                self.serve(now, &came);
            }
            Input::Own(RadiusInput::Refuse(node)) => {
                self.refused.insert(node);
            }
            Input::Own(RadiusInput::Accept(node)) => {
                self.refused.remove(&node);
            }
            Input::Interfaces(_) | Input::Link(_) => {}
            Input::Record(never) => match never {},
        }
    }

    fn tick(&mut self, _now: Time) {}

    fn poll(&mut self) -> Option<Self::Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        None
    }
}

/// The role of a server.
pub struct RadiusRole(pub RadiusConfig);

impl Role for RadiusRole {
    type Engine = Pure<RadiusServer>;
    type Order = RadiusInput;

    fn start(&mut self, _start: &Start) -> Pure<RadiusServer> {
        Pure(RadiusServer::new(self.0.clone()))
    }

    fn order(agent: &mut RoleAgent<RadiusRole>, io: &mut Io<'_>, order: RadiusInput) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut Pure<RadiusServer>, wish: Infallible) {
        match wish {}
    }

    fn key(never: &Infallible) -> String {
        match *never {}
    }

    fn results(agent: &RoleAgent<RadiusRole>, name: &str, results: &mut Results) {
        let server = &agent.engine().0;
        results.int(format!("{name}.accepts"), server.accepts);
        results.int(format!("{name}.rejects"), server.rejects);
        let open = server.sessions.values().filter(|session| !session.ended);
        results.int(format!("{name}.sessions_open"), open.count() as u64);
        results.rows(
            format!("{name}.sessions"),
            server.sessions.values().map(|session| {
                let mut row = Results::new();
                row.text("station", LinkLayer(session.station.clone()).to_string());
                row.text("state", if session.ended { "ended" } else { "open" });
                row.int("octets_from_host", session.octets[0]);
                row.int("octets_to_host", session.octets[1]);
                row
            }),
        );
    }
}
