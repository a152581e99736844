//! One path of the host: what is known of it.

use alloc::boxed::Box;
use alloc::string::String;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_keepalive::size::Sizes;
use segue_keepalive::{Client, Config as Keepalive, PathLosses, State, Why};
use segue_steering::{PathId, PathView};
use segue_wire::Encapsulation;
use segue_wire::signal::PathGrant;

use super::following::Following;
use super::questions::Questions;
use super::source::{SourceChoice, Sources};
use super::watch::FlowWatch;
use crate::{Carried, PathConfig, Via};

/// One interface of the host to one address of the anchor.
pub struct Path {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    pub(super) gateway: Option<IpAddr>,
    pub(super) sources: Sources,
    /// Of its interface.
    pub(super) mtu: u32,
    pub(super) sizes: Option<Box<PathSizes>>,
    pub(super) config: PathConfig,
    pub(super) rx_cookie: u64,
    pub(super) grant: Option<PathGrant>,
    pub(super) client: Option<Client>,
    pub(super) quiet: bool,
    pub(super) following: Option<Box<Following>>,
    /// The operator wants requests on it.
    pub(super) enabled: bool,
    /// There are none, and the anchor has been told.
    pub(super) off: bool,
    /// Since when the anchor has not been shown that this end receives at its address: the answer to a
    /// request from there has to be echoed first.
    pub(super) unshown: Option<Time>,
    pub(super) usable_since: Time,
    /// When to offer it again, after a refusal.
    pub(super) offer_at: Option<Time>,
    /// The tests of loss, once there is something to test.
    pub(super) losses: Option<Box<PathLosses>>,
    /// What is watched of its flows, once it has lost something.
    pub(super) watch: Option<Box<FlowWatch>>,
    pub(super) questions: Questions,
    /// Its addresses show that packets are translated between IPv6 and IPv4 on their way.
    pub(super) translated: bool,
    /// In the network where it is.
    pub(super) checksums_tried: Trial,
    /// Verdicts of loss that have been reported, up and down.
    pub(super) loss_told: [bool; 2],
    /// When it was last asked for its counters, since it looked as if it lost packets.
    pub(super) recounted: Option<Time>,
    pub(super) via: Option<Via>,
    /// Where its uplink went by the last report of that, since it died.
    pub(super) told_to: Option<u8>,
    /// When a doubt was told last.
    pub(super) doubt_told: Option<Time>,
    /// Since when it is in a doubt that was reported.
    pub(super) told_doubt_since: Option<Time>,
    /// When the anchor was last told to send one by one.
    pub(super) uncut_told: Option<Time>,
    /// The largest inner packet that the anchor was told last; it may have missed it.
    pub(super) largest_told: u16,
    /// When another path last asked on behalf of this one, which was in doubt.
    pub(super) helped: Option<Time>,
    /// Since when it is down.
    pub(super) down_at: Option<Time>,
}

/// Whether checksums are tried because data died while probes passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trial {
    #[default]
    Never,
    Since(Time),
    /// Data died with checksums, too: not again in this network.
    InVain,
}

/// A path's sizes, and what it had carried and lost when it was last looked at.
pub(super) struct PathSizes {
    pub(super) sizes: Sizes,
    pub(super) carried: Option<Carried>,
    /// Packets, up and down.
    pub(super) lost: [u64; 2],
}

impl Path {
    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Outer source address.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Why it is that.
    #[must_use]
    pub fn source_choice(&self) -> SourceChoice {
        match self.config.source {
            Some(own) if own == self.local => SourceChoice::Configured,
            _ if self.local == self.sources.first => SourceChoice::Preferred,
            _ => SourceChoice::Tried,
        }
    }

    /// Outer destination.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The measurement; `None` before the anchor has granted the path.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The path that carries this one's packets instead.
    #[must_use]
    pub fn via(&self) -> Option<Via> {
        self.via
    }

    /// Answers arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.state() == State::Up)
    }

    /// No requests are sent on it: it counts as up while its interface is there.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        self.off
    }

    /// Answers should arrive and do not.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.state() == State::Down)
    }

    pub(super) fn is_carried(&self) -> bool {
        self.client.as_ref().is_some_and(Client::is_carried)
    }

    pub(super) fn deadline(&self) -> Deadline {
        let client = self.client.as_ref().and_then(Client::deadline);
        let offer = self.offer_at.map(|at| (at, "offer again after a refusal"));
        let following = self.following.as_deref().filter(|_| self.is_set());
        let follow = following.and_then(Following::deadline);
        let source = self.sources.next_at.map(|at| (at, "another source address is tried"));
        let path = earlier(earlier(earlier(client, offer), follow), source);
        earlier(earlier(path, self.audit_deadline()), self.sizes_deadline())
    }

    /// Whether the anchor has granted it, so that the datapath has it.
    pub(super) fn is_set(&self) -> bool {
        self.client.is_some()
    }

    /// Answers arrive, and have for so long.
    pub(super) fn is_up_since(&self, now: Time, hold: Span) -> bool {
        self.is_up() && now.since(self.usable_since) >= hold
    }

    /// How long an outage may go unnoticed: T_Rmax of eq. 1 with the largest RTT seen, where K and T_KA decide; else
    /// from the first packet lost on a path in use, and from the outage on an idle one.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        if let Some((client, doubt)) = self.client.as_ref().zip(self.keepalive().doubt) {
            let in_use = self.following.as_deref().is_some_and(Following::in_use);
            return client.detection_bound(doubt, in_use);
        }
        let rtt = self.client.as_ref().and_then(|c| c.estimates().rtt_max).unwrap_or(Span::ZERO);
        self.keepalive().t_r_max(rtt)
    }

    /// The settings in force: those configured, before the anchor has granted the path.
    #[must_use]
    pub fn keepalive(&self) -> &Keepalive {
        self.client.as_ref().map_or(&self.config.keepalive, Client::config)
    }

    /// Why the settings are what they are, and since when; `None` where they are fixed, or nothing has been
    /// chosen yet.
    #[must_use]
    pub fn why(&self) -> Option<(&Why, Time)> {
        let following = self.following.as_deref()?;
        Some((following.planner.why()?, following.changed))
    }

    /// Form of the packets: what was granted, else what is wanted.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.grant.as_ref().map_or(self.config.encapsulation, |grant| grant.encapsulation)
    }

    pub(super) fn view(&self, number: u8) -> PathView {
        let estimates = self.client.as_ref().map(Client::estimates);
        let first = |v: &[f64]| v.first().copied();
        let [up, down] = self.seen_losses();
        PathView {
            id: PathId(number),
            usable: self.is_up(),
            rtt_s: estimates.and_then(|e| first(&e.rtt_ewma)),
            loss_up: up.share,
            loss_down: down.share,
            lossy: self.is_lossy(),
            bound_up: up.bound,
            bound_down: down.bound,
            // One direction has about half of what a round trip shows.
            jitter_s: estimates.map_or(0.0, |e| e.rtt_jitter / 2.0),
            rate_bps: None,
            price: self.config.price,
            since: self.usable_since,
            preference: self.config.preference,
        }
    }
}
