//! How a host's paths do, for its log of events.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a path does, for the log of events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// Its state, as `segue paths` shows it.
    pub state: String,
    /// Its shortest average of round-trip times in milliseconds; none before there is a measurement.
    pub rtt_ms: Option<f64>,
    /// Its shortest average of loss towards the anchor, a share.
    pub loss_up: Option<f64>,
    /// The same towards the host.
    pub loss_down: Option<f64>,
}

/// An access point, as the host's station hears it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WifiStatus {
    /// Its address (BSSID).
    pub access_point: String,
    /// Strength of its signal.
    pub signal_dbm: Option<i16>,
    /// Data rate to it.
    pub rate_kbps: Option<u32>,
}

/// As in a sentence.
impl fmt::Display for WifiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.access_point)?;
        self.signal_dbm.map_or(Ok(()), |dbm| write!(f, " at {dbm} dBm"))
    }
}

/// As in a sentence.
impl fmt::Display for PathSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        self.rtt_ms.map_or(Ok(()), |rtt| write!(f, ", {rtt:.1} ms"))?;
        for (loss, way) in [(self.loss_up, "up"), (self.loss_down, "down")] {
            loss.map_or(Ok(()), |loss| write!(f, ", loses {:.1} % {way}", loss * 100.0))?;
        }
        Ok(())
    }
}
