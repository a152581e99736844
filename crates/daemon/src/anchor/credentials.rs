//! The anchor daemon's side of enrolment: makes join lines, and issues, renews and ends certificates. Each step writes
//! an audit line to the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_linux::clock::{monotonic, realtime_s};
use segue_text::errors::Told;
use segue_text::units::date;
use segue_tunnel::{AnchorInput, ConnId, Ending};
use segue_wire::enrol::{EnrolRefusal, Enrolled, ToEnrol};
use segue_wire::signal::FromAnchor;
use tracing::{debug, info, warn};

use super::Daemon;
use super::enrolment::{LINE_LIFETIME, RenewError};
use crate::control::EnrolmentStatus;
use crate::identity::check_name;
use crate::locator::Locator;
use crate::run::Role;

/// Minimum time between log lines about refusals; refusals in between are counted.
const REFUSAL_PACE: Span = Span::from_secs(1);
/// Number of reviews within a certificate's lifetime.
const LOOKS: u32 = 12;

/// Interval of checks for due or expired certificates, for certificates of this lifetime.
pub(super) fn review_period(lifetime: Duration) -> Duration {
    (lifetime / LOOKS).clamp(Duration::from_secs(1), Duration::from_secs(3_600))
}

/// Data about connections and refusals that is not in the store.
#[derive(Default)]
pub(super) struct Credentials {
    /// Each connection's host, and the certificate that it has presented or has since received.
    shown: BTreeMap<ConnId, (String, Vec<u8>)>,
    /// When hosts without a connection were last seen, in seconds since 1970. At most one entry per enrolled host.
    seen: BTreeMap<String, u64>,
    last_refusal: Option<Time>,
    /// Refusals that were not logged.
    untold: u64,
}

impl Daemon {
    /// Makes a join line. Earlier credentials of that name stop working, and their epoch is reset.
    pub fn invite(
        &mut self,
        name: &str,
        addresses: Vec<Locator>,
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        let lifetime = valid_s.map_or(LINE_LIFETIME, Duration::from_secs);
        let now_s = realtime_s();
        self.settle()?;
        let join =
            self.enrolment.invite(self.store.as_ref(), name, addresses, (now_s, lifetime))?;
        self.core.ledger.forget(&name.into());
        info!(
            "audit: join line for {name} made, good until {}",
            date(now_s.saturating_add(lifetime.as_secs()))
        );
        self.feed(AnchorInput::End { host: name.to_owned(), why: Ending::Replaced })?;
        Ok(join.to_string())
    }

    /// Ends an enrolment.
    pub fn unenroll(&mut self, name: &str) -> anyhow::Result<String> {
        self.settle()?;
        self.enrolment.remove(self.store.as_ref(), name, realtime_s())?;
        self.core.ledger.forget(&name.into());
        self.credentials.seen.remove(name);
        info!("audit: {name} removed");
        self.feed(AnchorInput::End { host: name.to_owned(), why: Ending::Removed })?;
        Ok(format!("{name} is no longer enrolled"))
    }

    /// The enrolled hosts, and when each was last seen.
    pub fn enrolments(&self) -> anyhow::Result<Vec<EnrolmentStatus>> {
        let now_s = realtime_s();
        let mut all = self.enrolment.list(self.store.as_ref(), now_s)?;
        let connected: BTreeSet<&str> =
            self.credentials.shown.values().map(|(name, _)| name.as_str()).collect();
        for host in &mut all {
            host.connected = connected.contains(host.name.as_str());
            let seen_s = self.credentials.seen.get(&host.name).copied();
            host.seen_s = if host.connected { Some(now_s) } else { seen_s.max(host.seen_s) };
        }
        Ok(all)
    }

    /// Answers a client that wants to be enrolled.
    pub fn on_enrol(&mut self, asked: &ToEnrol, from: SocketAddr) -> Enrolled {
        let ToEnrol::Enrol { name, .. } = asked;
        let now_s = realtime_s();
        let lifetime = self.settings.certificate_lifetime;
        // Each attempt costs a certificate and a log line, and some cost a write. Attempts have a separate rate limit,
        // so that a client with a used line cannot suppress the host's other log lines.
        let paced = format!("{name} (its join line)");
        if self.enrolment.has_line_of(asked) && !self.core.events.may_tell(monotonic(), &paced) {
            return Enrolled::Refused { reason: EnrolRefusal::Later };
        }
        match self.enrolment.enrol(self.store.as_ref(), asked, (now_s, lifetime)) {
            Ok((certificate, new)) => {
                let what = if new { "enrolled" } else { "asks for its certificate again" };
                info!("audit: {name} {what} from {from}");
                Enrolled::Certificate { certificate }
            }
            Err(reason) => {
                let name = if check_name(name).is_ok() { name } else { "?" };
                self.tell_refusal(&format!("enrolment of {name}"), from, &reason);
                Enrolled::Refused { reason }
            }
        }
    }

    /// A host has presented an enrolled certificate.
    pub fn on_shown(&mut self, conn: ConnId, name: &str, certificate: Vec<u8>) {
        if let Err(error) = self.enrolment.shown(self.store.as_ref(), &certificate) {
            self.core.trouble.tell(monotonic(), &error);
        }
        self.credentials.shown.insert(conn, (name.to_owned(), certificate));
        self.ask_to_renew(conn, realtime_s());
    }

    /// The host's connection has ended.
    pub fn on_hidden(&mut self, conn: ConnId) {
        if let Some((name, _)) = self.credentials.shown.remove(&conn)
            && self.enrolment.knows(&name)
        {
            self.credentials.seen.insert(name, realtime_s());
        }
    }

    /// Finds certificates that are due for renewal, and those that have expired.
    pub fn review_certificates(&mut self) -> anyhow::Result<()> {
        let now_s = realtime_s();
        let conns: Vec<ConnId> = self.credentials.shown.keys().copied().collect();
        for conn in conns {
            self.ask_to_renew(conn, now_s);
        }
        let registered: BTreeSet<&str> =
            self.core.end.machine.hosts().map(|host| host.name.as_str()).collect();
        let over: Vec<String> = self
            .enrolment
            .expired(now_s)
            .filter(|name| registered.contains(name))
            .map(str::to_owned)
            .collect();
        for host in over {
            info!("audit: the certificate of {host} has expired");
            self.feed(AnchorInput::End { host, why: Ending::Expired })?;
        }
        Ok(())
    }

    fn ask_to_renew(&mut self, conn: ConnId, now_s: u64) {
        let shown = self.credentials.shown.get(&conn);
        if shown.is_some_and(|(_, shown)| self.enrolment.is_due(shown, now_s)) {
            self.signalling.send(conn, FromAnchor::Renew);
        }
    }

    /// Issues a host's next certificate, if the host was asked to renew.
    pub fn on_renew(&mut self, conn: ConnId, request: &[u8]) {
        let now_s = realtime_s();
        let shown = self.credentials.shown.get(&conn);
        let due = shown.filter(|(_, shown)| self.enrolment.is_due(shown, now_s));
        let Some((name, _)) = due.cloned() else {
            debug!("a host asked for a certificate out of turn");
            return;
        };
        let lifetime = self.settings.certificate_lifetime;
        match self.enrolment.renew(self.store.as_ref(), &name, request, (now_s, lifetime)) {
            Ok(certificate) => {
                let until_s = now_s.saturating_add(lifetime.as_secs());
                info!("audit: {name} renewed its certificate, good until {}", date(until_s));
                self.credentials.shown.insert(conn, (name, certificate.clone()));
                self.signalling.send(conn, FromAnchor::Renewed { certificate });
            }
            Err(RenewError::Asked(error)) => {
                let now = monotonic();
                if self.core.events.may_tell(now, &name) {
                    warn!("{name} gets no certificate: {}", Told(&error));
                }
            }
            Err(RenewError::Store(error)) => self.core.trouble.tell(monotonic(), &error),
        }
    }

    /// Logs a refusal.
    pub(super) fn tell_refusal(&mut self, what: &str, from: SocketAddr, reason: &dyn Display) {
        let now = monotonic();
        let credentials = &mut self.credentials;
        if credentials.last_refusal.is_some_and(|last| now.since(last) < REFUSAL_PACE) {
            credentials.untold += 1;
            return;
        }
        credentials.last_refusal = Some(now);
        let untold = match std::mem::take(&mut credentials.untold) {
            0 => String::new(),
            n => format!(" ({n} refusals before were not told)"),
        };
        warn!("audit: {what} from {from} refused: {reason}{untold}");
    }
}
