//! The RADIUS client of a gateway or an anchor: its configuration from files, the traffic that it reports, its status and
//! its events. The client itself is part of the role's machine ([`segue_node::Node`]).

use std::collections::BTreeMap;

use anyhow::Context;
use segue_aaa::{Aaa, AaaConfig, AaaReport, Server, Side, Volume};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Prefix};
use segue_mih::Report as MihReport;
use segue_node::{Decided, Node, NodeInput, NodeReport, Role};
use segue_pmip::Report;
use segue_wire::radius::Secret;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{About, day_clock};
use crate::control::News;
use crate::relayed::OfFlows;
use crate::settings::Radius;

/// A report of a gateway or an anchor, of its RADIUS client, or of its IEEE 802.21 function.
pub type Told = NodeReport<Report>;

/// Which counters the relay of this role needs: none unless a server does accounting.
pub fn counts(radius: Option<&Radius>, whose: Counts) -> Counts {
    let told = |radius: &Radius| radius.servers.iter().any(|server| server.accounting.is_some());
    if radius.is_some_and(told) { whose } else { Counts::Nothing }
}

/// A role's machine with the client that the settings ask for.
///
/// # Errors
/// A secret cannot be read.
pub fn node<R: Decided>(machine: R, radius: Option<&Radius>) -> anyhow::Result<Node<R>> {
    let radius = radius.map(|radius| config(radius, R::SIDE)).transpose()?;
    Ok(Node::new(machine, radius))
}

/// Traffic of prefixes since counting began; counting ends if this is the `last` reading.
pub fn volume(counter: &mut Counter, prefixes: &[Prefix], last: bool) -> Volume {
    let mut volume = Volume::default();
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

impl<R: Decided + OfFlows<Own = <R as Role>::Own>> OfFlows for Node<R> {
    type Own = NodeInput<<R as Role>::Own>;

    fn flow(key: FlowKey, dscp: u8) -> Option<Self::Own> {
        R::flow(key, dscp).map(NodeInput::Own)
    }

    fn size(tunnel: u32, bytes: Option<u32>) -> Option<Self::Own> {
        R::size(tunnel, bytes).map(NodeInput::Own)
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
    /// The status of a client.
    #[must_use]
    pub fn of<K: Ord + Clone>(client: &Aaa<K>) -> RadiusStatus {
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
            Told::Mih(MihReport::Lost(_)) => "mih_lost",
            Told::Mih(MihReport::Silent(_)) => "mih_silent",
            Told::Mih(_) => "mih_registered_at",
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Told::Role(report) => report.cause(),
            Told::Radius(_) | Told::Mih(_) => "",
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
            Told::Mih(report) => report.host(),
        }
    }

    fn warns(&self) -> bool {
        match self {
            Told::Role(report) => report.warns(),
            Told::Radius(report) => !matches!(report, AaaReport::Answers { .. }),
            Told::Mih(report) => report.warns(),
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
            Told::Mih(report) => About { with: report.about().peer, ..About::default() },
        }
    }
}
