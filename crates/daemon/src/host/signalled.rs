//! Handles the events of a host's signalling: enrolment, refusals, connections, the anchor's messages, and renewals of
//! the certificate.

use anyhow::bail;
use segue_linux::clock::{monotonic, realtime_s};
use segue_tunnel::Report;
use segue_wire::signal::{FromAnchor, FromHost, Refusal};
use tracing::info;

use super::Daemon;
use super::signal::{Rejected, SignallingEvent};
use crate::run::Role;

impl Daemon {
    pub(super) fn on_signalled(&mut self, event: SignallingEvent) -> anyhow::Result<()> {
        match &event {
            SignallingEvent::Enrolled { certificate } => {
                self.member.enrolled(certificate.clone())?;
                self.signalling.show(self.member.shown()?);
                info!("enrolled as {}", self.member.join().name);
            }
            SignallingEvent::Connected { round, established }
                if self.signalling.is_present(*round) =>
            {
                self.on_reached(established.anchor);
            }
            SignallingEvent::Found { addresses } => self.on_found(addresses)?,
            SignallingEvent::Translation { interface, found } => {
                self.on_translation(interface, found)?;
            }
            SignallingEvent::Rejected { round, why } if self.signalling.is_present(*round) => {
                self.on_rejected(*why)?;
            }
            SignallingEvent::Message { round, message } if self.signalling.is_present(*round) => {
                match message {
                    FromAnchor::Registered { .. } => {
                        self.signalling.registered();
                        self.member.note_rejection(None);
                    }
                    FromAnchor::Renew => self.renew(),
                    FromAnchor::Renewed { certificate } => self.on_renewed(certificate.clone()),
                    FromAnchor::WaysOut(ways_out) => self.on_ways_out(*ways_out)?,
                    _ => {}
                }
            }
            _ => {}
        }
        match self.signalling.filter(event) {
            Some(input) => self.feed(input),
            None => Ok(()),
        }
    }

    /// If the host has registered before, it logs the problem and carries on with what it has;
    /// otherwise the daemon ends.
    fn on_rejected(&mut self, why: Rejected) -> anyhow::Result<()> {
        let advice = self.member.advice(why, realtime_s());
        self.member.note_rejection(Some(&advice));
        if self.core.end.machine.inner().is_empty() {
            bail!(advice);
        }
        self.signalling.reject(advice);
        Ok(())
    }

    /// Requests the next certificate. After a failure the anchor asks again.
    fn renew(&mut self) {
        match self.member.renewal() {
            Ok(request) => self.signalling.send(FromHost::Renew { request }),
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }

    fn on_renewed(&mut self, certificate: Vec<u8>) {
        match self.member.renewed(certificate).and_then(|()| self.member.shown()) {
            Ok(shown) => {
                self.signalling.show(shown);
                info!("the host's certificate was renewed");
            }
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }

    /// Ends the daemon if the anchor refuses a host that has never registered.
    pub(super) fn check_refusal(&self, report: &Report) -> anyhow::Result<()> {
        // The registration may become free when its present holder leaves.
        if let Report::Refused { reason, .. } = report
            && *reason != Refusal::Held
            && self.core.end.machine.inner().is_empty()
        {
            bail!("the anchor refused this host: {reason}");
        }
        Ok(())
    }
}
