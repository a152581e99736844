//! Identities: the anchor's certificate authority, the hosts' credentials, and the join line by which a host obtains
//! them, from `segue enroll` to `segue host --join`.
//!
//! The anchor signs everything itself: its certificate, which hosts check against the authority in their join line, and
//! the certificates of hosts, whose keys the hosts generate and keep. TLS does the checking. The only signature
//! verified here is the one of a certificate request, by rcgen.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use segue_wire::enrol::Token;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::locator::Locator;

/// The name that the anchor's certificate carries and hosts ask for.
pub const ANCHOR_NAME: &str = "anchor.segue.invalid";
/// Prefix of a join line.
const PREFIX: &str = "segue2:";
/// Prefix of the former join lines, which held a private key.
const FORMER_PREFIX: &str = "segue1:";
/// Longest join line accepted, in characters.
const MAX_LINE: usize = 16 * 1024;

/// A certificate with its private key, both DER (key in PKCS #8).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

impl fmt::Debug for Credentials {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// The anchor's certificate authority and its own credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The authority's self-signed certificate and key.
    pub authority: Credentials,
    /// The anchor's certificate, signed by it, and key.
    pub anchor: Credentials,
}

impl Authority {
    /// A new authority with a new anchor certificate.
    pub fn generate() -> anyhow::Result<Authority> {
        let key = KeyPair::generate().context("no key for the certificate authority")?;
        let certificate = authority_params()?.self_signed(&key)?;
        let authority =
            Credentials { certificate: certificate.der().to_vec(), key: key.serialize_der() };
        let key = KeyPair::generate()?;
        let params = params_of(ANCHOR_NAME, ExtendedKeyUsagePurpose::ServerAuth)?;
        let anchor = params.signed_by(&key, &issuer(&authority)?)?;
        let anchor = Credentials { certificate: anchor.der().to_vec(), key: key.serialize_der() };
        Ok(Authority { authority, anchor })
    }

    /// A certificate for the host `name` and the key in its request, valid until `until_s`, seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the request does not parse or its signature is wrong, or if its key is not of the kind
    /// that [`request`] makes.
    pub fn certify(&self, name: &str, request: &[u8], until_s: u64) -> anyhow::Result<Issued> {
        let request = CertificateSigningRequestParams::from_der(&request.into())
            .context("the request for a certificate makes no sense")?;
        // Only the key of the request is used; its other fields are ignored.
        let key = request.public_key;
        if *key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            bail!("the request for a certificate has a key of another kind than ECDSA P-256");
        }
        let name = format!("{name}.host.segue.invalid");
        let mut params = params_of(&name, ExtendedKeyUsagePurpose::ClientAuth)?;
        let until = i64::try_from(until_s).ok();
        params.not_after = until
            .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
            .context("the certificate's end lies too far ahead")?;
        let certificate = params.signed_by(&key, &issuer(&self.authority)?)?;
        Ok(Issued { certificate: certificate.der().to_vec(), key: key.der_bytes().to_vec() })
    }
}

/// A certificate for a key that is held elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// The public key in it.
    pub key: Vec<u8>,
}

/// When a certificate expires, in seconds since 1970; `None` if the certificate is malformed.
#[must_use]
pub fn expiry_of(certificate: &[u8]) -> Option<u64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok()
}

/// A new private key, PKCS #8 in DER.
pub fn new_key() -> anyhow::Result<Vec<u8>> {
    Ok(KeyPair::generate().context("no key")?.serialize_der())
}

/// A request for a certificate for this private key, PKCS #10 in DER.
pub fn request(key: &[u8]) -> anyhow::Result<Vec<u8>> {
    let key = KeyPair::try_from(key).context("the host's key is unreadable")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key)?.der().to_vec())
}

fn authority_params() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name = named("segue anchor authority");
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn params_of(name: &str, usage: ExtendedKeyUsagePurpose) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = named(name);
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn issuer(authority: &Credentials) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let key = KeyPair::try_from(authority.key.as_slice())
        .context("the certificate authority's key is unreadable")?;
    Ok(Issuer::new(authority_params()?, key))
}

/// The data with which a host enrols at an anchor, once. Secret until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The host's name at the anchor.
    pub name: String,
    /// The anchor's signalling addresses, best first.
    pub anchor: Vec<Locator>,
    /// The authority's certificate.
    pub authority: Vec<u8>,
    /// The token that the host presents to enrol.
    pub token: Token,
}

impl Join {
    /// The addresses in it.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |locator: &Locator| match locator {
            Locator::Address(address) => Some(*address),
            Locator::Name(..) => None,
        };
        self.anchor.iter().filter_map(address).collect()
    }

    /// The names in it, with their ports.
    #[must_use]
    pub fn names(&self) -> Vec<(String, u16)> {
        let name = |locator: &Locator| match locator {
            Locator::Address(_) => None,
            Locator::Name(name, port) => Some((name.clone(), *port)),
        };
        self.anchor.iter().filter_map(name).collect()
    }

    /// Returns whether `line` is the same invitation, regardless of its addresses.
    #[must_use]
    pub fn is_of(&self, line: &Join) -> bool {
        self.name == line.name && self.authority == line.authority && self.token == line.token
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_allocvec(self).map_err(|_| fmt::Error)?;
        bytes.extend_from_slice(&crc32(&bytes).to_be_bytes());
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Join {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Join> {
        let line = line.trim();
        if line.starts_with(FORMER_PREFIX) {
            bail!(
                "this join line is from an earlier version of segue; get a new one with `segue enroll \
                 NAME` at the anchor"
            );
        }
        let Some(text) = line.strip_prefix(PREFIX) else {
            bail!(
                "a join line begins with {PREFIX:?}; get one with `segue enroll NAME` at the anchor"
            );
        };
        if line.len() > MAX_LINE {
            bail!("the join line is longer than {MAX_LINE} characters");
        }
        let damaged = "the join line is damaged; copy it whole, it is one line";
        let bytes = URL_SAFE_NO_PAD.decode(text).context(damaged)?;
        let Some((bytes, check)) = bytes.split_last_chunk::<4>() else { bail!(damaged) };
        if crc32(bytes).to_be_bytes() != *check {
            bail!(damaged);
        }
        let (join, rest): (Join, _) = postcard::take_from_bytes(bytes).context(damaged)?;
        if !rest.is_empty() || join.anchor.is_empty() {
            bail!(damaged);
        }
        check_name(&join.name)?;
        Ok(join)
    }
}

/// CRC-32 as in Ethernet (IEEE 802.3): it detects copying errors. TLS detects forgeries.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// Returns whether `name` may name a host: letters, digits, `-` and `_`, at most 40 characters.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        bail!("{name:?} cannot name a host: use 1 to 40 letters, digits, '-' or '_'");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use segue_wire::enrol::TOKEN_LEN;

    use super::*;

    fn join() -> Join {
        let authority = Authority::generate().unwrap();
        Join {
            name: "laptop".into(),
            anchor: vec![Locator::parse("192.0.2.1:5006", 0).unwrap()],
            authority: authority.authority.certificate.clone(),
            token: Token([7; TOKEN_LEN]),
        }
    }

    #[test]
    fn a_join_line_is_one_line_and_reads_back() {
        let join = join();
        let line = join.to_string();
        assert!(!line.contains(char::is_whitespace));
        assert_eq!(format!(" {line}\n").parse::<Join>().unwrap(), join);
    }

    #[test]
    fn a_cut_or_foreign_line_is_refused_with_a_reason() {
        let line = join().to_string();
        for cut in [7, 8, line.len() / 2, line.len() - 1] {
            assert!(line[..cut].parse::<Join>().is_err(), "cut at {cut}");
        }
        let error = "hello".parse::<Join>().unwrap_err().to_string();
        assert!(error.contains("segue enroll"), "{error}");
    }

    #[test]
    fn a_single_wrong_character_is_found() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let line = join().to_string();
        for at in [20, line.len() / 2, line.len() - 3] {
            let other = if line.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut wrong = line.clone();
            wrong.replace_range(at..=at, other);
            let error = wrong.parse::<Join>().unwrap_err().to_string();
            assert!(error.contains("damaged"), "at {at}: {error}");
        }
    }

    #[test]
    fn a_line_whose_name_would_write_on_the_terminal_is_refused() {
        let line = Join { name: "\u{1b}[2J".into(), ..join() }.to_string();
        let error = line.parse::<Join>().unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn what_is_secret_is_not_shown_by_accident() {
        let join = Join { token: Token([0xee; TOKEN_LEN]), ..join() };
        let authority = Authority::generate().unwrap();
        let shown = format!("{join:?} {authority:?}");
        let token = format!("{:?}", [0xeeu8; TOKEN_LEN]);
        assert!(!shown.contains(token.trim_matches(['[', ']'])), "{shown}");
        for key in [&authority.authority.key, &authority.anchor.key] {
            assert!(!shown.contains(&format!("{key:?}")), "{shown}");
        }
        assert!(shown.contains("laptop"));
    }

    #[test]
    fn a_line_that_held_a_private_key_is_refused_with_advice() {
        let error = "segue1:BmxhcHRvcAEACgkAAY4n".parse::<Join>().unwrap_err().to_string();
        assert!(error.contains("earlier version") && error.contains("segue enroll"), "{error}");
    }

    #[test]
    fn a_certificate_is_for_the_key_that_asked_and_for_nothing_else() {
        let authority = Authority::generate().unwrap();
        let (key, other) = (new_key().unwrap(), new_key().unwrap());
        let asked = request(&key).unwrap();
        let issued = authority.certify("laptop", &asked, 2_000_000_000).unwrap();
        let own = KeyPair::try_from(key.as_slice()).unwrap();
        assert_eq!(issued.key, own.public_key_raw());
        assert_ne!(issued.key, KeyPair::try_from(other.as_slice()).unwrap().public_key_raw());
        // A request to be an authority, an anchor and another host gets an ordinary host's
        // certificate.
        let mut params = CertificateParams::new(vec![ANCHOR_NAME.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let greedy = params.serialize_request(&own).unwrap().der().to_vec();
        let modest = authority.certify("laptop", &greedy, 2_000_000_000).unwrap();
        assert_eq!(modest.key, issued.key);
        let name = ANCHOR_NAME.as_bytes();
        assert!(!modest.certificate.windows(name.len()).any(|bytes| bytes == name));
        assert_eq!(modest.certificate.len().abs_diff(issued.certificate.len()) / 4, 0);
        for at in [0, asked.len() / 2, asked.len() - 1] {
            let mut wrong = asked.clone();
            wrong[at] ^= 1;
            assert!(authority.certify("laptop", &wrong, 2_000_000_000).is_err(), "at {at}");
            assert!(
                authority.certify("laptop", &asked[..at], 2_000_000_000).is_err(),
                "cut at {at}"
            );
        }
        assert!(authority.certify("laptop", &asked, u64::MAX).is_err());
    }

    #[test]
    fn names_that_could_confuse_are_refused() {
        for bad in ["", "a b", "a\n", "é", "a/b", &"x".repeat(41)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("robot-7_b").is_ok());
    }
}
