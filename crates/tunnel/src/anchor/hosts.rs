//! Registration: admits hosts, assigns their addresses and expires them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::Prefix;
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION, WaysOut};

use super::host::RegisteredHost;
use super::path::AnchorPath;
use super::paths::printable;
use super::{Anchor, Timer};
use crate::{AnchorOutput, ConnId, Ending, Known, Order, Output, Report};
use segue_clock::planted::fault;

impl Anchor {
    pub(super) fn on_message(&mut self, now: Time, conn: ConnId, message: FromHost) {
        let Some(name) = self.conns.get(&conn).cloned() else { return };
        if let FromHost::Register { version, epoch } = message {
            match self.register(now, conn, &name, version, epoch) {
                Ok(owner) => self.confirm(now, conn, owner),
                Err(reason) => self.refuse(now, conn, &name, reason),
            }
            return;
        }
        let owner = self.owner_of.get(&name).copied();
        let registered =
            owner.filter(|owner| self.hosts.get(owner).is_some_and(|h| h.conn == Some(conn)));
        let Some(owner) = registered else {
            self.refuse(now, conn, &name, Refusal::Protocol);
            return;
        };
        match message {
            FromHost::AddPath(mut offer) => {
                offer.name = printable(&offer.name);
                self.add_path(now, conn, owner, &offer);
            }
            FromHost::Keepalive { path, on } => self.switch(now, owner, path, on),
            FromHost::OneByOne { path } => self.one_by_one(owner, path),
            FromHost::CountFlows { round, flows } => self.count_flows(now, owner, round, &flows),
            FromHost::RemovePath { path } => self.remove_path(owner, path),
            FromHost::Leave => self.forget(owner),
            // The driver handles these: it has the keys.
            FromHost::Renew { .. } | FromHost::Register { .. } => {}
        }
    }

    fn refuse(&mut self, now: Time, conn: ConnId, name: &str, reason: Refusal) {
        self.out.push_back(Output::own(AnchorOutput::Signal(conn, FromAnchor::Refused { reason })));
        self.out.push_back(Output::own(AnchorOutput::Close(conn)));
        self.on_disconnected(now, conn);
        let report = Report::Refused { host: name.to_string(), reason };
        self.out.push_back(Output::report(report));
    }

    /// Returns the owner number of the host's registration: the existing one if the epoch is unchanged, a new one if it
    /// grew.
    fn register(
        &mut self,
        now: Time,
        conn: ConnId,
        name: &str,
        version: u16,
        epoch: u64,
    ) -> Result<u32, Refusal> {
        if version != SIGNAL_VERSION {
            return Err(Refusal::Version { speaks: SIGNAL_VERSION });
        }
        let standing = self.owner_of.get(name).copied();
        let last = self.known.get(name).map(|known| known.epoch);
        if let Some(last) = last.filter(|last| epoch < *last && !fault(3)) {
            let is_held = standing.and_then(|owner| self.hosts.get(&owner)?.conn).is_some();
            return Err(if is_held { Refusal::Held } else { Refusal::Behind { epoch: last } });
        }
        if let Some(owner) = standing
            && let Some(host) = self.hosts.get_mut(&owner)
            && host.epoch == epoch
        {
            if let Some(old) = host.conn.replace(conn)
                && old != conn
                && !fault(25)
            {
                self.conns.remove(&old);
                self.out.push_back(Output::own(AnchorOutput::Close(old)));
            }
            return Ok(owner);
        }
        let inner = self.addresses(now, name).ok_or(Refusal::NoAddress)?;
        if let Some(owner) = standing {
            // This connection carries the new registration and must not close with the old one.
            self.release(now, owner, conn);
            self.forget(owner);
        }
        Ok(self.insert(conn, name, epoch, inner))
    }

    /// Leases the host's previous addresses where the pools still have them, or new ones.
    fn addresses(&mut self, now: Time, name: &str) -> Option<Vec<IpAddr>> {
        let key = name.to_string();
        let leased = self.leases.iter_mut().map(|pool| pool.lease(now, &key, None));
        let inner = leased.map(|part| Some(part?.addr)).collect::<Option<Vec<IpAddr>>>();
        // If only the second pool is full, a new host must keep nothing of the first.
        if inner.is_none() && !self.known.contains_key(name) || fault(4) {
            self.leases.iter_mut().for_each(|pool| pool.release(now, &key));
        }
        inner
    }

    fn insert(&mut self, conn: ConnId, name: &str, epoch: u64, inner: Vec<IpAddr>) -> u32 {
        let owner = self.next_owner;
        self.next_owner = self.next_owner.wrapping_add(1).max(1);
        for address in &inner {
            self.owner_of_address.insert(*address, owner);
            self.out.push_back(Output::Order(Order::SetInner(*address, owner)));
        }
        let known = Known { name: name.to_string(), epoch, inner: inner.clone() };
        let before = self.known.insert(name.to_string(), known.clone());
        let written = before.is_none() || !fault(5);
        self.out.extend(written.then_some(Output::Driver(segue_ip::Output::Persist(known))));
        let report = Report::Registered { host: name.to_string(), inner: inner.clone() };
        self.out.push_back(Output::report(report));
        self.owner_of.insert(name.to_string(), owner);
        let host = RegisteredHost {
            name: name.to_string(),
            owner,
            inner,
            paths: BTreeMap::new(),
            conn: Some(conn),
            epoch,
            expires: None,
            heard_word: 0,
            word: None,
            calm: false,
            mtu: None,
            reinjected: None,
            counting: None,
        };
        self.hosts.insert(owner, Box::new(host));
        owner
    }

    fn confirm(&mut self, now: Time, conn: ConnId, owner: u32) {
        self.review_expiry(now, owner);
        let Some(host) = self.hosts.get(&owner) else { return };
        if let Some(ways_out) = self.ways_out {
            self.out
                .push_back(Output::own(AnchorOutput::Signal(conn, FromAnchor::WaysOut(ways_out))));
        }
        if let Some(bytes) = self.config.largest {
            let largest = FromAnchor::Largest { bytes };
            self.out.push_back(Output::own(AnchorOutput::Signal(conn, largest)));
        }
        let pools = [&self.config.pool_v4, &self.config.pool_v6].into_iter().flatten();
        let message = FromAnchor::Registered {
            inner: host.inner.clone(),
            anchor: pools.map(crate::Pool::anchor).collect(),
            tunnel_port: self.config.port,
        };
        self.out.push_back(Output::own(AnchorOutput::Signal(conn, message)));
    }

    /// Sends the default routes, if they changed, to every connected host.
    pub(super) fn on_ways_out(&mut self, ways_out: WaysOut) {
        if self.ways_out.replace(ways_out) == Some(ways_out) {
            return;
        }
        let conns = self.hosts.values().filter_map(|host| host.conn);
        let told = conns
            .map(|conn| Output::own(AnchorOutput::Signal(conn, FromAnchor::WaysOut(ways_out))));
        self.out.extend(told);
    }

    pub(super) fn on_disconnected(&mut self, now: Time, conn: ConnId) {
        let Some(name) = self.conns.remove(&conn) else { return };
        if let Some(owner) = self.owner_of.get(&name).copied() {
            self.release(now, owner, conn);
        }
    }

    /// Detaches a connection from the host's registration.
    fn release(&mut self, now: Time, owner: u32, conn: ConnId) {
        if let Some(host) = self.hosts.get_mut(&owner)
            && host.conn == Some(conn)
        {
            host.conn = None;
        }
        self.review_expiry(now, owner);
    }

    /// Starts or stops the host's expiry timer, which runs while the host has neither signalling nor a live path.
    pub(super) fn review_expiry(&mut self, now: Time, owner: u32) {
        let expiry = self.config.expiry;
        let Some(host) = self.hosts.get(&owner) else { return };
        let lives = host.conn.is_some()
            || host.paths.values().any(|slot| self.slots.get(slot).is_some_and(AnchorPath::is_up));
        if let Some(host) = self.hosts.get_mut(&owner) {
            let before = host.expires;
            host.expires = if lives && !fault(8) { None } else { before.or(Some(now + expiry)) };
            if host.expires != before {
                before.map(|at| self.timers.remove(&(at, Timer::Expiry(owner))));
                self.timers.extend(host.expires.map(|at| (at, Timer::Expiry(owner))));
            }
        }
    }

    pub(super) fn expire(&mut self, now: Time, owner: u32) {
        self.review_expiry(now, owner);
        if self.hosts.get(&owner).is_some_and(|host| host.expires.is_some()) {
            self.forget(owner);
        }
    }

    /// Ends a registration. The addresses stay reserved for the host.
    fn forget(&mut self, owner: u32) {
        let Some(host) = self.hosts.remove(&owner) else { return };
        if let Some(at) = host.expires {
            self.timers.remove(&(at, Timer::Expiry(owner)));
        }
        if let Some(last) = host.reinjected {
            self.timers.remove(&last.timer(owner));
        }
        let mut paths: Vec<(u32, bool)> = host
            .paths
            .values()
            .filter_map(|slot| Some((*slot, self.release_slot(*slot)?.via().is_none())))
            .collect();
        // Remove redirected paths first, so that no path is ever redirected to a removed one.
        paths.sort_by_key(|(_, direct)| *direct);
        for (slot, _) in paths {
            self.out.push_back(Output::Order(Order::RemovePath(slot)));
        }
        for address in &host.inner {
            self.owner_of_address.remove(address);
            self.out.push_back(Output::Order(Order::RemoveInner(*address)));
            if host.mtu.is_some() {
                self.out.push_back(Output::own(AnchorOutput::SetMtu(*address, None)));
            }
        }
        self.owner_of.remove(&host.name);
        if let Some(conn) = host.conn {
            self.conns.remove(&conn);
            self.out.push_back(Output::own(AnchorOutput::Close(conn)));
        }
        self.out.push_back(Output::report(Report::Gone { host: host.name }));
    }

    pub(super) fn on_end(&mut self, now: Time, name: &str, why: Ending) {
        let reason = if why == Ending::Expired { Refusal::Expired } else { Refusal::NotEnrolled };
        let conns: Vec<ConnId> =
            self.conns.iter().filter(|(_, host)| *host == name).map(|(conn, _)| *conn).collect();
        for conn in conns {
            self.refuse(now, conn, name, reason);
        }
        if let Some(owner) = self.owner_of.get(name).copied() {
            self.forget(owner);
        }
        match why {
            Ending::Removed => {
                self.known.remove(name);
                let (name, until) = (name.to_string(), now + self.config.rest);
                for pool in &mut self.leases {
                    let own: Vec<Prefix> = pool.of(&name).collect();
                    own.into_iter().for_each(|part| pool.withhold(part, until));
                }
            }
            Ending::Replaced => {
                if let Some(known) = self.known.get_mut(name) {
                    known.epoch = 0;
                }
            }
            Ending::Expired => {}
        }
    }
}
