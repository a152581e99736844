//! The hosts that may register: the anchor's authority, the pending join lines and the enrolled hosts, all in the
//! store.
//!
//! The steps of a host: [`Enrolment::invite`] makes its join line with a token; [`Enrolment::enrol`] takes the token
//! with a certificate request, once; [`Enrolment::renew`] issues the next certificate. Each step is stored before the
//! host receives its answer. Repeating a step with the same key, after a lost answer or a crash on either side, gives
//! the same result.
//!
//! Times are seconds since 1970 on the anchor's clock. No other clock is used, so a host needs none.

mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::crypto::ring::default_provider;
use segue_store::{Store, StoreExt, Write};
use segue_text::errors::Told;
use segue_wire::enrol::{ENROL_VERSION, EnrolRefusal, TOKEN_LEN, ToEnrol, Token};
use sha2::{Digest, Sha256};

use self::records::{Certificate, Host, Invitation};
pub(super) use self::records::{Lease, encoded};
use crate::control::EnrolmentStatus;
use crate::identity::{Authority, Join, check_name};
use crate::locator::Locator;
use crate::signalling::Roster;

/// Table of the anchor's own secrets.
const OWN: &str = "anchor";
/// Key of the authority in it.
const AUTHORITY: &str = "authority";
/// Table of pending join lines: name to [`Invitation`].
const INVITATIONS: &str = "invitations";
/// Table of enrolled hosts: name to [`Host`].
const HOSTS: &str = "enrolled";
/// Table of the host data that must survive a restart of the anchor.
pub(super) const LEASES: &str = "registrations";
/// Table of resting addresses, with the time at which the rest ends.
const RESTING: &str = "resting";

/// How long a join line is valid unless the operator says otherwise.
pub const LINE_LIFETIME: Duration = Duration::from_secs(86_400);
/// How long the addresses of a removed host rest before another host may get them.
pub(super) const REST: Duration = Duration::from_secs(86_400);
/// Minimum time between two renewals of one host for different keys.
const RENEWAL_PACE_S: u64 = 60;

/// Why a host receives no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The request was wrong, or came at the wrong time.
    #[error("{0:#}")]
    Asked(#[source] anyhow::Error),
    /// The store failed.
    #[error("{0:#}")]
    Store(#[source] anyhow::Error),
}

/// The authority and the enrolled hosts.
pub struct Enrolment {
    authority: Authority,
    invitations: BTreeMap<String, Invitation>,
    hosts: BTreeMap<String, Host>,
    /// Name by certificate, as TLS asks too.
    names: Roster,
}

impl Enrolment {
    /// Loads the store; the first start creates the authority.
    pub fn load(store: &impl Store) -> anyhow::Result<Enrolment> {
        let known = store.get_as(OWN, AUTHORITY).context("the anchor's keys are unreadable")?;
        let authority = match known {
            Some(authority) => authority,
            None => {
                let authority = Authority::generate()?;
                store.put_as(OWN, AUTHORITY, &authority)?;
                authority
            }
        };
        let unreadable = "the list of enrolled hosts is unreadable";
        let invitations = store.list_as(INVITATIONS).context(unreadable)?.into_iter().collect();
        let hosts: BTreeMap<String, Host> =
            store.list_as(HOSTS).context(unreadable)?.into_iter().collect();
        let mut enrolment =
            Enrolment { authority, invitations, hosts: BTreeMap::new(), names: Roster::default() };
        for (name, host) in hosts {
            enrolment.keep(&name, host);
        }
        Ok(enrolment)
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host with this certificate.
    pub fn name_of(&self, certificate: &[u8]) -> Option<String> {
        self.names.get(certificate)
    }

    /// The enrolled hosts; this view follows every later change.
    pub fn roster(&self) -> Roster {
        self.names.clone()
    }

    /// Returns whether there is an enrolled host of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// The resting addresses, each with the time at which its rest ends, in seconds since 1970.
    pub fn resting(store: &impl Store) -> anyhow::Result<Vec<(IpAddr, u64)>> {
        let resting =
            store.list_as(RESTING).context("the list of resting addresses is unreadable")?;
        Ok(resting
            .into_iter()
            .filter_map(|(address, until)| Some((address.parse().ok()?, until)))
            .collect())
    }

    /// Makes a join line for a host, valid for `lifetime`. Ends an earlier line and an earlier enrolment of the name;
    /// the host keeps its inner addresses.
    pub fn invite(
        &mut self,
        store: &impl Store,
        name: &str,
        addresses: Vec<Locator>,
        (now_s, lifetime): (u64, Duration),
    ) -> anyhow::Result<Join> {
        check_name(name)?;
        if addresses.is_empty() {
            bail!("the anchor has no address that a host could reach; name one with --at ADDRESS");
        }
        let mut token = Token([0; TOKEN_LEN]);
        let random = default_provider().secure_random.fill(&mut token.0);
        random.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
        let until_s = now_s.saturating_add(lifetime.as_secs());
        let invitation = Invitation { token: digest(&token), from_s: now_s, until_s };
        let mut writes = vec![
            Write::Delete { table: HOSTS, key: name },
            // An epoch chosen by a holder of the earlier credentials must not lock the host out.
            Write::Delete { table: LEASES, key: name },
        ];
        let value = encoded(&invitation)?;
        writes.push(Write::Put { table: INVITATIONS, key: name, value: &value, lifetime: None });
        let lease: Option<Lease> = store.get_as(LEASES, name)?;
        let lease = lease.map(|lease| encoded(&Lease { epoch: 0, ..lease })).transpose()?;
        if let Some(value) = &lease {
            writes.push(Write::Put { table: LEASES, key: name, value, lifetime: None });
        }
        store.transact(&[], &writes)?;
        self.drop_host(name);
        self.invitations.insert(name.to_owned(), invitation);
        let authority = self.authority.authority.certificate.clone();
        Ok(Join { name: name.to_owned(), anchor: addresses, authority, token })
    }

    /// Returns whether a token belongs to a line of this name, used or not.
    pub fn has_line_of(&self, asked: &ToEnrol) -> bool {
        let ToEnrol::Enrol { name, token, .. } = asked;
        let shown = digest(token);
        self.hosts.get(name).is_some_and(|host| host.token == shown)
            || self.invitations.get(name).is_some_and(|line| line.token == shown)
    }

    /// Enrols the host that presents a token. Returns its certificate, valid for `lifetime`, and whether the
    /// certificate is new: a host that repeats the request with the same token and key receives the certificate that it
    /// already has.
    ///
    /// # Errors
    /// The reason for refusing the host. A client without one of our tokens learns nothing else from it.
    pub fn enrol(
        &mut self,
        store: &impl Store,
        asked: &ToEnrol,
        (now_s, lifetime): (u64, Duration),
    ) -> Result<(Vec<u8>, bool), EnrolRefusal> {
        let ToEnrol::Enrol { version, name, token, request } = asked;
        if *version != ENROL_VERSION {
            return Err(EnrolRefusal::Version { speaks: ENROL_VERSION });
        }
        let shown = digest(token);
        let until_s = now_s.saturating_add(lifetime.as_secs());
        let certify = || {
            let issued = self.authority.certify(name, request, until_s);
            issued.map_err(|error| {
                tracing::debug!("{name}: {error:#}");
                EnrolRefusal::Request
            })
        };
        if let Some(host) = self.hosts.get(name).filter(|host| host.token == shown) {
            let issued = certify()?;
            let own = host.certificates().find(|known| known.key == issued.key);
            return own.map(|own| (own.der.clone(), false)).ok_or(EnrolRefusal::Used);
        }
        let invitation = self.invitations.get(name).filter(|known| known.token == shown);
        let invitation = invitation.ok_or(EnrolRefusal::Unknown)?;
        if now_s >= invitation.until_s {
            return Err(EnrolRefusal::Expired);
        }
        let certificate = Certificate::of(certify()?, now_s, until_s);
        let der = certificate.der.clone();
        let host = Host { since_s: now_s, token: shown, current: certificate, next: None };
        let written = encoded(&host).and_then(|value| {
            let writes = [
                Write::Delete { table: INVITATIONS, key: name },
                Write::Put { table: HOSTS, key: name, value: &value, lifetime: None },
            ];
            Ok(store.transact(&[], &writes)?)
        });
        if let Err(error) = written {
            tracing::warn!("{name} cannot be enrolled: {}", Told(&error));
            return Err(EnrolRefusal::Later);
        }
        self.invitations.remove(name);
        self.keep(name, host);
        Ok((der, true))
    }

    /// Returns whether the host with this certificate should renew: two thirds of the lifetime have passed.
    pub fn is_due(&self, certificate: &[u8], now_s: u64) -> bool {
        self.names.get(certificate).and_then(|name| self.hosts.get(&name)).is_some_and(|host| {
            host.certificates().any(|known| known.der == certificate && known.is_due(now_s))
        })
    }

    /// Issues the next certificate of a host, for the key in the request. The present one is valid until the next is
    /// used, or until it expires. Repeating a request with the same key returns the same certificate.
    ///
    /// # Errors
    /// The request is malformed, follows another one too soon, or the certificate cannot be stored.
    pub fn renew(
        &mut self,
        store: &impl Store,
        name: &str,
        request: &[u8],
        (now_s, lifetime): (u64, Duration),
    ) -> Result<Vec<u8>, RenewError> {
        let asked = RenewError::Asked;
        let host = self.hosts.get(name).context("it is not enrolled").map_err(asked)?;
        let until_s = now_s.saturating_add(lifetime.as_secs());
        if let Some(next) = &host.next
            && !next.is_due(now_s)
        {
            let again = self.authority.certify(name, request, until_s).map_err(asked)?;
            if again.key == next.key {
                return Ok(next.der.clone());
            }
            if now_s < next.from_s.saturating_add(RENEWAL_PACE_S) {
                return Err(asked(anyhow::anyhow!("it asks for one after another")));
            }
        }
        let issued = self.authority.certify(name, request, until_s).map_err(asked)?;
        let next = Certificate::of(issued, now_s, until_s);
        let der = next.der.clone();
        let host = Host { next: Some(next), ..host.clone() };
        store.put_as(HOSTS, name, &host).map_err(|error| RenewError::Store(error.into()))?;
        self.keep(name, host);
        Ok(der)
    }

    /// Records that a host has presented this certificate. One from [`Enrolment::renew`] replaces the previous
    /// certificate.
    pub fn shown(&mut self, store: &impl Store, certificate: &[u8]) -> anyhow::Result<()> {
        let Some(name) = self.names.get(certificate) else { return Ok(()) };
        let host = self.hosts.get(&name).cloned();
        let Some(Host { next: Some(next), since_s, token, .. }) = host else { return Ok(()) };
        if next.der == certificate {
            let host = Host { since_s, token, current: next, next: None };
            store.put_as(HOSTS, &name, &host)?;
            self.keep(&name, host);
        }
        Ok(())
    }

    /// The hosts whose certificates have all expired.
    pub fn expired(&self, now_s: u64) -> impl Iterator<Item = &str> {
        let over = move |host: &Host| host.certificates().all(|known| now_s >= known.until_s);
        self.hosts.iter().filter(move |(_, host)| over(host)).map(|(name, _)| name.as_str())
    }

    /// Ends a host's enrolment or a pending join line. Its addresses rest before other hosts may get them.
    pub fn remove(&mut self, store: &impl Store, name: &str, now_s: u64) -> anyhow::Result<()> {
        if !self.hosts.contains_key(name) && !self.invitations.contains_key(name) {
            bail!("{name:?} is not enrolled");
        }
        let lease: Option<Lease> = store.get_as(LEASES, name)?;
        let addresses: Vec<String> =
            lease.iter().flat_map(|lease| &lease.inner).map(ToString::to_string).collect();
        let until = encoded(&now_s.saturating_add(REST.as_secs()))?;
        let mut writes: Vec<Write> =
            [INVITATIONS, HOSTS, LEASES].map(|table| Write::Delete { table, key: name }).into();
        writes.extend(addresses.iter().map(|address| Write::Put {
            table: RESTING,
            key: address,
            value: &until,
            lifetime: Some(REST),
        }));
        store.transact(&[], &writes)?;
        self.invitations.remove(name);
        self.drop_host(name);
        Ok(())
    }

    /// All hosts and join lines in the store, by name.
    pub fn list(&self, store: &impl Store, now_s: u64) -> anyhow::Result<Vec<EnrolmentStatus>> {
        let leases: BTreeMap<String, Lease> = store.list_as(LEASES)?.into_iter().collect();
        let hosts = self.hosts.iter().map(|(name, host)| {
            let lease = leases.get(name);
            let until_s = host.certificates().map(|known| known.until_s).max().unwrap_or(0);
            EnrolmentStatus {
                name: name.clone(),
                state: if now_s < until_s { "enrolled" } else { "expired" }.into(),
                inner: lease.iter().flat_map(|l| &l.inner).map(ToString::to_string).collect(),
                since_s: host.since_s,
                expires_s: until_s,
                connected: false,
                seen_s: lease.and_then(|lease| lease.seen_s),
            }
        });
        let waiting = self.invitations.iter().map(|(name, line)| EnrolmentStatus {
            name: name.clone(),
            state: if now_s < line.until_s { "invited" } else { "line expired" }.into(),
            inner: Vec::new(),
            since_s: line.from_s,
            expires_s: line.until_s,
            connected: false,
            seen_s: None,
        });
        let mut all: Vec<EnrolmentStatus> = hosts.chain(waiting).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    fn keep(&mut self, name: &str, host: Host) {
        self.drop_host(name);
        for certificate in host.certificates() {
            self.names.insert(certificate.der.clone(), name.to_owned());
        }
        self.hosts.insert(name.to_owned(), host);
    }

    fn drop_host(&mut self, name: &str) {
        for certificate in self.hosts.remove(name).iter().flat_map(Host::certificates) {
            self.names.remove(&certificate.der);
        }
    }
}

/// The store holds only the digest of a token. Comparing digests leaks nothing about the token through timing.
fn digest(token: &Token) -> [u8; 32] {
    Sha256::digest(token.0).into()
}
