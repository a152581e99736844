//! What an operator may set.

use alloc::collections::BTreeMap;

use segue_clock::Span;

use crate::Class;

/// The settings of [`classify`](crate::classify) and [`Steering`](crate::Steering).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// A path is better if its score is higher by more than this, in points of score.
    pub margin: f64,
    /// A better path that came up after the one in use, and less than `settle` ago, must stay better for this long
    /// before flows move to it: a path that returns is used again promptly. Doubled for each failure of that path
    /// beyond the first that is not yet forgiven.
    pub hold: Span,
    /// Between paths that have both been up for a while, the better one must stay better for this long: a passing queue
    /// or a few losses move nothing.
    pub settle: Span,
    /// The longest that `hold` grows to for a path that keeps failing.
    pub max_hold: Span,
    /// One failure of a path is forgiven per this span since its last one.
    pub forgive: Span,
    /// A path that was left because it lost packets must stay better for this long after it has recovered. Doubled for
    /// each further time that is not yet forgiven, up to ten times as long.
    pub loss_hold: Span,
    /// One such time is forgiven per this span since the last one.
    pub loss_forgive: Span,
    /// After a move to a better path, flows stay at least this long, unless it goes down.
    pub min_stay: Span,
    /// Class by differentiated services code point.
    pub dscp: BTreeMap<u8, Class>,
    /// Class by port, of whatever transport.
    pub ports: BTreeMap<u16, Class>,
}

impl Default for Config {
    /// Margin 5 points, which is two thirds of a doubling of TCP's rate in the bulk score and under a
    /// quarter of a quality class in the E-model; hold 0.5 s, growing to at most 30 s; settle 2 s; a failure is
    /// forgiven in 60 s; 60 s before a path that lost packets is used again, and ten minutes until that is forgiven; 2 s
    /// between two moves by choice.
    ///
    /// Code points by RFC 4594 (service classes) and RFC 8622 (lower effort). Streaming (CS3, AF3x)
    /// stays with [`Class::Default`]: it has buffers and needs rate as well.
    ///
    /// Ports are those whose protocol says what it is for. ssh also carries file transfers, but then
    /// its usual implementation marks them with a code point. Web ports are absent: default.
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
