//! Samples of a host's paths for its event log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A sample of a path for the event log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// Its state, as `segue paths` shows it.
    pub state: String,
    /// Its round-trip time in milliseconds, averaged over the shortest time constant; `None` before the first
    /// measurement.
    pub rtt_ms: Option<f64>,
    /// Its share of packets lost towards the anchor, averaged over the shortest time constant.
    pub loss_up: Option<f64>,
    /// The same towards the host.
    pub loss_down: Option<f64>,
}

/// An access point, as the host's station receives it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WifiStatus {
    /// Its address (BSSID).
    pub access_point: String,
    /// Signal strength in dBm.
    pub signal_dbm: Option<i16>,
    /// Data rate to it in kbit/s.
    pub rate_kbps: Option<u32>,
}

/// As part of a sentence.
impl fmt::Display for WifiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.access_point)?;
        self.signal_dbm.map_or(Ok(()), |dbm| write!(f, " at {dbm} dBm"))
    }
}

/// As part of a sentence.
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
