//! The tables `[radius]` and `[[radius.server]]`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_aaa::{AaaProfile, Signed};
use segue_clock::Span;
use segue_grammar::Duration;
use segue_mobility::Backoff;
use segue_wire::radius::{ACCOUNTING_PORT, PORT};
use serde::Deserialize;
use serde::de::{Error, Unexpected, Visitor};

use super::OnPort;
use crate::settings::{Radius, RadiusServer};

/// Most servers.
const SERVERS_MAX: usize = 16;

/// The keys of a `[radius]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RadiusKeys {
    /// Query servers about hosts, true.
    pub enabled: Option<bool>,
    /// The form of requests: `rfc6572` or `paper`; `rfc6572`.
    pub profile: Option<RadiusProfileKey>,
    /// The User-Name of a gateway's requests: `profile` for the profile's choice, or `eui64` for the interface
    /// identifier of the link-layer address; `profile`.
    pub user_name: Option<UserNameKey>,
    /// The NAS-Identifier of this daemon; none.
    pub identifier: Option<String>,
    /// File of the password in a gateway's requests; the profile's password.
    pub password_file: Option<PathBuf>,
    /// Timeout of the first transmission, 1 s; it doubles with each retransmission, up to four times the first.
    pub timeout: Option<Duration>,
    /// Transmissions to a server before the next one is tried, 3.
    pub tries: Option<u32>,
    /// How long a server that did not answer is skipped, 1 min.
    pub dead_time: Option<Duration>,
    /// How long no server is asked again about a host that was refused, or had no answer, 10 s.
    pub hold_off: Option<Duration>,
    /// Refuse answers without Message-Authenticator: `true`, `false` or `auto`; `auto`.
    pub require_message_authenticator: Option<SignedKey>,
    /// Time between interim updates if the server does not set it; none.
    pub interim: Option<Duration>,
    /// The servers, in order of preference.
    #[serde(default)]
    pub server: Vec<RadiusServerKeys>,
}

/// The keys of a `[[radius.server]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RadiusServerKeys {
    /// Its address. Required.
    pub address: IpAddr,
    /// File of the secret that it shares with this daemon. Required.
    pub secret_file: PathBuf,
    /// Use it for authentication, or its port for that, true (1812).
    pub authentication: Option<OnPort>,
    /// Use it for accounting, or its port for that, false (1813).
    pub accounting: Option<OnPort>,
}

/// The form of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RadiusProfileKey {
    /// As in RFC 6572.
    Rfc6572,
    /// As in paper 3's gateway.
    Paper,
}

/// The User-Name that a gateway uses for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserNameKey {
    /// The profile's choice.
    Profile,
    /// The interface identifier of its link-layer address (modified EUI-64).
    Eui64,
}

/// Which answers must have a Message-Authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedKey(pub Signed);

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
        if !self.enabled.unwrap_or(true) {
            return Ok(None);
        }
        if servers.iter().all(|server| server.authentication.is_none()) {
            bail!("radius needs a [[radius.server]] that is asked about hosts");
        }
        let span = |key: Option<Duration>, usual| key.map_or(usual, |Duration(span)| span);
        let initial = span(self.timeout, Span::from_secs(1));
        if !(Span::from_millis(100)..=Span::from_secs(30)).contains(&initial) {
            bail!("timeout must lie between 100ms and 30s");
        }
        let tries = self.tries.unwrap_or(3);
        if !(1..=10).contains(&tries) {
            bail!("tries must lie between 1 and 10");
        }
        let interim = self.interim.map(|Duration(span)| span);
        if interim.is_some_and(|span| span < Span::from_secs(1)) {
            bail!("interim must be 1s or longer");
        }
        if self.identifier.as_ref().is_some_and(|name| name.len() > 253) {
            bail!("identifier has more than 253 bytes");
        }
        let longest = Span(initial.0.saturating_mul(4));
        Ok(Some(Radius {
            servers,
            profile: match self.profile.unwrap_or(RadiusProfileKey::Rfc6572) {
                RadiusProfileKey::Rfc6572 => AaaProfile::Rfc6572,
                RadiusProfileKey::Paper => AaaProfile::Paper,
            },
            eui64: self.user_name == Some(UserNameKey::Eui64),
            identifier: self.identifier.filter(|name| !name.is_empty()),
            password_file: self.password_file.filter(|file| !file.as_os_str().is_empty()),
            patience: Backoff { initial, longest, tries: Some(tries) },
            dead_time: span(self.dead_time, Span::from_secs(60)),
            hold_off: span(self.hold_off, Span::from_secs(10)),
            require_message_authenticator: self
                .require_message_authenticator
                .map_or(Signed::Auto, |SignedKey(signed)| signed),
            interim,
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
    let at = |key: Option<OnPort>, usual, unless| match key.unwrap_or(unless) {
        OnPort::Off => None,
        OnPort::Usual => Some(usual),
        OnPort::Port(port) => Some(port),
    };
    let authentication = at(authentication, PORT, OnPort::Usual);
    let accounting = at(accounting, ACCOUNTING_PORT, OnPort::Off);
    if authentication.is_none() && accounting.is_none() {
        bail!("radius.server: {address} has nothing to do");
    }
    if authentication == accounting {
        bail!("radius.server: {address} has one port for authentication and accounting");
    }
    Ok(RadiusServer { address, secret_file, authentication, accounting })
}
