//! The process around a measurement: where metrics are served, and how its thread is scheduled.

use std::net::SocketAddr;

use segue_linux::thread::{Precision, prefer_precision};

use super::metrics;
use super::screen::{self, Output};

/// The process around a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// Where metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
    /// The measuring thread runs ahead of ordinary ones, if the system allows.
    pub(crate) realtime: bool,
}

impl Running {
    /// Starts serving metrics, if wanted. Call it before [`Running::scheduling`], which the new
    /// thread must not inherit.
    pub(crate) fn metrics(self) -> anyhow::Result<Option<metrics::Server>> {
        self.metrics.map(metrics::Server::start).transpose()
    }

    /// As [`Running::metrics`], and prints the address: the system may have chosen the port.
    pub(crate) fn told_metrics(self, output: Output) -> anyhow::Result<Option<metrics::Server>> {
        let metrics = self.metrics()?;
        if let Some(server) = &metrics {
            screen::metrics(output, server.address())?;
        }
        Ok(metrics)
    }

    /// Prepares the calling thread, and says how.
    pub(crate) fn scheduling(self) -> &'static str {
        if !self.realtime {
            return "ordinary";
        }
        match prefer_precision() {
            Precision::Realtime => "realtime",
            Precision::Nice => "nice",
            Precision::Ordinary => "ordinary",
        }
    }
}
