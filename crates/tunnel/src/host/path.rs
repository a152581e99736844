//! State of one path of the host.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
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
use crate::{Carried, HostConfig, PathConfig, Via};

/// A path from one interface of the host to one address of the anchor.
pub struct Path {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    pub(super) gateway: Option<IpAddr>,
    pub(super) sources: Sources,
    /// MTU of its interface, in bytes.
    pub(super) mtu: u32,
    pub(super) sizes: Option<Box<PathSizes>>,
    pub(super) config: Arc<HostConfig>,
    pub(super) rx_cookie: u64,
    pub(super) grant: Option<PathGrant>,
    pub(super) client: Option<Client>,
    pub(super) quiet: bool,
    pub(super) following: Option<Box<Following>>,
    /// True if the operator wants requests on it.
    pub(super) enabled: bool,
    /// True if no requests are sent and the anchor has been told so.
    pub(super) off: bool,
    /// Since when the anchor has not verified that this end receives at its address. For that, the answer to a request
    /// from there has to be echoed.
    pub(super) unshown: Option<Time>,
    pub(super) usable_since: Time,
    /// When to repeat the offer after a refusal.
    pub(super) offer_at: Option<Time>,
    /// The tests for loss, once there is something to test.
    pub(super) losses: Option<Box<PathLosses>>,
    /// State about its flows, once it has lost something.
    pub(super) watch: Option<Box<FlowWatch>>,
    pub(super) questions: Questions,
    /// True if its addresses show that packets are translated between IPv6 and IPv4 on the way.
    pub(super) translated: bool,
    /// The trial of checksums in the current network.
    pub(super) checksums_tried: Trial,
    /// True for verdicts of loss that have been reported, up and down.
    pub(super) loss_told: [bool; 2],
    /// When the host last asked for extra counters because the path looked lossy.
    pub(super) recounted: Option<Time>,
    pub(super) via: Option<Via>,
    /// The redirection target in the last report, while the uplink is dead.
    pub(super) told_to: Option<u8>,
    /// When a doubt was last reported.
    pub(super) doubt_told: Option<Time>,
    /// Since when the path has been in a doubt that was reported.
    pub(super) told_doubt_since: Option<Time>,
    /// When the host last asked the anchor to send one by one.
    pub(super) uncut_told: Option<Time>,
    /// The largest inner packet in the last offer, in bytes; the anchor may have missed it.
    pub(super) largest_told: u16,
    /// When another path last sent a request on behalf of this one, which was in doubt.
    pub(super) helped: Option<Time>,
    /// Since when it has been down.
    pub(super) down_at: Option<Time>,
}

/// State of the trial of checksums that follows if data are lost while probes pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trial {
    #[default]
    Never,
    Since(Time),
    /// Data were lost with checksums too: do not try again in this network.
    InVain,
}

/// A path's packet sizes, with its counters at the last check.
pub(super) struct PathSizes {
    pub(super) sizes: Sizes,
    pub(super) carried: Option<Carried>,
    /// Packets lost, up and down.
    pub(super) lost: [u64; 2],
}

impl Path {
    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configured settings.
    pub(super) fn settings(&self) -> &PathConfig {
        self.config.path_of(&self.name)
    }

    /// Outer source address.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Why the path uses that source address.
    #[must_use]
    pub fn source_choice(&self) -> SourceChoice {
        match self.settings().source {
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

    /// The path that carries this one's packets.
    #[must_use]
    pub fn via(&self) -> Option<Via> {
        self.via
    }

    /// Returns whether answers arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.state() == State::Up)
    }

    /// Returns whether no requests are sent on it; then it counts as up as long as its interface exists.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        self.off
    }

    /// Returns whether answers are due but do not arrive.
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

    /// Returns whether the anchor has granted it, so that the datapath knows it.
    pub(super) fn is_set(&self) -> bool {
        self.client.is_some()
    }

    /// Returns whether answers have been arriving for at least `hold`.
    pub(super) fn is_up_since(&self, now: Time, hold: Span) -> bool {
        self.is_up() && now.since(self.usable_since) >= hold
    }

    /// The longest time in which an outage is detected. If K and T_KA decide: T_Rmax of eq. 1 with the largest RTT
    /// seen. Otherwise counted from the first packet lost on a path in use, or from the outage on an idle one.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        if let Some((client, doubt)) = self.client.as_ref().zip(self.keepalive().doubt) {
            let in_use = self.following.as_deref().is_some_and(Following::in_use);
            return client.detection_bound(doubt, in_use);
        }
        let rtt = self.client.as_ref().and_then(|c| c.estimates().rtt_max).unwrap_or(Span::ZERO);
        self.keepalive().t_r_max(rtt)
    }

    /// The settings in effect; before the grant, the configured ones.
    #[must_use]
    pub fn keepalive(&self) -> &Keepalive {
        self.client.as_ref().map_or_else(|| &self.settings().keepalive, Client::config)
    }

    /// Why the settings were chosen, and when; `None` if they are fixed or nothing was chosen yet.
    #[must_use]
    pub fn why(&self) -> Option<(&Why, Time)> {
        let following = self.following.as_deref()?;
        Some((following.planner.why()?, following.changed))
    }

    /// The packet format: the granted one, else the configured one.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.grant
            .as_ref()
            .map_or_else(|| self.settings().encapsulation, |grant| grant.encapsulation)
    }

    pub(super) fn view(&self, number: u8) -> PathView {
        let (settings, estimates) = (self.settings(), self.client.as_ref().map(Client::estimates));
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
            // One direction has about half the jitter of a round trip.
            jitter_s: estimates.map_or(0.0, |e| e.rtt_jitter / 2.0),
            rate_bps: None,
            price: settings.price,
            since: self.usable_since,
            preference: settings.preference,
        }
    }
}
