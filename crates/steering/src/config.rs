//! Settings for the operator.

use alloc::collections::BTreeMap;

use segue_clock::Span;

use crate::Class;

/// The settings of [`classify`](crate::classify) and [`Steering`](crate::Steering).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How much higher a path's score must be to count as better, in points.
    pub margin: f64,
    /// How long a path that came up after the one in use, and less than `settle` ago, must stay better before flows
    /// move to it. Short, so that a returning path is used again promptly. Doubled for each unforgiven failure of that
    /// path beyond the first.
    pub hold: Span,
    /// How long any other path must stay better, so that a transient queue or a few losses do not move flows.
    pub settle: Span,
    /// Upper limit of the doubled `hold`.
    pub max_hold: Span,
    /// One failure of a path is forgiven for each such period since the last failure.
    pub forgive: Span,
    /// How long a path that lost packets must stay better after it has recovered. Doubled for each further unforgiven
    /// loss, up to ten times this span.
    pub loss_hold: Span,
    /// One loss is forgiven for each such period since the last one.
    pub loss_forgive: Span,
    /// Minimum time on a path after a move to a better one, unless the path goes down.
    pub min_stay: Span,
    /// Class by DSCP.
    pub dscp: BTreeMap<u8, Class>,
    /// Class by port, for all transport protocols.
    pub ports: BTreeMap<u16, Class>,
}

impl Default for Config {
    /// Margin 5 points: two thirds of a doubling of TCP's rate in the bulk score, and less than a quarter of a quality
    /// class in the E-model. Hold 0.5 s, at most 30 s; settle 2 s; a failure is forgiven after 60 s. A path with packet
    /// loss is held for 60 s, and a loss is forgiven after ten minutes. 2 s between voluntary moves.
    ///
    /// DSCPs follow RFC 4594 (service classes) and RFC 8622 (lower effort). Streaming (CS3, AF3x) stays in
    /// [`Class::Default`]: it is buffered, and also needs rate.
    ///
    /// Only ports whose protocol determines the class are listed. ssh also carries file transfers, but the common
    /// implementation marks those with a DSCP. Web ports are not listed, so web traffic is in the default class.
    fn default() -> Config {
        let dscp = [
            (Class::Voice, &[46, 44, 40][..]), // EF, VOICE-ADMIT (RFC 5865), CS5
            // AF4x conferences, CS4 games, AF2x low-latency data, CS2, CS6 and CS7 management
            (Class::Interactive, &[34, 36, 38, 32, 18, 20, 22, 16, 48, 56]),
            (Class::Bulk, &[10, 12, 14, 8, 1]), // AF1x, CS1, LE
        ];
        let ports = [
            (Class::Voice, &[5060, 5061, 3478, 5349][..]), // SIP, STUN and TURN
            (Class::Interactive, &[22, 23, 53, 853, 123, 3389, 5900]), // ssh, DNS, NTP, RDP, VNC
            (Class::Bulk, &[20, 119, 873, 6881, 9418]),    // FTP data, NNTP, rsync, BitTorrent, git
        ];
        Config {
            margin: 5.0,
            hold: Span::from_millis(500),
            settle: Span::from_secs(2),
            max_hold: Span::from_secs(30),
            forgive: Span::from_secs(60),
            loss_hold: Span::from_secs(60),
            loss_forgive: Span::from_secs(600),
            min_stay: Span::from_secs(2),
            dscp: table(dscp),
            ports: table(ports),
        }
    }
}

fn table<K: Ord + Copy>(rows: [(Class, &[K]); 3]) -> BTreeMap<K, Class> {
    rows.iter().flat_map(|(class, keys)| keys.iter().map(|key| (*key, *class))).collect()
}
