//! What the store holds of hosts. Times are seconds since 1970.

use std::net::IpAddr;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::identity::Issued;

/// A join line that its host has not used yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Invitation {
    /// SHA-256 of its token.
    pub token: [u8; 32],
    pub from_s: u64,
    pub until_s: u64,
}

/// An enrolled host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Host {
    pub since_s: u64,
    /// SHA-256 of the token it was enrolled with.
    pub token: [u8; 32],
    /// The certificate it shows.
    pub current: Certificate,
    /// The certificate it was given and has not shown yet.
    pub next: Option<Certificate>,
}

impl Host {
    /// The certificates that it may show.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        [&self.current].into_iter().chain(&self.next)
    }
}

/// A host's certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Certificate {
    pub der: Vec<u8>,
    /// The public key in it.
    pub key: Vec<u8>,
    pub from_s: u64,
    pub until_s: u64,
}

impl Certificate {
    pub(super) fn of(issued: Issued, from_s: u64, until_s: u64) -> Certificate {
        Certificate { der: issued.certificate, key: issued.key, from_s, until_s }
    }

    /// Two thirds of its lifetime are over.
    pub(super) fn is_due(&self, now_s: u64) -> bool {
        let lifetime_s = self.until_s.saturating_sub(self.from_s);
        now_s >= self.from_s.saturating_add(lifetime_s / 3 * 2 + lifetime_s % 3 * 2 / 3)
    }
}

/// A host's epoch and addresses, and when it registered last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub epoch: u64,
    pub inner: Vec<IpAddr>,
    pub seen_s: Option<u64>,
}

/// A value as it is stored.
pub(crate) fn encoded<T: Serialize>(value: &T) -> anyhow::Result<Vec<u8>> {
    postcard::to_allocvec(value).context("a value that cannot be stored")
}
