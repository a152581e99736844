//! A host's stored enrolment: the key that it generates and the certificate for it. A key is stored before it is sent
//! to the anchor, and a certificate before it is presented. A host that crashes in between asks again with the same key
//! and receives the same answer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_store::{Embedded, Store, StoreExt, Write};
use segue_text::units::{date, day};
use segue_wire::enrol::{ENROL_VERSION, ToEnrol};
use serde::{Deserialize, Serialize};

use super::signal::{Line, Rejected, Shown};
use crate::identity::{Credentials, Join, expiry_of, new_key, request};
use crate::locator::Locator;
use crate::signalling::client_config;

/// Table of the host's state.
const TABLE: &str = "host";
/// Key of the enrolment in force.
const MEMBER: &str = "member";
/// Key of the epoch of the last start.
const EPOCH: &str = "epoch";
/// Key of the addresses that the anchor's names last resolved to.
const FOUND: &str = "found";
/// Key of the join line of a pending enrolment.
const PENDING: &str = "pending";
/// Key of the reason why the anchor last refused the host's credentials, with advice.
const REJECTED: &str = "rejected";

/// An enrolment in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Standing {
    join: Join,
    host: Credentials,
    /// The key of the next certificate, once the host has been asked to renew.
    next: Option<Secret>,
}

/// A join line, and the key that the host generated for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pending {
    join: Join,
    key: Secret,
}

/// A private key, PKCS #8 in DER.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

enum State {
    Standing(Standing),
    Pending(Pending),
}

/// A host's enrolment, in force or pending.
pub(super) struct Member {
    store: Embedded,
    state: State,
    /// The store may hold a rejection.
    rejected: bool,
}

/// The enrolment recorded in a host's state.
pub struct Membership {
    /// The anchor's addresses.
    pub anchor: Vec<Locator>,
    /// When the certificate expires, in seconds since 1970; `None` while there is only a join line.
    pub expires_s: Option<u64>,
    /// Why the anchor last refused the host, with advice; `None` if it did not.
    pub rejected: Option<String>,
}

/// Reads a host's state. This works even while another process has the file open.
/// `None` if there is no file or no enrolment in it.
///
/// # Errors
/// The state cannot be read.
pub fn membership(state: &Path) -> anyhow::Result<Option<Membership>> {
    if !state.exists() {
        return Ok(None);
    }
    let store = Embedded::snapshot(state)?;
    let standing: Option<Standing> = store.get_as(TABLE, MEMBER)?;
    let pending: Option<Pending> = store.get_as(TABLE, PENDING)?;
    let rejected: Option<String> = store.get_as(TABLE, REJECTED)?;
    let known = standing
        .map(|standing| (standing.join.anchor, expiry_of(&standing.host.certificate)))
        .or(pending.map(|pending| (pending.join.anchor, None)));
    Ok(known.map(|(anchor, expires_s)| Membership { anchor, expires_s, rejected }))
}

impl Member {
    /// Opens the host's state. A join line that is new to the state begins an enrolment. Without a line, or with one
    /// already used, the stored enrolment is used.
    pub(super) fn open(state: &Path, line: Option<Join>) -> anyhow::Result<Member> {
        let store = Embedded::open(state)?;
        let unreadable = || format!("the enrolment in {} is unreadable", state.display());
        let standing: Option<Standing> = store.get_as(TABLE, MEMBER).with_context(unreadable)?;
        let pending: Option<Pending> = store.get_as(TABLE, PENDING).with_context(unreadable)?;
        let same = |known: &Join| line.as_ref().is_none_or(|line| known.is_of(line));
        let state = match (standing, pending, line.clone()) {
            (Some(standing), ..) if same(&standing.join) => State::Standing(standing),
            (_, Some(pending), _) if same(&pending.join) => State::Pending(pending),
            (.., Some(join)) => {
                let pending = Pending { join, key: Secret(new_key()?) };
                store.put_as(TABLE, PENDING, &pending)?;
                State::Pending(pending)
            }
            (.., None) => bail!(
                "a host needs an enrolment, and {} holds none: run `segue enroll NAME` at the anchor and \
                 give its line with --join LINE",
                state.display()
            ),
        };
        let mut member = Member { store, state, rejected: true };
        // The new line may be accepted.
        if line.is_some() && matches!(member.state, State::Pending(_)) {
            member.note_rejection(None);
        }
        Ok(member)
    }

    /// Stores why the anchor refuses the host's credentials, for `segue doctor`; `None` if it does not.
    pub(super) fn note_rejection(&mut self, advice: Option<&str>) {
        if advice.is_none() && !self.rejected {
            return;
        }
        self.rejected = advice.is_some();
        let done = match advice {
            Some(advice) => self.store.put_as(TABLE, REJECTED, &advice),
            None => {
                self.store.transact(&[], &[Write::Delete { table: TABLE, key: REJECTED }]).map(drop)
            }
        };
        if let Err(error) = done {
            tracing::debug!("{error}");
        }
    }

    /// The join line of the host's enrolment, completed or pending.
    pub(super) fn join(&self) -> &Join {
        match &self.state {
            State::Standing(standing) => &standing.join,
            State::Pending(pending) => &pending.join,
        }
    }

    /// The anchor's known addresses: those in the line, and the last ones that its names resolved to.
    pub(super) fn anchors(&self) -> Vec<SocketAddr> {
        let mut anchors = self.join().addresses();
        if !self.join().names().is_empty() {
            let found: Vec<SocketAddr> =
                self.store.get_as(TABLE, FOUND).ok().flatten().unwrap_or_default();
            anchors.extend(found);
        }
        anchors
    }

    /// The credentials that the host presents to its anchor.
    pub(super) fn shown(&self) -> anyhow::Result<Shown> {
        Ok(match &self.state {
            State::Standing(Standing { join, host, .. }) => {
                Shown::Certificate(client_config(&join.authority, host)?)
            }
            State::Pending(Pending { join, key }) => {
                let asked = ToEnrol::Enrol {
                    version: ENROL_VERSION,
                    name: join.name.clone(),
                    token: join.token,
                    request: request(&key.0)?,
                };
                let (authority, key) = (join.authority.clone(), key.0.clone());
                Shown::Line(Arc::new(Line { asked, authority, key }))
            }
        })
    }

    /// Stores the certificate of a completed enrolment.
    pub(super) fn enrolled(&mut self, certificate: Vec<u8>) -> anyhow::Result<()> {
        let State::Pending(Pending { join, key }) = &self.state else { return Ok(()) };
        let host = Credentials { certificate, key: key.0.clone() };
        self.keep(Standing { join: join.clone(), host, next: None })
    }

    /// A request for the next certificate, for a new key. The request stays the same until it is answered.
    pub(super) fn renewal(&mut self) -> anyhow::Result<Vec<u8>> {
        let State::Standing(standing) = &self.state else { bail!("there is nothing to renew yet") };
        if let Some(next) = &standing.next {
            return request(&next.0);
        }
        let key = new_key()?;
        let asked = request(&key)?;
        self.keep(Standing { next: Some(Secret(key)), ..standing.clone() })?;
        Ok(asked)
    }

    /// Stores a renewed certificate. A certificate for another key is refused.
    pub(super) fn renewed(&mut self, certificate: Vec<u8>) -> anyhow::Result<()> {
        let State::Standing(standing) = &self.state else { return Ok(()) };
        let Some(next) = &standing.next else { return Ok(()) };
        let host = Credentials { certificate, key: next.0.clone() };
        client_config(&standing.join.authority, &host)
            .context("the anchor's certificate is not for the key that asked")?;
        self.keep(Standing { join: standing.join.clone(), host, next: None })
    }

    /// Advice for the operator if the anchor refuses the host's credentials.
    pub(super) fn advice(&self, why: Rejected, now_s: u64) -> String {
        let name = &self.join().name;
        let until_s = match &self.state {
            State::Standing(standing) => expiry_of(&standing.host.certificate),
            State::Pending(_) => None,
        };
        if let (Rejected::Expired, Some(until_s)) = (why, until_s.filter(|end| *end > now_s)) {
            return format!(
                "the anchor says that the certificate of this host has expired, and it is good until {}: the clock of \
                 the anchor or of this host, where it is {}, is wrong; set it",
                date(until_s),
                day(now_s)
            );
        }
        format!(
            "{why}: run `segue enroll {name}` at the anchor and start this host with the line that it prints"
        )
    }

    /// The epoch of this start: the time of day, or one past the last start's epoch if the clock
    /// was set back.
    pub(super) fn next_epoch(&self, now_ns: u64) -> u64 {
        let last: Option<u64> = self.store.get_as(TABLE, EPOCH).ok().flatten();
        let epoch = last.map_or(now_ns, |last| now_ns.max(last.saturating_add(1)));
        // If storing fails, the anchor informs the next start of the epoch to continue from.
        if let Err(error) = self.store.put_as(TABLE, EPOCH, &epoch) {
            tracing::debug!("{error}");
        }
        epoch
    }

    /// Stores the addresses of the anchor's names, for a start without a reachable name server.
    pub(super) fn keep_found(&self, addresses: &[SocketAddr]) {
        if let Err(error) = self.store.put_as(TABLE, FOUND, &addresses) {
            tracing::debug!("{error}");
        }
    }

    fn keep(&mut self, standing: Standing) -> anyhow::Result<()> {
        let value = postcard::to_allocvec(&standing)?;
        let put = Write::Put { table: TABLE, key: MEMBER, value: &value, lifetime: None };
        let writes = [put, Write::Delete { table: TABLE, key: PENDING }];
        self.store.transact(&[], &writes).context("the host's enrolment cannot be kept")?;
        self.state = State::Standing(standing);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use segue_wire::enrol::{EnrolRefusal, TOKEN_LEN, Token};

    use super::*;
    use crate::identity::Authority;

    struct Place {
        directory: tempfile::TempDir,
        authority: Authority,
    }

    impl Place {
        fn new() -> Place {
            let authority = Authority::generate().unwrap();
            Place { directory: tempfile::tempdir().unwrap(), authority }
        }

        fn line(&self, token: u8) -> Join {
            Join {
                name: "laptop".into(),
                anchor: vec![Locator::parse("192.0.2.1:5006", 0).unwrap()],
                authority: self.authority.authority.certificate.clone(),
                token: Token([token; TOKEN_LEN]),
            }
        }

        fn open(&self, line: Option<Join>) -> anyhow::Result<Member> {
            Member::open(&self.directory.path().join("host.db"), line)
        }

        fn certify(&self, request: &[u8]) -> Vec<u8> {
            self.authority.certify("laptop", request, 4_000_000_000).unwrap().certificate
        }
    }

    fn request_of(member: &Member) -> Vec<u8> {
        match member.shown().unwrap() {
            Shown::Line(line) => {
                let ToEnrol::Enrol { request, .. } = &line.asked;
                request.clone()
            }
            Shown::Certificate(_) => panic!("it is enrolled"),
        }
    }

    fn is_enrolled(member: &Member) -> bool {
        matches!(member.shown().unwrap(), Shown::Certificate(_))
    }

    /// The public key in a request: the only long part that does not change.
    fn key_in(place: &Place, request: &[u8]) -> Vec<u8> {
        place.authority.certify("laptop", request, 4_000_000_000).unwrap().key
    }

    #[test]
    fn a_host_that_crashes_before_the_answer_asks_again_with_the_same_key() {
        let place = Place::new();
        let first = request_of(&place.open(Some(place.line(1))).unwrap());
        let again = request_of(&place.open(Some(place.line(1))).unwrap());
        assert_eq!(key_in(&place, &first), key_in(&place, &again));
        // Also without the line.
        let again = request_of(&place.open(None).unwrap());
        assert_eq!(key_in(&place, &first), key_in(&place, &again));
        let other = request_of(&place.open(Some(place.line(2))).unwrap());
        assert_ne!(key_in(&place, &first), key_in(&place, &other));
    }

    #[test]
    fn an_enrolled_host_needs_its_line_no_more_and_another_line_takes_its_place_once_it_works() {
        let place = Place::new();
        let mut member = place.open(Some(place.line(1))).unwrap();
        let certificate = place.certify(&request_of(&member));
        member.enrolled(certificate).unwrap();
        drop(member);
        for line in [None, Some(place.line(1))] {
            assert!(is_enrolled(&place.open(line).unwrap()));
        }
        // The other line was tried and refused: the enrolment remains in force.
        let member = place.open(Some(place.line(2))).unwrap();
        assert!(!is_enrolled(&member));
        let advice = member.advice(Rejected::Line(EnrolRefusal::Used), 0);
        assert!(
            advice.contains("used already") && advice.contains("segue enroll laptop"),
            "{advice}"
        );
        drop(member);
        assert!(is_enrolled(&place.open(None).unwrap()));
        let mut member = place.open(Some(place.line(2))).unwrap();
        let certificate = place.certify(&request_of(&member));
        member.enrolled(certificate).unwrap();
        drop(member);
        let member = place.open(None).unwrap();
        assert!(is_enrolled(&member) && member.join() == &place.line(2));
    }

    #[test]
    fn a_renewal_goes_on_with_its_key_after_a_crash_and_takes_no_certificate_for_another() {
        let place = Place::new();
        let mut member = place.open(Some(place.line(1))).unwrap();
        let first = request_of(&member);
        let certificate = place.certify(&first);
        member.enrolled(certificate).unwrap();
        let asked = member.renewal().unwrap();
        assert_ne!(
            key_in(&place, &asked),
            key_in(&place, &first),
            "each certificate has a key of its own"
        );
        drop(member);
        let mut member = place.open(None).unwrap();
        assert_eq!(key_in(&place, &member.renewal().unwrap()), key_in(&place, &asked));
        let foreign = place.certify(&request(&new_key().unwrap()).unwrap());
        assert!(member.renewed(foreign).is_err());
        assert_eq!(key_in(&place, &member.renewal().unwrap()), key_in(&place, &asked));
        let certificate = place.certify(&asked);
        member.renewed(certificate.clone()).unwrap();
        // A certificate that was not requested is ignored.
        member.renewed(vec![1]).unwrap();
        drop(member);
        let member = place.open(None).unwrap();
        let State::Standing(standing) = &member.state else { panic!("it stands") };
        assert_eq!((&standing.host.certificate, &standing.next), (&certificate, &None));
    }

    #[test]
    fn without_line_and_state_there_is_advice_and_the_state_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let place = Place::new();
        let error = place.open(None).err().unwrap().to_string();
        assert!(error.contains("segue enroll NAME") && error.contains("host.db"), "{error}");
        let file = std::fs::metadata(place.directory.path().join("host.db")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let member = place.open(Some(place.line(1))).unwrap();
        let State::Pending(pending) = &member.state else { panic!("it waits") };
        assert!(!format!("{pending:?}").contains(&format!("{:?}", pending.key.0)));
    }
}
