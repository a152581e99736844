//! Reasons why the anchor is unreachable, in words for the operator.

use anyhow::anyhow;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;
use segue_clock::Time;
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT};
use tracing::{info, warn};

use crate::seldom::Seldom;
use crate::signalling;

/// The reasons since the anchor was last reached.
#[derive(Default)]
pub(super) struct Unreached {
    told: Seldom,
    /// The last one.
    last: Option<(String, Time)>,
}

impl Unreached {
    /// Notes why an attempt failed.
    pub(super) fn note(&mut self, now: Time, why: String) {
        self.log(now, &why);
        self.last = Some((why, now));
    }

    /// Logs a reason; repeats are rate-limited.
    pub(super) fn log(&mut self, now: Time, why: &str) {
        if self.told.is_due(now, why) {
            warn!("{why}; trying again");
        }
    }

    /// The registration succeeded.
    pub(super) fn reached(&mut self) {
        if self.last.take().is_some() {
            info!("the anchor is reached");
        }
        self.told.clear();
    }

    /// The last known reason why the anchor is unreachable, and since when.
    pub(super) fn why(&self) -> Option<(&str, Time)> {
        self.last.as_ref().map(|(why, at)| (why.as_str(), *at))
    }
}

/// The reason if no answer arrived over these ways.
pub(super) fn no_answer(ways: &str) -> String {
    format!(
        "no answer from the anchor at {ways}: is it running, and do firewalls let UDP {SIGNAL_PORT} and {TUNNEL_PORT} through?"
    )
}

/// The reason if signalling passes and packets of paths do not.
pub(super) fn no_path(port: u16) -> String {
    format!(
        "no path works: the anchor's signalling answers and its UDP {port} does not; let UDP {port} through the \
         firewalls at the anchor and on the way"
    )
}

/// Why an attempt has failed, including its way.
pub(super) fn unreached(error: ConnectionError, way: &str) -> anyhow::Error {
    match error {
        ConnectionError::TimedOut => anyhow!(no_answer(way)),
        ConnectionError::TransportError(error) if is_of_another_authority(error.code) => {
            anyhow!(
                "another anchor than the one of this host's join line answers at {way}: its certificate is of \
                 another authority; correct the address, or run `segue enroll` at that anchor and start with its line"
            )
        }
        error => {
            let why = signalling::why_ended(&error);
            anyhow!("no connection with the anchor at {way}: {why}")
        }
    }
}

/// Returns whether another authority than the join line's signed the anchor's certificate. All authorities have the
/// same name, so the mismatch appears in the signature.
fn is_of_another_authority(code: TransportErrorCode) -> bool {
    [AlertDescription::UnknownCA, AlertDescription::DecryptError]
        .into_iter()
        .any(|alert| code == TransportErrorCode::crypto(alert.into()))
}
