//! The tables `[radius]` and `[[radius.server]]`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_aaa::{AaaProfile, Signed};
use segue_clock::Span;
use segue_grammar::values::{FOREVER, MIN, S};
use segue_grammar::{Duration, Flag, Within, described};
use segue_mobility::Backoff;
use segue_wire::radius::{ACCOUNTING_PORT, PORT};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use super::values::OnPort;
use crate::settings::{Radius, RadiusServer};

/// Most servers.
const SERVERS_MAX: usize = 16;

/// The keys of a `[radius]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RadiusKeys {
    /// Use the servers
    enabled: Flag<true>,
    /// Attributes of a gateway's requests, and those read in answers
    profile: RadiusProfileKey,
    /// User-Name in a gateway's requests
    user_name: UserNameKey,
    /// NAS-Identifier of this daemon, in addition to its address
    identifier: String,
    /// File with the User-Password of a gateway's requests
    #[schemars(extend("x-value" = "path", "x-unset" = "the User-Name; with `paper` that of paper 3's gateway"))]
    password_file: PathBuf,
    /// Time until the first retransmission to a server; then it doubles, up to four times the value
    timeout: Duration<{ S }, 100, { 30 * S }>,
    /// Requests to a server before the next server is tried
    tries: Within<3, 1, 10>,
    /// How long an unresponsive server is skipped; then one request tests it
    dead_time: Duration<MIN>,
    /// How long no server is asked again about a host that was refused, or about which none has answered
    hold_off: Duration<{ 10 * S }>,
    /// Refuse answers [without Message-Authenticator](pmip.md#who-hosts-are-radius): all (`true`), none (`false`), or of
    /// a server that has signed since the daemon started (a refusal only once it has signed a refusal)
    require_message_authenticator: SignedKey,
    /// Time between interim updates, unless the server sets it
    #[schemars(extend("x-rfc" = "Acct-Interim-Interval", "x-unset" = "no updates"))]
    interim: Option<Duration<0, S, FOREVER>>,
    /// The servers, in order of preference
    server: Vec<RadiusServerKeys>,
}

/// The keys of a `[[radius.server]]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RadiusServerKeys {
    /// Its address
    address: IpAddr,
    /// File with only the secret, at most 1000 bytes, readable only by its owner
    #[schemars(extend("x-value" = "path"))]
    secret_file: PathBuf,
    /// It is asked about hosts; `true` is port 1812
    #[serde(default)]
    authentication: OnPort<true>,
    /// Sessions of hosts are reported to it; `true` is port 1813
    #[serde(default)]
    accounting: OnPort<false>,
}

/// The form of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RadiusProfileKey {
    /// As in RFC 6572.
    #[default]
    Rfc6572,
    /// As in paper 3's gateway.
    Paper,
}

/// The User-Name that a gateway uses for a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum UserNameKey {
    /// As the profile defines it.
    #[default]
    Profile,
    /// The interface identifier of its link-layer address (modified EUI-64).
    Eui64,
}

/// Which answers must have a Message-Authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SignedKey(Signed);

impl Default for SignedKey {
    fn default() -> SignedKey {
        SignedKey(Signed::Auto)
    }
}

described!(SignedKey, { "enum": ["auto", true, false], "x-default": "auto" });

struct SignedVisitor;

impl Visitor<'_> for SignedVisitor {
    type Value = SignedKey;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("true, false or \"auto\"")
    }
    fn visit_bool<E: Error>(self, on: bool) -> Result<SignedKey, E> {
        Ok(SignedKey(if on { Signed::Always } else { Signed::Never }))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<SignedKey, E> {
        let is_auto = text == "auto";
        let wrong = || E::invalid_value(Unexpected::Str(text), &self);
        is_auto.then_some(SignedKey(Signed::Auto)).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for SignedKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SignedVisitor)
    }
}

impl RadiusKeys {
    /// The settings; `None` if RADIUS is disabled.
    ///
    /// # Errors
    /// The first invalid or missing key.
    pub fn validate(self) -> anyhow::Result<Option<Radius>> {
        if self.server.len() > SERVERS_MAX {
            bail!("radius: at most {SERVERS_MAX} servers");
        }
        let servers: Vec<RadiusServer> =
            self.server.into_iter().map(server).collect::<Result<_, _>>()?;
        if !self.enabled.0 {
            return Ok(None);
        }
        if servers.iter().all(|server| server.authentication.is_none()) {
            bail!("radius needs a [[radius.server]] that is asked about hosts");
        }
        if self.identifier.len() > 253 {
            bail!("identifier has more than 253 bytes");
        }
        let Duration(initial) = self.timeout;
        let longest = Span(initial.0.saturating_mul(4));
        Ok(Some(Radius {
            servers,
            profile: match self.profile {
                RadiusProfileKey::Rfc6572 => AaaProfile::Rfc6572,
                RadiusProfileKey::Paper => AaaProfile::Paper,
            },
            eui64: self.user_name == UserNameKey::Eui64,
            identifier: Some(self.identifier).filter(|name| !name.is_empty()),
            password_file: Some(self.password_file).filter(|file| !file.as_os_str().is_empty()),
            patience: Backoff { initial, longest, tries: Some(self.tries.get()) },
            dead_time: self.dead_time.0,
            hold_off: self.hold_off.0,
            require_message_authenticator: self.require_message_authenticator.0,
            interim: self.interim.map(|Duration(span)| span),
        }))
    }
}

fn server(keys: RadiusServerKeys) -> anyhow::Result<RadiusServer> {
    let RadiusServerKeys { address, secret_file, authentication, accounting } = keys;
    if address.is_unspecified() || address.is_multicast() {
        bail!("radius.server: {address} is no server's address");
    }
    if secret_file.as_os_str().is_empty() {
        return Err(anyhow::anyhow!("it is empty")).context("secret_file");
    }
    let (authentication, accounting) =
        (authentication.port(PORT), accounting.port(ACCOUNTING_PORT));
    if authentication.is_none() && accounting.is_none() {
        bail!("radius.server: {address} has nothing to do");
    }
    if authentication == accounting {
        bail!("radius.server: {address} has one port for authentication and accounting");
    }
    Ok(RadiusServer { address, secret_file, authentication, accounting })
}
