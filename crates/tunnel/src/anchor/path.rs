//! State of one path of the anchor.

use alloc::string::String;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Config as Keepalive, Server, State};
use segue_wire::signal::{PathGrant, PathOffer};
use segue_wire::{Encapsulation, Mode};

use crate::host::LEAST_INNER;
use crate::{PathSetup, Via};

/// A path as the anchor sees it.
pub struct AnchorPath {
    /// Number of the host that it belongs to.
    pub owner: u32,
    /// The host's path number.
    pub number: u8,
    /// The host's name for the path.
    pub name: String,
    pub(super) offer: PathOffer,
    pub(super) grant: PathGrant,
    /// The setup sent to the datapath.
    pub(super) setup: PathSetup,
    /// `Some(true)` if its requests arrive over IPv6; `None` before the first.
    pub(super) comes_v6: Option<bool>,
    pub(super) server: Server,
    /// True if the host sends requests on it.
    pub(super) on: bool,
    pub(super) down_at: Option<Time>,
    /// True if the host has ever reported that it hears this path.
    pub(super) heard_once: bool,
    /// True if the host has since reported that it does not hear it.
    pub(super) deaf: bool,
    pub(super) via: Option<Via>,
    /// The redirection target in the last report, while the downlink is dead.
    pub(super) told_to: Option<u32>,
    pub(super) quiet: bool,
    /// When the anchor last asked the host to send one by one.
    pub(super) uncut_told: Option<Time>,
    /// When the anchor last reported a router's packet size to the host.
    pub(super) too_big_told: Option<Time>,
    /// The instant for which its timer is set.
    pub(super) armed: Option<Time>,
}

impl AnchorPath {
    /// The keepalive server with the path's measurements.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns whether it takes less than [`LEAST_INNER`], by the host's latest offer.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.offer.largest < LEAST_INNER
    }

    /// The path that carries this one's downlink.
    #[must_use]
    pub fn via(&self) -> Option<Via> {
        self.via
    }

    /// K and T_KA in effect.
    #[must_use]
    pub fn keepalive(&self) -> (u8, Span) {
        self.server.in_force()
    }

    /// Which ends measure, as granted.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.grant.mode
    }

    /// Returns whether probes may ride on data, as granted.
    #[must_use]
    pub fn rides(&self) -> bool {
        self.grant.rides
    }

    /// The packet format, as granted.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.grant.encapsulation
    }

    /// Returns whether data packets have a UDP checksum, as granted.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.grant.checksums
    }

    /// Returns whether data packets need a checksum: packets that arrive over another protocol than the host sent them
    /// have been translated.
    pub(super) fn needs_checksums(&self, offer: &PathOffer) -> bool {
        offer.checksums || self.comes_v6.is_some_and(|v6| v6 != offer.v6)
    }

    /// T_Rmax of eq. 1 with the K and T_KA in effect and the largest RTT seen.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        let (k, t_ka) = self.keepalive();
        let rtt_max = self.server.estimates().rtt_max.unwrap_or(Span::ZERO);
        Keepalive { k, t_ka, ..self.server.config().clone() }.t_r_max(rtt_max)
    }

    /// Returns whether the anchor judges the path by its requests: not while the path's keepalive is off, nor if only
    /// the client measures.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.on && self.grant.mode != Mode::Client
    }

    /// Returns whether requests arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_watched() && self.server.state() == State::Up
    }

    /// Returns whether requests arrive or none are expected.
    pub(super) fn may_carry(&self) -> bool {
        self.is_up() || !self.is_watched()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.server.deadline().filter(|_| self.is_watched()).map(|(at, _)| at)
    }

    /// When to check the path. A reading moves the deadline of a live path, so the anchor checks at the last grid point
    /// before the deadline, where one wake-up serves many paths; without such a point it checks at the deadline. Grid
    /// points are a power of two of nanoseconds apart, at most T_KA/8, so that the grids of different periods share
    /// points.
    pub(super) fn look_at(&self, now: Time) -> Option<Time> {
        let deadline = self.deadline()?;
        let t_ka = self.keepalive().1;
        let apart = 1 << (t_ka.0 / 8).max(1).ilog2();
        let point = Time(deadline.0 / apart * apart);
        Some(if point > now { point } else { deadline })
    }

    /// The largest RTT seen, or a guess of 200 ms before the first sample.
    pub(super) fn rtt_max(&self) -> Span {
        self.server.estimates().rtt_max.unwrap_or(Span::from_millis(200))
    }

    /// How long the host may still report the path as heard after the anchor missed its requests, if both directions
    /// died at once: the host heard the last answer slightly later than the anchor heard the request, and its timeout
    /// is at most half a period longer.
    pub(super) fn doubt(&self) -> Span {
        self.keepalive().1 + self.rtt_max()
    }
}
