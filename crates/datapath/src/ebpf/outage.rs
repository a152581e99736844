//! Informs the programs about a path's outages.

use segue_clock::Span;

use super::convert::{PATH_DEAF, SILENCE_TURN, kernel_silence};
use super::skel::{path_config, path_state};

/// The outage last reported to the programs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outage {
    /// The bit that distinguishes the last outage from the previous one.
    turn: u8,
    /// The host reports that it hears nothing.
    deaf: bool,
}

impl Outage {
    /// Records that the path is down after such a silence, or up.
    pub(super) fn set_down(&mut self, path: &mut path_config, silence: Option<Span>) {
        match silence {
            Some(silence) => {
                self.turn ^= SILENCE_TURN;
                path.silence = kernel_silence(silence) | self.turn;
                path.flags &= !PATH_DEAF;
            }
            // On the downlink the outage continues.
            None if self.deaf && path.silence != 0 => path.flags |= PATH_DEAF,
            None => path.silence = 0,
        }
    }

    /// Records whether the host reports that it hears nothing. This has no effect while the whole path is down.
    pub(super) fn set_deaf(&mut self, path: &mut path_config, state: &path_state, deaf: bool) {
        self.deaf = deaf;
        if deaf && path.silence == 0 {
            self.turn ^= SILENCE_TURN;
            path.silence = kernel_packets(unheard(state)) | self.turn;
            path.flags |= PATH_DEAF;
        } else if !deaf && path.flags & PATH_DEAF != 0 {
            path.silence = 0;
            path.flags &= !PATH_DEAF;
        }
    }
}

/// How many packets the host had missed when it reported that it hears nothing. Packets of the last round-trip
/// time do not count, because they could not have arrived by then.
fn unheard(state: &path_state) -> u32 {
    let since = state.tx_packets.wrapping_sub(state.down.sent);
    let (k, t_ka_ms) = (state.newest >> 48 & 0xff, state.newest >> 32 & 0xffff);
    let silent_us = (2 * k + 1) * t_ka_ms * 500;
    let whole_us = (silent_us + u64::from(state.rtt_last_us)).max(1);
    ((u64::from(since) * silent_us + whole_us / 2) / whole_us) as u32
}

/// A number of packets as the low bits of `silence`: exact up to 13, within a tenth beyond that, at most 55 000.
fn kernel_packets(packets: u32) -> u8 {
    (f64::from(packets).log2() * 8.0 + 1.0).ceil().clamp(1.0, f64::from(SILENCE_TURN - 1)) as u8
}
