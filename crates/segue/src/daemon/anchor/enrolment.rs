//! Who may register: the anchor's authority and the enrolled hosts, in the store.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use segue_store::{Store, StoreExt};

use crate::identity::{Authority, Join, check_name};

/// Table of the anchor's own secrets.
const OWN: &str = "anchor";
/// Key of the authority in it.
const AUTHORITY: &str = "authority";
/// Table of enrolled hosts: name to certificate.
const HOSTS: &str = "hosts";
/// Table of what must outlive the anchor, per host.
pub const LEASES: &str = "leases";

/// The authority and the enrolled hosts.
pub struct Enrolment {
    authority: Authority,
    /// Name by certificate.
    names: BTreeMap<Vec<u8>, String>,
}

impl Enrolment {
    /// What the store holds; an authority is made at the first start.
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
        let hosts = store.list(HOSTS).context("the list of enrolled hosts is unreadable")?;
        let names = hosts.into_iter().map(|(name, certificate)| (certificate, name)).collect();
        Ok(Enrolment { authority, names })
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host with this certificate.
    pub fn name_of(&self, certificate: &[u8]) -> Option<&str> {
        self.names.get(certificate).map(String::as_str)
    }

    /// Enrols a host; an earlier enrolment of the same name ends.
    pub fn add(
        &mut self,
        store: &impl Store,
        name: &str,
        addresses: Vec<SocketAddr>,
    ) -> anyhow::Result<Join> {
        check_name(name)?;
        if addresses.is_empty() {
            bail!("the anchor has no address that a host could reach; name one with --at ADDRESS");
        }
        let host = self.authority.enroll(name)?;
        // An epoch that somebody with the earlier credentials chose must not lock the host out.
        store.delete(LEASES, name)?;
        store.put(HOSTS, name, &host.certificate)?;
        self.names.retain(|_, other| other != name);
        self.names.insert(host.certificate.clone(), name.to_owned());
        let authority = self.authority.authority.certificate.clone();
        Ok(Join { name: name.to_owned(), anchor: addresses, authority, host })
    }

    /// Ends a host's enrolment.
    pub fn remove(&mut self, store: &impl Store, name: &str) -> anyhow::Result<()> {
        if !self.names.values().any(|known| known == name) {
            bail!("{name:?} is not enrolled");
        }
        store.delete(HOSTS, name)?;
        store.delete(LEASES, name)?;
        self.names.retain(|_, known| known != name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_store::Embedded;

    #[test]
    fn a_new_enrolment_and_the_end_of_one_leave_nothing_of_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(&directory.path().join("anchor.db")).unwrap();
        let mut enrolment = Enrolment::load(&store).unwrap();
        let at = || vec!["192.0.2.1:5006".parse().unwrap()];
        let old = enrolment.add(&store, "laptop", at()).unwrap();
        store.put(LEASES, "laptop", b"epoch of a thief").unwrap();
        store.put(LEASES, "other", b"of another").unwrap();

        let new = enrolment.add(&store, "laptop", at()).unwrap();
        assert_eq!(enrolment.name_of(&old.host.certificate), None);
        assert_eq!(enrolment.name_of(&new.host.certificate), Some("laptop"));
        assert_eq!(store.get(LEASES, "laptop").unwrap(), None);

        store.put(LEASES, "laptop", b"again").unwrap();
        enrolment.remove(&store, "laptop").unwrap();
        assert_eq!(store.get(LEASES, "laptop").unwrap(), None);
        assert!(store.get(LEASES, "other").unwrap().is_some());
    }
}
