//! Maintains the [translators](mod@super::translators) of a host's accesses.

use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, RouterOptions};
use tracing::warn;

use super::names::{self, Translation};
use super::translators::{Access, Asking, Ends, discover, needing, shows_none};
use super::{Daemon, Settings};

impl Daemon {
    /// Chooses the translators of accesses that need one, and queries name servers if no router advertises a prefix.
    pub(super) fn find_translators(&mut self, all: &[Device]) {
        let Settings { nameservers, common, .. } = &self.settings;
        let devices = needing(&self.anchors, all, &common.interfaces);
        self.translators.keep(&devices);
        let ends = Ends::new(&self.anchors, all);
        let reached = self.signalling.is_up();
        self.translators.choose(&ends, reached);
        for device in devices {
            let Some(access) = self.translators.accesses.get_mut(&device.interface.name) else {
                continue;
            };
            let advertised = self.translators.advertised.get(&access.index);
            if advertised.is_some_and(|known| known.keys().any(|prefix| ends.are_apart(prefix))) {
                access.asking = None;
                continue;
            }
            let servers =
                names::name_servers(nameservers, std::slice::from_ref(device), &common.interfaces);
            if access.asking.as_ref().is_some_and(|asking| asking.servers == servers) {
                continue;
            }
            let name = device.interface.name.clone();
            let asking = discover(
                (name, access.index),
                servers.clone(),
                ends.clone(),
                self.signalling.events(),
            );
            access.asking = Some(Asking { servers, task: self.signalling.spawn(asking) });
        }
    }

    /// Handles a name server's answer for an access, or the reason for having none.
    pub(super) fn on_translation(
        &mut self,
        interface: &str,
        found: &Result<Translation, String>,
    ) -> anyhow::Result<()> {
        let Some(access) = self.translators.accesses.get_mut(interface) else { return Ok(()) };
        match found {
            Ok(translation) => {
                access.why = Some(shows_none(&translation.by));
                access.answered = Some(translation.clone());
            }
            // Keep the last answer.
            Err(why) => access.why = Some(why.clone()),
        }
        let before = access.used.clone();
        let reached = self.signalling.is_up();
        self.translators.choose(&Ends::new(&self.anchors, &self.seen), reached);
        if self.translators.accesses.get(interface).is_some_and(|access| access.used != before) {
            self.use_seen()?;
        }
        let access = self.translators.accesses.get(interface);
        let why =
            access.filter(|access| access.used.is_none()).and_then(|access| access.why.as_ref());
        if let Some(why) = why {
            let line = format!(
                "{interface} has IPv6 alone, the anchor's address is of IPv4, and no translator (NAT64) is known there: {why}"
            );
            if !self.signalling.note_unreached(&line) && !self.is_noted(&line) {
                warn!("{line}");
            }
        }
        Ok(())
    }

    /// Handles the translators' prefixes in a router's options. The first prefix of an access takes effect at once,
    /// further ones at the next heartbeat, however many there are.
    pub(super) fn on_router_options(&mut self, options: &RouterOptions) -> anyhow::Result<()> {
        if !self.translators.advertise(monotonic(), options) {
            return Ok(());
        }
        let waits = |access: &Access| access.index == options.interface && access.used.is_none();
        let first = !self.translators.changed && self.translators.accesses.values().any(waits);
        self.translators.changed = true;
        if first { self.use_seen() } else { Ok(()) }
    }

    /// Drops the prefixes advertised at a link that is down: the next network may be another.
    pub(super) fn forget_advertised(&mut self, interface: u32) {
        self.translators.advertised.remove(&interface);
    }

    /// Drops the prefixes whose advertised lifetime has ended, and applies the changes since the last heartbeat.
    pub(super) fn expire_translators(&mut self) -> anyhow::Result<()> {
        let changed = std::mem::take(&mut self.translators.changed);
        let expired = self.translators.expire(monotonic()) && !self.translators.accesses.is_empty();
        if changed || expired { self.use_seen() } else { Ok(()) }
    }
}
