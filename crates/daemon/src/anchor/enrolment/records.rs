//! Records of hosts in the store. Times are seconds since 1970.

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
    /// SHA-256 of the token with which it was enrolled.
    pub token: [u8; 32],
    /// The certificate that it presents.
    pub current: Certificate,
    /// The certificate that was issued to it and that it has not presented yet.
    pub next: Option<Certificate>,
}

impl Host {
    /// The certificates that it may present.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        [&self.current].into_iter().chain(&self.next)
    }
}

/// A host's certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Certificate {
    pub der: Vec<u8>,
    /// The public key in the certificate.
    pub key: Vec<u8>,
    pub from_s: u64,
    pub until_s: u64,
}

impl Certificate {
    pub(super) fn of(issued: Issued, from_s: u64, until_s: u64) -> Certificate {
        Certificate { der: issued.certificate, key: issued.key, from_s, until_s }
    }

    /// Returns whether two thirds of its lifetime have passed.
    pub(super) fn is_due(&self, now_s: u64) -> bool {
        let lifetime_s = self.until_s.saturating_sub(self.from_s);
        now_s >= self.from_s.saturating_add(lifetime_s / 3 * 2 + lifetime_s % 3 * 2 / 3)
    }
}

/// A host's epoch and addresses, and the time of its last registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub epoch: u64,
    pub inner: Vec<IpAddr>,
    pub seen_s: Option<u64>,
}

/// The stored form of a value.
pub(crate) fn encoded<T: Serialize>(value: &T) -> anyhow::Result<Vec<u8>> {
    postcard::to_allocvec(value).context("a value that cannot be stored")
}
