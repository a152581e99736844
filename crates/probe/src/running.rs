//! The process that runs a measurement: the address of its metrics, and the scheduling of its thread.

use std::net::SocketAddr;

use segue_linux::thread::{Precision, prefer_precision};

use super::metrics;
use super::screen::{self, Output};

/// Metrics and scheduling of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// The address where metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Give the measuring thread precedence over ordinary threads, if the system allows it.
    pub(crate) realtime: bool,
}

impl Running {
    /// Starts serving metrics, if configured. Call it before [`Running::scheduling`], which the new thread must not
    /// inherit.
    pub(crate) fn metrics(self) -> anyhow::Result<Option<metrics::Server>> {
        self.metrics.map(metrics::Server::start).transpose()
    }

    /// Like [`Running::metrics`], and prints the address: the system may have chosen the port.
    pub(crate) fn told_metrics(self, output: Output) -> anyhow::Result<Option<metrics::Server>> {
        let metrics = self.metrics()?;
        if let Some(server) = &metrics {
            screen::metrics(output, server.address())?;
        }
        Ok(metrics)
    }

    /// Sets the scheduling of the calling thread; returns a word for it.
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
