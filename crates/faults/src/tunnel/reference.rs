//! The reference model, a simple account of the events: which addresses and epoch each host was assigned, and
//! since when its signalling is up.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_tunnel::Known;

use super::layout::REST;
use crate::Violation;

/// The reference model.
pub(super) struct Reference {
    hosts: Vec<Account>,
    /// Addresses of removed hosts, and the time until which they may not be reassigned.
    resting: Vec<(IpAddr, Time)>,
    pub anchor_began: Time,
}

/// State of one host.
#[derive(Clone, Debug)]
struct Account {
    /// Its addresses, from its first registration to the end of its enrolment.
    inner: Vec<IpAddr>,
    /// The epoch of its last confirmed registration.
    epoch: Option<u64>,
    /// Time since when both ends consider the registration valid.
    registered_since: Option<Time>,
}

impl Reference {
    pub(super) fn new(hosts: usize, start: Time) -> Reference {
        let account = Account { inner: Vec::new(), epoch: None, registered_since: None };
        Reference { hosts: vec![account; hosts], resting: Vec::new(), anchor_began: start }
    }

    pub(super) fn anchor_began(&mut self, now: Time) {
        self.anchor_began = now;
    }

    pub(super) fn epoch(&self, host: usize) -> Option<u64> {
        self.hosts[host].epoch
    }

    pub(super) fn inner(&self, host: usize) -> &[IpAddr] {
        &self.hosts[host].inner
    }

    pub(super) fn registered_since(&self, host: usize) -> Option<Time> {
        self.hosts[host].registered_since
    }

    pub(super) fn note_registered(&mut self, now: Time, host: usize, registered: bool) {
        let since = &mut self.hosts[host].registered_since;
        *since = if registered { since.or(Some(now)) } else { None };
    }

    /// Reserves its addresses for a while, and forgets its epochs.
    pub(super) fn unenrolled(&mut self, now: Time, host: usize) {
        let addresses = core::mem::take(&mut self.hosts[host].inner);
        self.resting.extend(addresses.into_iter().map(|address| (address, now + REST)));
        self.hosts[host].epoch = None;
    }

    /// The anchor confirms a host's registration: `known` is its stored record of the host, `running` the host's
    /// epoch if the message is on its current connection.
    pub(super) fn on_registered(
        &mut self,
        now: Time,
        host: usize,
        inner: &[IpAddr],
        (known, running): (Option<&Known>, Option<u64>),
    ) -> Result<(), Violation> {
        let twice = (0..self.hosts.len()).find(|other| {
            *other != host && self.hosts[*other].inner.iter().any(|a| inner.contains(a))
        });
        Violation::unless(twice.is_none(), "no address is given twice", || {
            format!("host {host} is given {inner:?}, which is host {twice:?}'s")
        })?;
        let early = self.resting.iter().find(|(a, until)| inner.contains(a) && now < *until);
        Violation::unless(early.is_none(), "the addresses of a removed host rest", || {
            format!("host {host} is given {inner:?}, of which {early:?} rests")
        })?;
        let own = &self.hosts[host].inner;
        Violation::unless(own.is_empty() || own == inner, "a host has its address again", || {
            format!("host {host} is given {inner:?}, and had {own:?}")
        })?;
        let epoch = |known: &Known| running.is_none_or(|epoch| epoch == known.epoch);
        let written = known.is_some_and(|known| known.inner == inner && epoch(known));
        Violation::unless(written, "written down before told", || {
            format!("host {host} of epoch {running:?} is told {inner:?}, written down is {known:?}")
        })?;
        let account = &mut self.hosts[host];
        account.inner = inner.to_vec();
        account.epoch = account.epoch.max(known.map(|known| known.epoch));
        Ok(())
    }
}
