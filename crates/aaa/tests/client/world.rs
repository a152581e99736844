//! A client and its servers, on a network without delay.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use segue_aaa::{
    Aaa, AaaConfig, AaaInput, AaaReport, AaaWish, Cause, Server, ServerStatus, Side, Subject,
    Unfit, Verdict, Volume,
};
use segue_clock::{DayClock, Machine, Span, Time, UnixTime};
use segue_ip::{Datagram, Input, Output};
use segue_wire::radius::{Attribute, AttributeType, Code, Packet, Secret, View};

pub(crate) const SECRET: &[u8] = b"of both ends";
pub(crate) const DAY: UnixTime = UnixTime::from_secs(1_700_000_000);

pub(crate) fn s(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// The address of server `n`.
pub(crate) fn at(n: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, n]), port)
}

pub(crate) fn server(n: u8, port: u16) -> Server {
    let address = at(n, port);
    Server { address: address.ip(), port, secret: Secret::new(SECRET) }
}

/// Two servers for each service.
pub(crate) fn config(side: Side) -> AaaConfig {
    let clock = DayClock::new(Time::ZERO, DAY);
    AaaConfig {
        accounting: vec![server(1, 1813), server(2, 1813)],
        seed: [7; 32],
        ..AaaConfig::new(vec![server(1, 1812), server(2, 1812)], side, clock)
    }
}

pub(crate) fn subject(key: u32) -> Subject {
    let [.., a, b] = key.to_be_bytes();
    Subject {
        link_layer: vec![2, 0, 0, 0, a, b],
        nas: Some("fd00::2".parse().unwrap()),
        ..Subject::default()
    }
}

/// The behaviour of a server.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    Accept(Vec<Attribute>),
    Reject,
    Challenge,
    Nothing,
}

/// The identity of a host.
pub(crate) fn identity() -> Attribute {
    Attribute::octets(AttributeType::MOBILE_NODE_IDENTIFIER, b"alice@example.org")
}

pub(crate) fn accepts(more: &[Attribute]) -> Does {
    Does::Accept([&[identity()], more].concat())
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) client: Aaa<u32>,
    /// By address; a server that is not listed does not answer.
    pub(crate) servers: BTreeMap<SocketAddr, Does>,
    /// Replies of authentication servers carry a Message-Authenticator.
    pub(crate) with_message_authenticator: bool,
    /// Keep replies in `kept` and do not deliver them.
    pub(crate) keeps: bool,
    pub(crate) kept: Vec<Datagram>,
    /// Everything sent: time, destination, bytes.
    pub(crate) sent: Vec<(Time, SocketAddr, Vec<u8>)>,
    pub(crate) verdicts: Vec<(u32, Verdict)>,
    pub(crate) reports: Vec<AaaReport>,
    /// The traffic of every session.
    pub(crate) volume: Volume,
    /// The session and `last` flag of each `Count`.
    pub(crate) counted: Vec<(u64, bool)>,
}

impl World {
    pub(crate) fn new(config: AaaConfig) -> World {
        World {
            now: Time::ZERO,
            client: Aaa::new(config),
            servers: BTreeMap::new(),
            with_message_authenticator: true,
            keeps: false,
            kept: Vec::new(),
            sent: Vec::new(),
            verdicts: Vec::new(),
            reports: Vec::new(),
            volume: Volume::default(),
            counted: Vec::new(),
        }
    }

    /// A gateway whose accounting servers acknowledge.
    pub(crate) fn gateway() -> World {
        World::with(config(Side::Gateway))
    }

    pub(crate) fn with(config: AaaConfig) -> World {
        let mut world = World::new(config);
        for n in [1, 2] {
            world.servers.insert(at(n, 1813), Does::Accept(Vec::new()));
        }
        world
    }

    pub(crate) fn does(&mut self, n: u8, does: Does) {
        self.servers.insert(at(n, 1812), does);
    }

    pub(crate) fn handle(&mut self, input: AaaInput<u32>) {
        self.client.handle(self.now, Input::Own(input));
        self.drain();
    }

    pub(crate) fn ask(&mut self, key: u32) {
        self.handle(AaaInput::Ask { key, subject: subject(key) });
    }

    pub(crate) fn began(&mut self, key: u32) {
        self.handle(AaaInput::Began { key, subject: subject(key) });
    }

    pub(crate) fn ended(&mut self, key: u32) {
        self.handle(AaaInput::Ended { key, cause: Cause::UserRequest });
    }

    pub(crate) fn deliver(&mut self, datagram: Datagram) {
        self.client.handle(self.now, Input::Datagram(datagram));
        self.drain();
    }

    fn drain(&mut self) {
        let mut came = Vec::new();
        while let Some(output) = self.client.poll() {
            match output {
                Output::Send(datagram, _) => {
                    let to = SocketAddr::new(datagram.to.0, datagram.to.1);
                    came.extend(self.serve(to, &datagram.bytes));
                    self.sent.push((self.now, to, datagram.bytes));
                }
                Output::Own(AaaWish::Answered { key, verdict }) => {
                    self.verdicts.push((key, verdict));
                }
                Output::Own(AaaWish::Count { session, last, .. }) => {
                    self.counted.push((session, last));
                    let volume = self.volume;
                    let input = AaaInput::Counted { session, volume };
                    self.client.handle(self.now, Input::Own(input));
                }
                Output::Report(report) => self.reports.push(report),
                other => panic!("{other:?}"),
            }
        }
        for datagram in came {
            if self.keeps {
                self.kept.push(datagram);
            } else {
                self.deliver(datagram);
            }
        }
    }

    /// A server's reply.
    fn serve(&self, server: SocketAddr, bytes: &[u8]) -> Option<Datagram> {
        let view = View::parse(bytes).unwrap();
        view.check_request(&Secret::new(SECRET)).unwrap();
        let (code, attributes) = match self.servers.get(&server)? {
            Does::Nothing => return None,
            Does::Accept(_) if view.code() == Code::ACCOUNTING_REQUEST => {
                (Code::ACCOUNTING_RESPONSE, Vec::new())
            }
            Does::Accept(attributes) => (Code::ACCESS_ACCEPT, attributes.clone()),
            Does::Reject => (Code::ACCESS_REJECT, Vec::new()),
            Does::Challenge => (Code::ACCESS_CHALLENGE, Vec::new()),
        };
        let packet = Packet { code, id: view.id(), authenticator: [0; 16], attributes };
        let with = self.with_message_authenticator && code != Code::ACCOUNTING_RESPONSE;
        let bytes = packet.seal_reply(&view.authenticator(), &Secret::new(SECRET), with);
        Some(from(server, bytes.unwrap()))
    }

    /// Runs all timers until `until`.
    pub(crate) fn run(&mut self, until: Time) {
        while let Some((at, _)) = self.client.deadline().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.client.tick(self.now);
            self.drain();
        }
        self.now = until;
    }

    pub(crate) fn server(&self, n: u8, port: u16) -> &ServerStatus {
        self.client.servers().find(|server| server.address == at(n, port)).unwrap()
    }

    pub(crate) fn refused(&self, n: u8, why: Unfit) -> u64 {
        self.server(n, 1812).refused.get(&why).copied().unwrap_or(0)
    }

    /// The time in seconds and the packet of each datagram to a server.
    pub(crate) fn sent_to(&self, n: u8, port: u16) -> Vec<(f64, Packet)> {
        let own = self.sent.iter().filter(|(_, to, _)| *to == at(n, port));
        own.map(|(when, _, bytes)| (when.as_secs_f64(), Packet::parse(bytes).unwrap())).collect()
    }

    /// Acct-Status-Type of all accounting requests, in order.
    pub(crate) fn told(&self) -> Vec<u32> {
        let all = self.sent.iter().filter(|(_, to, _)| to.port() == 1813);
        let status = |bytes: &[u8]| {
            let packet = Packet::parse(bytes).unwrap();
            packet.first(AttributeType::ACCT_STATUS_TYPE).unwrap().to_integer().unwrap()
        };
        all.map(|(.., bytes)| status(bytes)).collect()
    }
}

/// A datagram from a server.
pub(crate) fn from(server: SocketAddr, bytes: Vec<u8>) -> Datagram {
    Datagram {
        waited_ns: 0,
        interface: None,
        from: (server.ip(), server.port()),
        to: ("::".parse().unwrap(), 0),
        protocol: 17,
        hop_limit: 64,
        bytes,
    }
}

pub(crate) fn is_granted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Granted(_))
}
