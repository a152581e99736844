use std::path::PathBuf;

use segue_store::Embedded;

use super::*;
use crate::identity::{new_key, request};

const DAY: Duration = Duration::from_secs(86_400);
const LIFETIME: Duration = Duration::from_secs(90 * 86_400);
const NOW: u64 = 1_700_000_000;

struct Place {
    directory: tempfile::TempDir,
    store: Option<Embedded>,
    enrolment: Enrolment,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(&directory.path().join("anchor.db")).unwrap();
        let enrolment = Enrolment::load(&store).unwrap();
        Place { directory, store: Some(store), enrolment }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("anchor.db")
    }

    /// Restarts the anchor.
    fn restart(&mut self) {
        self.store = None;
        let store = Embedded::open(&self.file()).unwrap();
        self.enrolment = Enrolment::load(&store).unwrap();
        self.store = Some(store);
    }

    fn store(&self) -> &Embedded {
        self.store.as_ref().unwrap()
    }

    fn invite(&mut self, name: &str, now_s: u64) -> Join {
        let at = vec![Locator::parse("192.0.2.1:5006", 0).unwrap()];
        let store = self.store.as_ref().unwrap();
        self.enrolment.invite(store, name, at, (now_s, DAY)).unwrap()
    }

    fn enrol(&mut self, asked: &ToEnrol, now_s: u64) -> Result<(Vec<u8>, bool), EnrolRefusal> {
        self.enrolment.enrol(self.store.as_ref().unwrap(), asked, (now_s, LIFETIME))
    }

    fn renew(&mut self, name: &str, key: &[u8], now_s: u64) -> Result<Vec<u8>, RenewError> {
        let asked = request(key).unwrap();
        self.enrolment.renew(self.store.as_ref().unwrap(), name, &asked, (now_s, LIFETIME))
    }

    fn shown(&mut self, certificate: &[u8]) {
        self.enrolment.shown(self.store.as_ref().unwrap(), certificate).unwrap();
    }

    fn lease(&self, name: &str, epoch: u64, inner: &[&str]) {
        let inner = inner.iter().map(|a| a.parse().unwrap()).collect();
        let lease = Lease { epoch, inner, seen_s: Some(NOW) };
        self.store().put_as(LEASES, name, &lease).unwrap();
    }

    fn resting(&self) -> Vec<(IpAddr, u64)> {
        Enrolment::resting(self.store()).unwrap()
    }
}

fn ask(join: &Join, key: &[u8]) -> ToEnrol {
    ToEnrol::Enrol {
        version: ENROL_VERSION,
        name: join.name.clone(),
        token: join.token,
        request: request(key).unwrap(),
    }
}

#[test]
fn a_join_line_enrols_one_key_once_and_repeats_its_answer() {
    let mut place = Place::new();
    let join = place.invite("laptop", NOW);
    let (key, thief) = (new_key().unwrap(), new_key().unwrap());
    let (certificate, new) = place.enrol(&ask(&join, &key), NOW + 5).unwrap();
    assert!(new);
    assert_eq!(place.enrolment.name_of(&certificate), Some("laptop".into()));
    // After a lost answer, or a crash of the host or the anchor, the same key gets the same
    // certificate.
    for restart in [false, true] {
        if restart {
            place.restart();
        }
        assert_eq!(place.enrol(&ask(&join, &key), NOW + 9), Ok((certificate.clone(), false)));
        assert_eq!(place.enrol(&ask(&join, &thief), NOW + 9), Err(EnrolRefusal::Used));
        assert_eq!(place.enrolment.name_of(&certificate), Some("laptop".into()));
    }
}

#[test]
fn the_line_alone_says_who_may_be_enrolled_as_what() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    let other = place.invite("phone", NOW);
    let with = |name: &str, token, version| {
        let ToEnrol::Enrol { request, .. } = ask(&join, &key);
        ToEnrol::Enrol { version, name: name.into(), token, request }
    };
    let mut wrong = join.token;
    wrong.0[7] ^= 1;
    for (asked, refusal) in [
        (with("laptop", wrong, ENROL_VERSION), EnrolRefusal::Unknown),
        (with("laptop", other.token, ENROL_VERSION), EnrolRefusal::Unknown),
        (with("phone", join.token, ENROL_VERSION), EnrolRefusal::Unknown),
        (with("nobody", join.token, ENROL_VERSION), EnrolRefusal::Unknown),
        (with("laptop", join.token, 99), EnrolRefusal::Version { speaks: ENROL_VERSION }),
    ] {
        assert_eq!(place.enrol(&asked, NOW), Err(refusal), "{asked:?}");
    }
    // A client with the line that sends a malformed request does not spoil the line.
    let ToEnrol::Enrol { version, name, token, .. } = ask(&join, &key);
    let nonsense = ToEnrol::Enrol { version, name, token, request: vec![0x30, 0x80] };
    assert_eq!(place.enrol(&nonsense, NOW), Err(EnrolRefusal::Request));
    // A line that was not used in time is refused, also after a restart; a newer one is accepted.
    let late = NOW + DAY.as_secs();
    place.restart();
    assert_eq!(place.enrol(&ask(&join, &key), late), Err(EnrolRefusal::Expired));
    let newer = place.invite("laptop", late);
    assert_eq!(place.enrol(&ask(&join, &key), late), Err(EnrolRefusal::Unknown));
    place.enrol(&ask(&newer, &key), late).unwrap();
}

#[test]
fn a_certificate_is_renewed_after_two_thirds_and_the_old_one_serves_until_the_new_is_shown() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    let (first, _) = place.enrol(&ask(&join, &key), NOW).unwrap();
    let two_thirds = NOW + LIFETIME.as_secs() / 3 * 2;
    assert!(!place.enrolment.is_due(&first, two_thirds - 1));
    assert!(place.enrolment.is_due(&first, two_thirds));
    let (next, other) = (new_key().unwrap(), new_key().unwrap());
    let second = place.renew("laptop", &next, two_thirds).unwrap();
    assert!(second != first && !place.enrolment.is_due(&second, two_thirds));
    // After a lost answer, a repeated request returns the same certificate. Requests with further keys have to wait.
    place.restart();
    assert_eq!(place.renew("laptop", &next, two_thirds + 1).unwrap(), second);
    assert!(place.renew("laptop", &other, two_thirds + 1).is_err());
    assert!(place.renew("nobody", &other, two_thirds + 1).is_err());
    for certificate in [&first, &second] {
        assert_eq!(place.enrolment.name_of(certificate), Some("laptop".into()));
    }
    place.shown(&first);
    assert_eq!(
        place.enrolment.name_of(&first),
        Some("laptop".into()),
        "the new one was not shown yet"
    );
    place.shown(&second);
    for restart in [false, true] {
        if restart {
            place.restart();
        }
        assert_eq!(place.enrolment.name_of(&first), None);
        assert_eq!(place.enrolment.name_of(&second), Some("laptop".into()));
    }
    let end = two_thirds + LIFETIME.as_secs();
    assert_eq!(place.enrolment.expired(end - 1).count(), 0);
    assert_eq!(place.enrolment.expired(end).collect::<Vec<_>>(), ["laptop"]);
    let states = |place: &Place, now_s| -> Vec<String> {
        let all = place.enrolment.list(place.store(), now_s).unwrap();
        all.into_iter().map(|host| host.state).collect()
    };
    assert_eq!(states(&place, end - 1), ["enrolled"]);
    assert_eq!(states(&place, end), ["expired"]);
}

/// A full disk must not be reported as a malformed request.
#[test]
fn what_a_host_asks_in_error_is_no_trouble_of_the_anchors() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    place.enrol(&ask(&join, &key), NOW).unwrap();
    let due = NOW + LIFETIME.as_secs() / 3 * 2;
    let nonsense = |place: &mut Place| {
        let store = place.store.as_ref().unwrap();
        place.enrolment.renew(store, "laptop", &[0x30, 0x80], (due, LIFETIME))
    };
    let unasked = |renewed| matches!(renewed, Err(RenewError::Asked(_)));
    assert!(unasked(nonsense(&mut place)));
    assert!(unasked(place.renew("nobody", &key, due)));
    place.renew("laptop", &new_key().unwrap(), due).unwrap();
    assert!(unasked(nonsense(&mut place)), "after a renewal");
    assert!(unasked(place.renew("laptop", &new_key().unwrap(), due + 1)), "too soon");
}

#[test]
fn a_line_is_known_by_its_token_before_and_after_its_use() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    let asked = ask(&join, &key);
    assert!(place.enrolment.has_line_of(&asked));
    place.enrol(&asked, NOW).unwrap();
    assert!(place.enrolment.has_line_of(&asked));
    let ToEnrol::Enrol { version, name, request, mut token } = asked;
    token.0[7] ^= 1;
    let guessed = ToEnrol::Enrol { version, name, token, request };
    assert!(!place.enrolment.has_line_of(&guessed), "who guesses takes nothing from the host");
}

#[test]
fn a_new_enrolment_and_the_end_of_one_leave_nothing_of_the_old() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    let (old, _) = place.enrol(&ask(&join, &key), NOW).unwrap();
    // The epoch of a thief who tries to lock the host out.
    place.lease("laptop", u64::MAX, &["10.77.0.2"]);
    place.lease("other", 7, &["10.77.0.3"]);

    let newer = place.invite("laptop", NOW + 1);
    assert_eq!(place.enrolment.name_of(&old), None, "at once, not when the line is used");
    assert_eq!(place.enrol(&ask(&join, &key), NOW + 1), Err(EnrolRefusal::Unknown));
    let lease: Lease = place.store().get_as(LEASES, "laptop").unwrap().unwrap();
    assert_eq!(lease.epoch, 0);
    assert_eq!(lease.inner, ["10.77.0.2".parse::<IpAddr>().unwrap()], "its address stays its own");
    assert_eq!(place.resting(), []);
    let (new, _) = place.enrol(&ask(&newer, &new_key().unwrap()), NOW + 1).unwrap();
    assert_eq!(place.enrolment.name_of(&new), Some("laptop".into()));

    let store = place.store.as_ref().unwrap();
    place.enrolment.remove(store, "laptop", NOW + 2).unwrap();
    assert!(place.enrolment.remove(store, "laptop", NOW + 2).is_err());
    for restart in [false, true] {
        if restart {
            place.restart();
        }
        assert_eq!(place.enrolment.name_of(&new), None);
        assert_eq!(place.enrol(&ask(&newer, &key), NOW + 2), Err(EnrolRefusal::Unknown));
        assert_eq!(place.store().get(LEASES, "laptop").unwrap(), None);
        assert!(place.store().get(LEASES, "other").unwrap().is_some());
        let rests = ("10.77.0.2".parse().unwrap(), NOW + 2 + REST.as_secs());
        assert_eq!(place.resting(), [rests], "after a restart: {restart}");
    }
}

#[test]
fn the_list_has_hosts_and_lines_that_wait() {
    let mut place = Place::new();
    let (join, key) = (place.invite("laptop", NOW), new_key().unwrap());
    place.enrol(&ask(&join, &key), NOW + 3).unwrap();
    place.lease("laptop", 1, &["10.77.0.2", "fd5e::2"]);
    place.invite("phone", NOW + 4);
    let listed = |now_s| place.enrolment.list(place.store(), now_s).unwrap();
    let all = listed(NOW + 9);
    let laptop = EnrolmentStatus {
        name: "laptop".into(),
        state: "enrolled".into(),
        inner: vec!["10.77.0.2".into(), "fd5e::2".into()],
        since_s: NOW + 3,
        expires_s: NOW + 3 + LIFETIME.as_secs(),
        connected: false,
        seen_s: Some(NOW),
    };
    assert_eq!(all[0], laptop);
    assert_eq!((all[1].name.as_str(), all[1].state.as_str()), ("phone", "invited"));
    assert_eq!(all[1].expires_s, NOW + 4 + DAY.as_secs());
    assert_eq!(listed(NOW + 4 + DAY.as_secs())[1].state, "line expired");
}
