//! Hosts that RADIUS servers authorize: combines a role's machine and a RADIUS client ([`segue_aaa::Aaa`]) into one
//! machine. The role's questions go to the client, and the client's verdicts return as inputs. The client's datagrams
//! are UDP datagrams to and from the client's port.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Context;
use segue_aaa::{
    Aaa, AaaConfig, AaaInput, AaaReport, AaaWish, Cause, Server, Side, Subject, Verdict, Volume,
};
use segue_clock::{Deadline, Machine, Time, UnixTime, earlier};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Input, Output, Prefix};
use segue_pmip::{
    Authorization, Identity, LinkLayer, Lma, LmaInput, LmaRecord, LmaWish, Mag, MagInput,
    MagRecord, NodeId, Report, Why, Wish,
};
use segue_wire::mobility::option::{AccessTechnology, MobileNodeIdentifier};
use segue_wire::radius::Secret;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{About, day_clock};
use crate::control::News;
use crate::relayed::OfFlows;
use crate::settings::Radius;

const UDP: u8 = 17;
/// Stands for the client's socket, whose port the system chooses.
pub const ANY_PORT: u16 = 0;

/// Which counters the relay of this role needs: none unless a server does accounting.
pub fn counts(radius: Option<&Radius>, whose: Counts) -> Counts {
    let told = |radius: &Radius| radius.servers.iter().any(|server| server.accounting.is_some());
    if radius.is_some_and(told) { whose } else { Counts::Nothing }
}

/// A machine whose hosts RADIUS servers know.
pub trait OfHosts: Machine<Input = InputOf<Self>, Output = OutputOf<Self>> + Sized {
    /// The machine's own input.
    type Own;
    /// The machine's own output.
    type Wish;
    /// The records that it stores.
    type Record;
    /// The key of a host's interface.
    type Key: Ord + Clone;
    /// The side on whose behalf servers are asked.
    const SIDE: Side;

    /// The client input for a wish; `Err` returns a wish that does not concern the client.
    fn question(&self, wish: Self::Wish) -> Result<AaaInput<Self::Key>, Self::Wish>;

    /// The machine's input for a verdict of the servers.
    fn verdict(key: Self::Key, verdict: Verdict) -> Self::Own;

    /// The time of day, if the input carries it.
    fn day(own: &Self::Own) -> Option<UnixTime>;
}

type InputOf<M> = Input<<M as OfHosts>::Own, <M as OfHosts>::Record>;
type OutputOf<M> = Output<<M as OfHosts>::Wish, Report, <M as OfHosts>::Record>;

/// A report of a role, or of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// From the role.
    Role(Report),
    /// From the client.
    Radius(AaaReport),
}

/// A role's machine, with a client if RADIUS servers know its hosts.
pub struct Asking<M: OfHosts> {
    /// The role's machine.
    pub machine: M,
    client: Option<Aaa<M::Key>>,
    /// Counts the traffic of sessions, if a server does accounting.
    counter: Option<Counter>,
    out: VecDeque<Output<M::Wish, Told, M::Record>>,
}

impl<M: OfHosts> Asking<M> {
    /// Creates the client if servers are configured.
    ///
    /// # Errors
    /// A secret cannot be read.
    pub fn new(machine: M, radius: Option<&Radius>) -> anyhow::Result<Asking<M>> {
        let client = radius.map(|radius| config(radius, M::SIDE)).transpose()?.map(Aaa::new);
        Ok(Asking { machine, client, counter: None, out: VecDeque::new() })
    }

    /// Sets the counter for the traffic of sessions.
    pub fn count_with(&mut self, counter: Counter) {
        self.counter = Some(counter);
    }

    /// The ports to open sockets for.
    pub fn ports(&self) -> &'static [u16] {
        if self.client.is_some() { &[ANY_PORT] } else { &[] }
    }

    /// The client's status, if there is a client.
    pub fn radius(&self) -> Option<RadiusStatus> {
        self.client.as_ref().map(RadiusStatus::of)
    }

    /// Passes messages between the machine and the client until neither has any left.
    fn settle(&mut self, now: Time) {
        let mut answers = VecDeque::new();
        loop {
            let mut questions = VecDeque::new();
            while let Some(output) = self.machine.poll() {
                self.out.push_back(match output {
                    Output::Own(wish) => match self.machine.question(wish) {
                        Ok(question) => {
                            questions.push_back(question);
                            continue;
                        }
                        Err(wish) => Output::Own(wish),
                    },
                    Output::Report(report) => Output::Report(Told::Role(report)),
                    Output::Send(datagram, after) => Output::Send(datagram, after),
                    Output::Forward(part) => Output::Forward(part),
                    Output::Withdraw(part) => Output::Withdraw(part),
                    Output::Persist(record) => Output::Persist(record),
                });
            }
            // A machine without a client asks no questions.
            let Some(client) = &mut self.client else { return };
            loop {
                loop {
                    let (told, counts) = said(client, &mut self.out);
                    answers.extend(told.into_iter().map(|(k, v)| M::verdict(k, v)));
                    if counts.is_empty() {
                        break;
                    }
                    for (session, prefixes, last) in counts {
                        let volume = volume(self.counter.as_mut(), &prefixes, last);
                        client.handle(now, Input::Own(AaaInput::Counted { session, volume }));
                    }
                }
                let Some(question) = questions.pop_front() else { break };
                client.handle(now, Input::Own(question));
            }
            let Some(answer) = answers.pop_front() else { return };
            self.machine.handle(now, Input::Own(answer));
        }
    }
}

/// Traffic of prefixes since counting began; counting ends if this is the `last` reading.
fn volume(counter: Option<&mut Counter>, prefixes: &[Prefix], last: bool) -> Volume {
    let (mut volume, Some(counter)) = (Volume::default(), counter) else {
        return Volume::default();
    };
    for prefix in prefixes {
        match counter.read(*prefix) {
            Ok(count) => {
                volume.input_octets += count.from_bytes;
                volume.input_packets += count.from_packets;
                volume.output_octets += count.to_bytes;
                volume.output_packets += count.to_packets;
            }
            Err(error) => warn!("what {prefix} carries is not counted: {error}"),
        }
        if last {
            counter.end(*prefix);
        }
    }
    volume
}

/// The session, the prefixes to count, and whether this is the last reading.
type CountWish = (u64, Vec<Prefix>, bool);

/// Drains the client: returns its verdicts and count requests, and moves everything else to `out`.
fn said<K: Ord + Clone, W, R>(
    client: &mut Aaa<K>,
    out: &mut VecDeque<Output<W, Told, R>>,
) -> (Vec<(K, Verdict)>, Vec<CountWish>) {
    let (mut answers, mut counts) = (Vec::new(), Vec::new());
    while let Some(output) = client.poll() {
        match output {
            Output::Own(AaaWish::Answered { key, verdict }) => answers.push((key, verdict)),
            Output::Own(AaaWish::Count { session, prefixes, last }) => {
                counts.push((session, prefixes, last));
            }
            Output::Send(datagram, after) => out.push_back(Output::Send(datagram, after)),
            Output::Report(report) => out.push_back(Output::Report(Told::Radius(report))),
            Output::Forward(_) | Output::Withdraw(_) | Output::Persist(()) => {}
        }
    }
    (answers, counts)
}

impl<M: OfHosts> Machine for Asking<M> {
    type Input = Input<M::Own, M::Record>;
    type Output = Output<M::Wish, Told, M::Record>;

    fn handle(&mut self, now: Time, input: Self::Input) {
        match (input, &mut self.client) {
            (Input::Datagram(came), Some(client))
                if came.protocol == UDP && came.to.1 == ANY_PORT =>
            {
                client.handle(now, Input::Datagram(came));
            }
            (Input::Own(own), Some(client)) if M::day(&own).is_some() => {
                if let Some(day) = M::day(&own) {
                    client.handle(now, Input::Own(AaaInput::TimeOfDay(day)));
                }
                self.machine.handle(now, Input::Own(own));
            }
            (input, _) => self.machine.handle(now, input),
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
        let client = self.client.as_ref().and_then(Machine::deadline);
        earlier(self.machine.deadline(), client)
    }
}

impl<M: OfHosts + OfFlows<Own = <M as OfHosts>::Own>> OfFlows for Asking<M> {
    type Own = <M as OfHosts>::Own;

    fn flow(key: FlowKey, dscp: u8) -> Option<<M as OfHosts>::Own> {
        M::flow(key, dscp)
    }

    fn size(tunnel: u32, bytes: Option<u32>) -> Option<<M as OfHosts>::Own> {
        M::size(tunnel, bytes)
    }
}

impl OfHosts for Mag {
    type Own = MagInput;
    type Wish = Wish;
    type Record = MagRecord;
    type Key = (u32, LinkLayer);
    const SIDE: Side = Side::Gateway;

    fn question(&self, wish: Wish) -> Result<AaaInput<Self::Key>, Wish> {
        let subject = |(interface, station): &Self::Key| {
            let found = self.station(*interface, station);
            found.map_or(Subject::default(), |(access, at)| Subject {
                link_layer: station.0.clone(),
                // Servers identify the station by its link-layer address, and return its identity.
                node: None,
                nas: v6(access.proxy_coa),
                port: Some(access.interface.clone()),
                port_type: Some(port_type(access.technology)),
                prefixes: at.prefixes.clone(),
            })
        };
        match wish {
            Wish::Identify { interface, station } => {
                let key = (interface, station);
                Ok(AaaInput::Ask { subject: subject(&key), key })
            }
            Wish::Began { interface, station } => {
                let key = (interface, station);
                Ok(AaaInput::Began { subject: subject(&key), key })
            }
            Wish::Ended { interface, station, why } => {
                Ok(AaaInput::Ended { key: (interface, station), cause: cause(why) })
            }
            Wish::Ask { .. } | Wish::Show { .. } | Wish::ToStation { .. } => Err(wish),
        }
    }

    fn verdict((interface, station): Self::Key, verdict: Verdict) -> MagInput {
        let identity = match verdict {
            Verdict::Granted(grant) => grant.node.map(|node| Identity {
                node: NodeId::from_parts(MobileNodeIdentifier::NAI, &node),
                anchor: grant.anchor.map(Into::into),
                prefixes: grant.prefixes,
            }),
            Verdict::Refused | Verdict::Unanswered => None,
        };
        MagInput::Identified { interface, station, identity }
    }

    fn day(own: &MagInput) -> Option<UnixTime> {
        if let MagInput::TimeOfDay(day) = own { Some(*day) } else { None }
    }
}

impl OfHosts for Lma {
    type Own = LmaInput;
    type Wish = LmaWish;
    type Record = LmaRecord;
    type Key = (NodeId, LinkLayer);
    const SIDE: Side = Side::Anchor;

    fn question(&self, wish: LmaWish) -> Result<AaaInput<Self::Key>, LmaWish> {
        let subject = |(node, link_layer): &Self::Key, access, prefixes| Subject {
            link_layer: link_layer.0.clone(),
            node: Some(node.parts().1.to_vec()),
            nas: v6(self.config().address),
            port: None,
            port_type: Some(port_type(access)),
            prefixes,
        };
        match wish {
            LmaWish::Authorize { node, link_layer, access, prefixes } => {
                let key = (node, link_layer);
                Ok(AaaInput::Ask { subject: subject(&key, access, prefixes), key })
            }
            LmaWish::Bound { node, link_layer, access, prefixes } => {
                let key = (node, link_layer);
                Ok(AaaInput::Began { subject: subject(&key, access, prefixes), key })
            }
            LmaWish::Unbound { node, link_layer, why } => {
                Ok(AaaInput::Ended { key: (node, link_layer), cause: cause(why) })
            }
            LmaWish::Release(_)
            | LmaWish::Refuse(_)
            | LmaWish::Decide(_)
            | LmaWish::Went { .. }
            | LmaWish::Ended(_)
            | LmaWish::Interface { .. } => Err(wish),
        }
    }

    fn verdict((node, link_layer): Self::Key, verdict: Verdict) -> LmaInput {
        let verdict = match verdict {
            Verdict::Granted(grant) => Authorization::Allowed(grant.prefixes),
            Verdict::Refused => Authorization::Refused,
            Verdict::Unanswered => Authorization::Unanswered,
        };
        LmaInput::Authorized { node, link_layer, verdict }
    }

    fn day(own: &LmaInput) -> Option<UnixTime> {
        if let LmaInput::TimeOfDay(day) = own { Some(*day) } else { None }
    }
}

/// The NAS-IPv6-Address of a daemon. One with an IPv4 address identifies itself by name.
fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// NAS-Port-Type of an access (RFC 2865, 5.41).
fn port_type(access: AccessTechnology) -> u32 {
    match access {
        AccessTechnology::ETHERNET => 15,
        AccessTechnology::WLAN => 19,
        AccessTechnology::WIMAX => 27,
        AccessTechnology::GERAN | AccessTechnology::UTRAN | AccessTechnology::E_UTRAN => 18,
        _ => 5,
    }
}

fn cause(why: Why) -> Cause {
    match why {
        Why::Detached => Cause::UserRequest,
        Why::Expired | Why::Unreachable => Cause::LostCarrier,
        Why::Revoked => Cause::AdminReset,
        Why::Displaced => Cause::PortPreempted,
        Why::Refused => Cause::LostService,
        Why::Unauthorized => Cause::SessionTimeout,
    }
}

/// Checks the client's files as the daemon would read them.
///
/// # Errors
/// A file is missing or empty, or readable by other users.
pub fn check_here(radius: &Radius) -> anyhow::Result<()> {
    config(radius, Side::Gateway).map(drop)
}

/// The client's configuration, with its secrets read.
fn config(radius: &Radius, side: Side) -> anyhow::Result<AaaConfig> {
    let secret = |file| -> anyhow::Result<Secret> {
        let text = segue_probe::read_secret(file).context("radius: secret_file")?;
        let text = text.trim_end_matches(['\r', '\n']);
        anyhow::ensure!(!text.is_empty(), "radius: secret_file {} is empty", file.display());
        Ok(Secret::new(text.as_bytes()))
    };
    let (mut authentication, mut accounting) = (Vec::new(), Vec::new());
    for server in &radius.servers {
        let (address, secret) = (server.address, secret(&server.secret_file)?);
        let at = |port| Server { address, port, secret: secret.clone() };
        authentication.extend(server.authentication.map(at));
        accounting.extend(server.accounting.map(at));
    }
    let password = |file| -> anyhow::Result<Vec<u8>> {
        let text = segue_probe::read_secret(file).context("radius: password_file")?;
        Ok(text.trim_end_matches(['\r', '\n']).as_bytes().to_vec())
    };
    let capacity = match side {
        Side::Gateway => segue_pmip::HOSTS_MAX,
        Side::Anchor => 1 << 20,
    };
    Ok(AaaConfig {
        counts: !accounting.is_empty(),
        accounting,
        profile: radius.profile,
        eui64: radius.eui64,
        password: radius.password_file.as_deref().map(password).transpose()?,
        identifier: radius.identifier.clone(),
        patience: radius.patience,
        dead_time: radius.dead_time,
        hold_off: radius.hold_off,
        require_message_authenticator: radius.require_message_authenticator,
        interim: radius.interim,
        capacity,
        seed: crate::random_seed()?,
        ..AaaConfig::new(authentication, side, day_clock())
    })
}

/// The status of a daemon's RADIUS client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RadiusStatus {
    /// Servers, in the order in which they are tried.
    pub servers: Vec<RadiusServerStatus>,
    /// Hosts with an open session.
    pub sessions: usize,
    /// Pending requests.
    pub open: usize,
    /// Questions not sent because the host was refused, or had no answer, a moment ago.
    pub held_back: u64,
    /// Questions not sent because too many are pending.
    pub too_many: u64,
    /// Ends of sessions that were reported to no server.
    pub untold: u64,
    /// Datagrams from addresses that are not configured servers, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// A server.
#[derive(Debug, Serialize, Deserialize)]
pub struct RadiusServerStatus {
    /// Its address and port.
    pub address: String,
    /// `authentication` or `accounting`.
    pub service: String,
    /// `answers`, `silent`, or `unknown` before its first answer.
    pub state: String,
    /// Requests, without retransmissions.
    pub requests: u64,
    /// Retransmissions.
    pub repeated: u64,
    /// Accepted answers.
    pub answers: u64,
    /// Accepted answers that refuse a host.
    pub rejects: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Discarded datagrams of this server, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl RadiusStatus {
    fn of<K: Ord + Clone>(client: &Aaa<K>) -> RadiusStatus {
        let named = |all: &BTreeMap<segue_aaa::Unfit, u64>| {
            all.iter().map(|(why, count)| (why.name().to_owned(), *count)).collect()
        };
        let servers = client.servers().map(|server| RadiusServerStatus {
            address: server.address.to_string(),
            service: server.service.name().to_owned(),
            state: match server {
                server if server.silent => "silent",
                server if server.answers > 0 => "answers",
                _ => "unknown",
            }
            .to_owned(),
            requests: server.requests,
            repeated: server.repeated,
            answers: server.answers,
            rejects: server.rejects,
            unanswered: server.unanswered,
            refused: named(&server.refused),
        });
        let [held_back, too_many, untold] = client.passed_over();
        RadiusStatus {
            servers: servers.collect(),
            sessions: client.sessions(),
            open: client.open(),
            held_back,
            too_many,
            untold,
            refused: named(client.strangers()),
        }
    }
}

impl News<About> for Told {
    fn kind(&self) -> &'static str {
        match self {
            Told::Role(report) => report.kind(),
            Told::Radius(AaaReport::Refused { .. }) => "unauthorized",
            Told::Radius(AaaReport::Nameless { .. }) => "radius_nameless",
            Told::Radius(AaaReport::Secret { .. }) => "radius_secret",
            Told::Radius(AaaReport::Silent { .. }) => "radius_silent",
            Told::Radius(AaaReport::Answers { .. }) => "radius_answers",
            Told::Radius(AaaReport::Unsigned { .. }) => "radius_unsigned",
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Told::Role(report) => report.cause(),
            Told::Radius(_) => "",
        }
    }

    fn host(&self) -> String {
        match self {
            Told::Role(report) => report.host(),
            Told::Radius(AaaReport::Refused { user, .. } | AaaReport::Nameless { user, .. }) => {
                user.clone()
            }
            Told::Radius(
                AaaReport::Secret { server }
                | AaaReport::Silent { server }
                | AaaReport::Answers { server }
                | AaaReport::Unsigned { server },
            ) => server.to_string(),
        }
    }

    fn warns(&self) -> bool {
        match self {
            Told::Role(report) => report.warns(),
            Told::Radius(report) => !matches!(report, AaaReport::Answers { .. }),
        }
    }

    fn about(&self) -> About {
        match self {
            Told::Role(report) => report.about(),
            Told::Radius(
                AaaReport::Refused { user, server } | AaaReport::Nameless { user, server },
            ) => About {
                mn_id: Some(user.clone()),
                with: Some(server.to_string()),
                ..About::default()
            },
            Told::Radius(
                AaaReport::Secret { server }
                | AaaReport::Silent { server }
                | AaaReport::Answers { server }
                | AaaReport::Unsigned { server },
            ) => About { with: Some(server.to_string()), ..About::default() },
        }
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Told::Role(report) => report.fmt(f),
            Told::Radius(report) => report.fmt(f),
        }
    }
}
