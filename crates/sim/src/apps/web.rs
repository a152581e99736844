//! Web browsing over TCP: pages, the objects in them, and the time to read them.

use segue_clock::Span;

use super::chance::Dist;
use super::stream::Period;

/// A browser at the first end, a server at the second.
#[derive(Clone, Debug, PartialEq)]
pub struct WebConfig {
    /// Bytes of a page's main object.
    pub main_bytes: Dist,
    /// Objects embedded in a page.
    pub objects: Dist,
    /// Bytes of an embedded object.
    pub object_bytes: Dist,
    /// Seconds from the arrival of the main object to the requests of the embedded ones.
    pub parsing_s: Dist,
    /// Seconds from the end of a page to the request of the next.
    pub reading_s: Dist,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Connections over which the browser fetches objects at the same time.
    pub connections: u32,
    /// Pages after which the browser stops; `None`: never.
    pub pages: Option<u64>,
    /// From when and until when pages are asked for.
    pub period: Period,
}

impl Default for WebConfig {
    /// 3GPP2's model of HTTP (cdma2000 Evaluation Methodology, C.R1002; the same in IEEE 802.16m's):
    /// lognormal main objects (mean 10 710 bytes) and embedded objects (mean 7 758 bytes), 5.64 of them in
    /// the mean, exponential parsing (0.13 s) and reading times (30 s), requests of 350 bytes.
    fn default() -> WebConfig {
        WebConfig {
            main_bytes: Dist::Lognormal { mu: 8.37, sigma: 1.37, min: 100.0, max: 2e6 },
            objects: Dist::Pareto { shape: 1.1, scale: 2.0, max: 55.0, less: 2.0 },
            object_bytes: Dist::Lognormal { mu: 6.17, sigma: 2.36, min: 50.0, max: 2e6 },
            parsing_s: Dist::Exponential { mean: 0.13 },
            reading_s: Dist::Exponential { mean: 30.0 },
            request_bytes: 350,
            connections: 4,
            pages: None,
            period: Period { start: Span::ZERO, stop: None },
        }
    }
}

impl WebConfig {
    /// The values of ns-2's example of `PagePool/WebTraf` (Feldmann, Gilbert, Huang and Willinger, Dynamics
    /// of IP traffic, 1999): pages of one object, of 10 packets of 1 000 bytes in the mean by a Pareto II of
    /// shape 1.2, a second apart in the mean.
    #[must_use]
    pub fn ns2() -> WebConfig {
        WebConfig {
            main_bytes: Dist::ParetoII { mean: 10_000.0, shape: 1.2 },
            objects: Dist::Constant(0.0),
            object_bytes: Dist::ParetoII { mean: 10_000.0, shape: 1.2 },
            parsing_s: Dist::Exponential { mean: 0.01 },
            reading_s: Dist::Exponential { mean: 1.0 },
            ..WebConfig::default()
        }
    }
}
