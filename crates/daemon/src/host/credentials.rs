//! The host daemon's side of enrolment: refusals, and renewals of its certificate.

use anyhow::bail;
use segue_linux::clock::monotonic;
use segue_wire::signal::FromHost;
use tracing::info;

use super::Daemon;
use super::signal::Rejected;

impl Daemon {
    /// If the host has registered before, it logs the problem and carries on with what it has;
    /// otherwise the daemon ends.
    pub(super) fn on_rejected(&mut self, why: Rejected) -> anyhow::Result<()> {
        let advice = self.member.advice(why);
        if self.core.end.machine.inner().is_empty() {
            bail!(advice);
        }
        self.core.trouble.tell(monotonic(), &anyhow::anyhow!(advice));
        Ok(())
    }

    /// The certificate is due for renewal. After a failure the anchor asks again.
    pub(super) fn renew(&mut self) {
        match self.member.renewal() {
            Ok(request) => self.signal.send(FromHost::Renew { request }),
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }

    pub(super) fn on_renewed(&mut self, certificate: Vec<u8>) {
        match self.member.renewed(certificate).and_then(|()| self.member.shown()) {
            Ok(shown) => {
                self.signal.show(shown);
                info!("the host's certificate was renewed");
            }
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }
}
