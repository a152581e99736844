//! One path of the host: what is known of it.

use alloc::boxed::Box;
use alloc::string::String;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_keepalive::size::Sizes;
use segue_keepalive::{Client, Config as Keepalive, Counted, State, Tau, Why};
use segue_steering::{PathId, PathView};
use segue_wire::signal::PathGrant;
use segue_wire::{Encapsulation, Mode};

use super::following::Following;
use super::outages::Outages;
use crate::{Carried, PathConfig, Via};

/// Packets that a path is taken to have carried without loss before it was measured.
const BENEFIT: f64 = 100.0;

/// One interface of the host to one address of the anchor.
pub struct Path {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    pub(super) gateway: Option<IpAddr>,
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
    /// Outages in the averages of loss, up, down and round trip, once there was one.
    pub(super) outages: Option<Box<[Outages; 3]>>,
    pub(super) via: Option<Via>,
    /// Where its uplink went by the last report of that, since it died.
    pub(super) told_to: Option<u8>,
    /// When a doubt was told last.
    pub(super) doubt_told: Option<Time>,
    /// When the anchor was last told to send one by one.
    pub(super) uncut_told: Option<Time>,
    /// The largest inner packet that the anchor was told last; it may have missed it.
    pub(super) largest_told: u16,
    /// When another path last asked on behalf of this one, which was in doubt.
    pub(super) helped: Option<Time>,
    /// Since when it is down.
    pub(super) down_at: Option<Time>,
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
        earlier(earlier(earlier(client, offer), follow), self.sizes_deadline())
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

    /// The index and time constant of the longest average. An idle path has only its probes to count: over a short time
    /// one lost probe would look like a bad network, so this average judges loss.
    pub(super) fn longest(&self) -> (usize, Tau) {
        let taus = self.keepalive().taus.iter().copied().enumerate();
        taus.max_by_key(|(_, tau)| tau.fall).unwrap_or((0, Tau::symmetric(Span::ZERO)))
    }

    /// The longest averages of loss, as far as there are any: up, down, round trip.
    pub(super) fn losses(&self) -> [Option<f64>; 3] {
        let Some(e) = self.client.as_ref().map(Client::estimates) else { return [None; 3] };
        let index = self.longest().0;
        [&e.owl_up, &e.owl_down, &e.rtl].map(|v| v.get(index).or(v.first()).copied())
    }

    pub(super) fn view(&self, number: u8) -> PathView {
        let estimates = self.client.as_ref().map(Client::estimates);
        let first = |v: &[f64]| v.first().copied();
        let averages = self.losses();
        let outages = estimates.map_or(0, |e| e.transitions);
        // A young path has lost one packet or none: until it has carried some, it gets the benefit
        // of the doubt.
        let loss = |which: usize, packets: Counted| {
            let lost = packets.sent.saturating_sub(packets.received) as f64;
            let cautious = lost / (packets.sent as f64 + BENEFIT);
            // The counts have the packets of an outage, which is not loss: before the first average
            // they say nothing about a path that has been down.
            let unmeasured = if outages > 0 { 0.0 } else { cautious };
            averages[which]
                .map_or(unmeasured, |average| self.without_outages(which, average).min(cautious))
        };
        let (loss_up, loss_down) = match (estimates, self.client.as_ref()) {
            // The split is unknown: half in each direction, which is right for small equal losses.
            (Some(_), Some(client)) if self.keepalive().mode == Mode::RoundTripLoss => {
                let half = loss(2, client.round_trips()) / 2.0;
                (half, half)
            }
            (Some(e), _) => (loss(0, e.up), loss(1, e.down)),
            (None, _) => (0.0, 0.0),
        };
        PathView {
            id: PathId(number),
            usable: self.is_up(),
            rtt_s: estimates.and_then(|e| first(&e.rtt_ewma)),
            loss_up,
            loss_down,
            // One direction has about half of what a round trip shows.
            jitter_s: estimates.map_or(0.0, |e| e.rtt_jitter / 2.0),
            rate_bps: None,
            price: self.config.price,
            since: self.usable_since,
            preference: self.config.preference,
        }
    }
}
