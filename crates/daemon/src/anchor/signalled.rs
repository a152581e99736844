//! Handles the events of an anchor's signalling.

use segue_tunnel::AnchorInput;
use segue_wire::signal::FromHost;

use super::Daemon;
use super::signal::SignallingEvent;
use crate::run::Role;
use crate::signalling::Unacceptable;

impl Daemon {
    pub(super) fn on_signalled(&mut self, event: SignallingEvent) -> anyhow::Result<()> {
        match event {
            SignallingEvent::Connected { conn, certificate, established } => {
                // TLS has checked this too, but the host may have been removed since.
                let Some(host) = self.enrolment.name_of(&certificate) else {
                    established.refuse();
                    return Ok(());
                };
                self.signalling.admit(conn, &host, established);
                self.on_shown(conn, &host, certificate);
                self.feed(AnchorInput::Connected { conn, host })
            }
            SignallingEvent::Unacceptable { from, why } => {
                let why = match why {
                    Unacceptable::Removed => {
                        "its certificate is no longer enrolled; segue enroll NAME makes a join line for it"
                    }
                    Unacceptable::Expired => {
                        "its certificate is not valid at this time; segue enroll NAME makes a join line for it, unless \
                         the clock here is wrong"
                    }
                };
                self.tell_refusal("a host", from, &why);
                Ok(())
            }
            SignallingEvent::Enrol { asked, from, back } => {
                let _ = back.send(self.on_enrol(&asked, from));
                Ok(())
            }
            SignallingEvent::Message { conn, message: FromHost::Renew { request } } => {
                self.on_renew(conn, &request);
                Ok(())
            }
            SignallingEvent::Message { conn, message } => {
                self.feed(AnchorInput::Signal { conn, message })
            }
            SignallingEvent::Closed { conn } => {
                self.on_hidden(conn);
                self.signalling.forget(conn);
                self.feed(AnchorInput::Disconnected { conn })
            }
        }
    }
}
