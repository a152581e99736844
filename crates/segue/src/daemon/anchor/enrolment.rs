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
        self.names.retain(|_, known| known != name);
        Ok(())
    }
}
