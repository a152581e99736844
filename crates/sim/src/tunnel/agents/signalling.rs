//! Passes outputs of the signalling to the network and to the machines.

use segue_tunnel::{Anchor, AnchorInput, Host, HostInput};

use super::super::packets::signalled;
use super::super::signal::{
    AnchorSignal, AnchorSignalOutput, HostSignal, HostSignalOutput, SIGNAL_PORT,
};
use super::anchor::AnchorRole;
use super::engine::Tunnels;
use super::host::HostRole;
use crate::Io;
use crate::role::Engine;

impl HostRole {
    pub(super) fn on_signal(
        &self,
        io: &mut Io<'_>,
        engine: &mut Tunnels<Host, HostSignal>,
        output: HostSignalOutput,
    ) {
        let input = match output {
            HostSignalOutput::Transmit { interface, to, datagram } => {
                let mut named = io.node.interfaces().filter(|i| i.name == interface);
                let found = named.find_map(|i| {
                    let own = i.addresses.iter().chain(&io.node.addresses);
                    let from = own.copied().find(|a| a.is_ipv4() == to.is_ipv4())?;
                    Some((i.index, from))
                });
                if let Some((index, from)) = found {
                    let from = (from, SIGNAL_PORT).into();
                    io.send_on(index, signalled(io.now, from, to, &datagram));
                }
                return;
            }
            HostSignalOutput::Up { interface, anchor } => {
                let anchor = self.config.anchor.iter().find(|known| known.ip() == anchor.ip());
                let Some(anchor) = anchor.copied() else { return };
                HostInput::SignalUp { interface, anchor }
            }
            HostSignalOutput::Message(message) => HostInput::Signal(message),
            HostSignalOutput::Down => HostInput::SignalDown,
        };
        engine.handle(io.now, input.into());
    }
}

impl AnchorRole {
    pub(super) fn on_signal(
        &mut self,
        io: &mut Io<'_>,
        engine: &mut Tunnels<Anchor, AnchorSignal>,
        output: AnchorSignalOutput,
    ) {
        let input = match output {
            AnchorSignalOutput::Transmit { from, to, datagram } => {
                io.send(signalled(io.now, from, to, &datagram));
                return;
            }
            AnchorSignalOutput::Connected { conn, host } => {
                if !self.enrolled.contains(&host) {
                    engine.signal.close(io.now, conn);
                    return;
                }
                engine.signal.limit(io.now, conn);
                self.admitted.insert(conn);
                AnchorInput::Connected { conn, host }
            }
            AnchorSignalOutput::Message { conn, message } => {
                self.messages += 1;
                if !self.admitted.contains(&conn) {
                    return;
                }
                AnchorInput::Signal { conn, message }
            }
            AnchorSignalOutput::Closed { conn } => {
                if !self.admitted.remove(&conn) {
                    return;
                }
                AnchorInput::Disconnected { conn }
            }
        };
        engine.handle(io.now, input.into());
    }
}
