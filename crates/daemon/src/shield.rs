//! Blocks strangers that send too much: a filter in the kernel passes only peers, for a second at a time. Without a
//! flood, strangers are heard, so that a gateway missing from the configuration is refused with a reason.

use std::os::fd::AsFd;

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Prefix};
use segue_linux::admit;
use segue_mobility::Pace;
use tracing::debug;

/// Burst of strangers' datagrams, and the interval of datagrams beyond it.
const AT_ONCE: u32 = 200;
const PERIOD: Span = Span::from_millis(5);
/// How long strangers are blocked.
const LASTS: Span = Span::from_secs(1);

/// The known peers, and whether others are blocked.
pub(crate) struct Shield {
    known: Vec<Prefix>,
    pace: Pace,
    /// Strangers have exceeded their rate since the last look.
    is_wanted: bool,
    until: Option<Time>,
}

impl Shield {
    pub(crate) fn new(known: Vec<Prefix>) -> Shield {
        Shield { known, pace: Pace::default(), is_wanted: false, until: None }
    }

    /// Counts a datagram against the strangers' rate.
    pub(crate) fn count(&mut self, now: Time, datagram: &Datagram) {
        let is_known = self.known.iter().any(|known| known.contains(datagram.from.0));
        self.is_wanted |= !is_known && !self.pace.take(now, PERIOD, AT_ONCE);
    }

    /// Blocks strangers, or unblocks them.
    pub(crate) fn look<'a, S: AsFd + 'a>(
        &mut self,
        now: Time,
        sockets: impl Iterator<Item = &'a S>,
    ) {
        let is_over = self.until.is_some_and(|until| now >= until);
        let wanted = std::mem::take(&mut self.is_wanted);
        let filter = |socket| match wanted {
            true => admit::only(socket, &self.known),
            false => admit::all(socket),
        };
        if !wanted && !is_over {
            return;
        }
        self.until = wanted.then(|| now + LASTS);
        for error in sockets.filter_map(|socket| filter(socket).err()) {
            debug!("strangers cannot be kept out, or let in again: {error}");
        }
    }
}
