//! Who is who: the anchor's certificate authority, the hosts' credentials and the line that carries
//! them from `segue enroll` to `segue host --join`.
//!
//! The anchor signs everything itself: its own certificate, which hosts check against the authority's
//! in their join line, and one certificate per host, which the anchor finds in its list of enrolled
//! hosts. TLS does the checking; nothing here verifies a signature.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

/// The name that the anchor's certificate carries and hosts ask for.
pub const ANCHOR_NAME: &str = "anchor.segue.invalid";
/// What a join line begins with.
const PREFIX: &str = "segue1:";
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
        let anchor = sign(&authority, ANCHOR_NAME, ExtendedKeyUsagePurpose::ServerAuth)?;
        Ok(Authority { authority, anchor })
    }

    /// Credentials for the host `name`.
    pub fn enroll(&self, name: &str) -> anyhow::Result<Credentials> {
        sign(
            &self.authority,
            &format!("{name}.host.segue.invalid"),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }
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

fn sign(
    authority: &Credentials,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> anyhow::Result<Credentials> {
    let authority_key = KeyPair::try_from(authority.key.as_slice())
        .context("the certificate authority's key is unreadable")?;
    let issuer = Issuer::new(authority_params()?, authority_key);
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = named(name);
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Credentials { certificate: certificate.der().to_vec(), key: key.serialize_der() })
}

/// What a host needs to join an anchor. Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The host's name at the anchor.
    pub name: String,
    /// Where the anchor listens for signalling: `address:port`, best first.
    pub anchor: Vec<std::net::SocketAddr>,
    /// The authority's certificate.
    pub authority: Vec<u8>,
    /// The host's credentials.
    pub host: Credentials,
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

/// CRC-32 as in Ethernet (IEEE 802.3): it finds slips of the copyist, not forgeries, which TLS finds.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// Whether `name` may name a host: letters, digits, `-` and `_`, at most 40 characters.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        bail!("{name:?} cannot name a host: use 1 to 40 letters, digits, '-' or '_'");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join() -> Join {
        let authority = Authority::generate().unwrap();
        Join {
            name: "laptop".into(),
            anchor: vec!["192.0.2.1:5006".parse().unwrap()],
            authority: authority.authority.certificate.clone(),
            host: authority.enroll("laptop").unwrap(),
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
        let join = join();
        let authority = Authority::generate().unwrap();
        let shown = format!("{join:?} {authority:?} {:?}", join.host);
        for key in [&join.host.key, &authority.authority.key, &authority.anchor.key] {
            assert!(!shown.contains(&format!("{key:?}")), "{shown}");
        }
        assert!(shown.contains("laptop"));
    }

    #[test]
    fn names_that_could_confuse_are_refused() {
        for bad in ["", "a b", "a\n", "é", "a/b", &"x".repeat(41)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("robot-7_b").is_ok());
    }
}
