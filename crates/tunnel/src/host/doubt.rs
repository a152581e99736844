//! Handles a path in doubt: the host sends again, over the best other path, the packets that left there and have not
//! been shown to arrive, and asks the anchor to do the same.
//!
//! The anchor notices from requests on the other path, which state an upper bound on the time since the host heard the
//! path in doubt. It then sends again what left on its other paths since then, over the path on which the request came.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::{ClientInput, ClientOutput};
use segue_steering::{Class, PathId, Steering};
use segue_wire::age;

use super::{Host, Path};
use crate::{Order, Output, Reinjection, Report};

/// Minimum time between two reports of doubt about a path.
const DOUBT_PACE: Span = Span::from_secs(10);
/// Minimum time between two requests on another path on behalf of a path in doubt: most doubts end sooner.
const HELP_PACE: Span = Span::from_millis(40);
/// How long requests still state a path's silence after it went down. This covers packets that left the anchor before
/// it knew.
const TOLD_FOR: Span = Span::from_secs(2);

impl Path {
    /// An upper bound on the time since this end heard the path, if the path is in doubt or went down recently. The
    /// bound is for the arrival of a packet sent now over a path of round-trip time `over`.
    fn unheard(&self, now: Time, over: Span) -> Option<Span> {
        let client = self.client.as_ref().filter(|client| client.config().doubt.is_some())?;
        let silent = now.since(client.heard_at());
        let fell = self.down_at.is_some_and(|at| now.since(at) < TOLD_FOR);
        if !client.in_doubt() && !fell {
            return None;
        }
        let rtt = client.estimates().rtt_max.unwrap_or(Span::ZERO);
        Some(silent + Span((rtt.0 + over.0) / 2))
    }
}

impl Host {
    /// Handles the start or end of a doubt: something was due and did not arrive. Streams pause often, so only some
    /// doubts are reported.
    pub(super) fn on_doubt(&mut self, now: Time, number: u8, doubt: bool) {
        // In doubt every answer matters, even without news: the sooner it arrives, the fewer questions follow.
        let up = self.paths.get(&number).is_some_and(|path| path.is_up() && !path.off);
        self.set_quiet(number, up && !doubt);
        let Some(path) = self.paths.get_mut(&number) else { return };
        let ended = if doubt {
            if path.doubt_told.is_some_and(|at| now.since(at) < DOUBT_PACE) {
                return;
            }
            path.doubt_told = Some(now);
            path.told_doubt_since = Some(now);
            None
        } else {
            let Some(since) = path.told_doubt_since.take() else { return };
            // The path went down, which is reported separately.
            if !up {
                return;
            }
            Some(now.since(since))
        };
        let path = path.name.to_string();
        self.out.push_back(Output::report(Report::PathDoubt { host: String::new(), path, ended }));
    }

    /// Handles a client's outputs. With each question in doubt the host sends packets again over another path, and
    /// every [`HELP_PACE`] it asks the anchor to do the same.
    pub(super) fn help_out(&mut self, now: Time, number: u8, outputs: &[ClientOutput]) {
        let asks = |output: &ClientOutput| matches!(output, ClientOutput::SendRequest(_));
        let Some(path) = self.paths.get(&number) else { return };
        let in_doubt = path.client.as_ref().is_some_and(|client| client.in_doubt());
        if in_doubt
            && outputs.iter().any(asks)
            && let Some(over) = self.beside(number)
        {
            self.reinject(now, number, over);
            let Some(path) = self.paths.get_mut(&number) else { return };
            if path.helped.is_none_or(|at| now.since(at) >= HELP_PACE) {
                path.helped = Some(now);
                self.feed(now, over, ClientInput::Ask);
            }
        }
    }

    /// The path that carries the packets of a path in doubt.
    fn beside(&self, number: u8) -> Option<u8> {
        let mut views = self.views();
        views.retain(|view| {
            let client = self.paths.get(&view.id.0).and_then(|path| path.client.as_ref());
            view.id.0 == number || client.is_some_and(|client| !client.in_doubt())
        });
        Steering::beside(Class::Default, &views, PathId(number)).map(|PathId(n)| n)
    }

    fn reinject(&mut self, now: Time, number: u8, over: u8) {
        self.expect_lost_copies(now, over);
        let client = self.paths.get(&number).and_then(|path| path.client.as_ref());
        let Some(since) = client.map(|client| client.proven_until()) else { return };
        let (slot, over) = (u32::from(number), u32::from(over));
        self.out.push_back(Output::Order(Order::Reinject(Reinjection { slot, over, since })));
    }

    /// Handles a path that went down: sends its packets again over another. If its downlink is dead, the host notifies
    /// the anchor at once over every live path. Paths whose outages K and T_KA decide leave this to the next request.
    pub(super) fn leave_behind(&mut self, now: Time, number: u8, heard: bool) {
        if self.paths.get(&number).is_none_or(|path| path.keepalive().doubt.is_none()) {
            return;
        }
        if let Some(over) = self.beside(number) {
            self.reinject(now, number, over);
        }
        let others = self.paths.iter();
        let others =
            others.filter(|(n, path)| **n != number && path.is_up() && !path.off && !heard);
        let others: Vec<u8> = others.map(|(n, _)| *n).collect();
        for other in others {
            self.feed(now, other, ClientInput::Ask);
        }
    }

    /// The age that a request over this path states about the others.
    pub(super) fn stated_age(&self, now: Time, over: u8) -> u8 {
        let rtt = |path: &Path| path.client.as_ref().and_then(|c| c.estimates().rtt_max);
        let rtt = self.paths.get(&over).and_then(rtt).unwrap_or(Span::ZERO);
        let others = self.paths.iter().filter(|(number, _)| **number != over);
        let longest = others.filter_map(|(_, path)| path.unheard(now, rtt)).max();
        longest.map_or(0, |silent| age::encode(silent.0))
    }
}
