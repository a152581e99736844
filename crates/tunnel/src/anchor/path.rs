//! One path of the anchor: what is known of it.

use alloc::string::String;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Config as Keepalive, Server, State};
use segue_wire::signal::{PathGrant, PathOffer};
use segue_wire::{Encapsulation, Mode};

use crate::host::LEAST_INNER;
use crate::{PathSetup, Via};

/// A path as the anchor has it.
pub struct AnchorPath {
    /// The host it belongs to, by number.
    pub owner: u32,
    /// The host's number for it.
    pub number: u8,
    /// The host's name for it.
    pub name: String,
    pub(super) offer: PathOffer,
    pub(super) grant: PathGrant,
    /// As the datapath has it.
    pub(super) setup: PathSetup,
    /// Its requests come over IPv6; `None` before the first.
    pub(super) comes_v6: Option<bool>,
    pub(super) server: Server,
    /// The host sends requests on it.
    pub(super) on: bool,
    pub(super) down_at: Option<Time>,
    /// The host has said at least once that it hears this path.
    pub(super) heard_once: bool,
    /// The host has said since that it does not.
    pub(super) deaf: bool,
    pub(super) via: Option<Via>,
    /// Where its downlink went by the last report, since it died.
    pub(super) told_to: Option<u32>,
    pub(super) quiet: bool,
    /// When the anchor last told the host to send one by one.
    pub(super) uncut_told: Option<Time>,
    /// When the anchor last told the host what a router had said.
    pub(super) too_big_told: Option<Time>,
    /// For when its timer is set.
    pub(super) armed: Option<Time>,
}

impl AnchorPath {
    /// The measurement.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// It takes less than every path should, by what the host said last.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.offer.largest < LEAST_INNER
    }

    /// The path that carries this one's downlink instead.
    #[must_use]
    pub fn via(&self) -> Option<Via> {
        self.via
    }

    /// K and T_KA in force.
    #[must_use]
    pub fn keepalive(&self) -> (u8, Span) {
        self.server.in_force()
    }

    /// Who measures, as agreed.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.grant.mode
    }

    /// Whether probes may ride on data, as agreed.
    #[must_use]
    pub fn rides(&self) -> bool {
        self.grant.rides
    }

    /// Form of the packets, as agreed.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.grant.encapsulation
    }

    /// Data have a UDP checksum, as agreed.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.grant.checksums
    }

    /// Whether they need one: where packets arrive over another protocol than they left the host, they are translated.
    pub(super) fn needs_checksums(&self, offer: &PathOffer) -> bool {
        offer.checksums || self.comes_v6.is_some_and(|v6| v6 != offer.v6)
    }

    /// T_Rmax of eq. 1 with K and T_KA in force and the largest RTT seen.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        let (k, t_ka) = self.keepalive();
        let rtt_max = self.server.estimates().rtt_max.unwrap_or(Span::ZERO);
        Keepalive { k, t_ka, ..self.server.config().clone() }.t_r_max(rtt_max)
    }

    /// Whether this end judges the path by its requests: not while its keepalive is off, nor where only the client
    /// measures.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.on && self.grant.mode != Mode::Client
    }

    /// Requests arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_watched() && self.server.state() == State::Up
    }

    /// Requests arrive, or none are expected.
    pub(super) fn may_carry(&self) -> bool {
        self.is_up() || !self.is_watched()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.server.deadline().filter(|_| self.is_watched()).map(|(at, _)| at)
    }

    /// When to look at the path: at the last point of a grid before its deadline, where a reading moves the deadline of
    /// a path that lives, so that one wake-up serves many paths; otherwise at the deadline. The points are a power of
    /// two of nanoseconds apart, at most T_KA/8, so that different grids share points.
    pub(super) fn look_at(&self, now: Time) -> Option<Time> {
        let deadline = self.deadline()?;
        let t_ka = self.keepalive().1;
        let apart = 1 << (t_ka.0 / 8).max(1).ilog2();
        let point = Time(deadline.0 / apart * apart);
        Some(if point > now { point } else { deadline })
    }

    /// The largest RTT, or a guess if there is none.
    pub(super) fn rtt_max(&self) -> Span {
        self.server.estimates().rtt_max.unwrap_or(Span::from_millis(200))
    }

    /// How long the host may still take the path for heard after this end has missed the requests, though both
    /// directions died at once: the host heard the last answer a little later than this end heard the request, and its
    /// time-out is at most half a period longer.
    pub(super) fn doubt(&self) -> Span {
        self.keepalive().1 + self.rtt_max()
    }
}
