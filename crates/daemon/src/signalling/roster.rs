//! The hosts that an anchor lets in, checked by TLS: a removed host is refused within the
//! handshake.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The enrolled hosts: names by certificate. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Roster(Arc<RwLock<BTreeMap<Vec<u8>, String>>>);

impl Roster {
    /// The host with this certificate.
    pub fn get(&self, certificate: &[u8]) -> Option<String> {
        self.read().get(certificate).cloned()
    }

    /// Lets a host in.
    pub fn insert(&self, certificate: Vec<u8>, name: String) {
        self.write().insert(certificate, name);
    }

    /// Stops accepting a certificate.
    pub fn remove(&self, certificate: &[u8]) {
        self.write().remove(certificate);
    }

    /// Number of certificates.
    pub fn count(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Vec<u8>, String>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Vec<u8>, String>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts certificates that `signed` accepts and the roster lists.
#[derive(Debug)]
pub(super) struct Listed {
    /// Checks a certificate's issuer, validity and usage.
    pub signed: Arc<dyn ClientCertVerifier>,
    /// The list.
    pub roster: Roster,
}

impl ClientCertVerifier for Listed {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        match self.roster.get(end_entity) {
            Some(_) => Ok(verified),
            None => Err(Error::InvalidCertificate(CertificateError::Revoked)),
        }
    }

    fn offer_client_auth(&self) -> bool {
        self.signed.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
