use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use segue_clock::{DayClock, Machine, Time, UnixTime};
use segue_ip::{Datagram, Input, Output, Prefix};
use segue_mobility::Pool;
use segue_pmip::{Allowed, Lma, LmaConfig, LmaOutput};
use segue_store::{Condition, Embedded, StoreError, StoreExt};
use segue_wire::mobility::{Message, MobilityOption, Profile};

use super::*;
use crate::pmip::records;

const TABLE: StoreTable = StoreTable { name: "registrations", of: "registration" };

/// A store whose writes wait for the test, and fail if the test says so.
struct Slow {
    inner: Embedded,
    /// The number of transactions that may still take place, and whether they succeed.
    allowed: Mutex<(usize, bool)>,
    change: Condvar,
    transactions: AtomicUsize,
}

impl Slow {
    fn allow(&self, transactions: usize, good: bool) {
        *self.allowed.lock().unwrap() = (transactions, good);
        self.change.notify_all();
    }

    fn epoch(&self, host: &str) -> Option<u64> {
        self.inner.get_as(TABLE.name, host).unwrap()
    }
}

impl Store for Slow {
    fn get(&self, table: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(table, key)
    }

    fn list(&self, table: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.list(table)
    }

    fn transact(&self, conditions: &[Condition], writes: &[Write]) -> Result<bool, StoreError> {
        let closed = |allowed: &mut (usize, bool)| allowed.0 == 0;
        let mut allowed = self.change.wait_while(self.allowed.lock().unwrap(), closed).unwrap();
        allowed.0 -= 1;
        self.transactions.fetch_add(1, Ordering::Relaxed);
        if !allowed.1 {
            return Err(StoreError::Closed { path: "nowhere".into() });
        }
        self.inner.transact(conditions, writes)
    }
}

/// An output that depends on records, in these tests.
type Said = &'static str;

fn slow() -> (tempfile::TempDir, Arc<Slow>, Ledger<Said>) {
    let directory = tempfile::tempdir().unwrap();
    let slow = Arc::new(Slow {
        inner: Embedded::open(&directory.path().join("anchor.db")).unwrap(),
        allowed: Mutex::new((0, true)),
        change: Condvar::new(),
        transactions: AtomicUsize::new(0),
    });
    let ledger = Ledger::start(slow.clone(), TABLE).unwrap();
    (directory, slow, ledger)
}

/// A host's record.
fn lease(host: &str, epoch: u64) -> Entry {
    let value = postcard::to_allocvec(&epoch).unwrap();
    Entry { subject: host.into(), key: host.into(), value: Some(value) }
}

/// The thread's next result.
async fn outcome(ledger: &mut Ledger<Said>) -> Outcome<Said> {
    tokio::time::timeout(Duration::from_secs(20), ledger.told().notified()).await.unwrap();
    ledger.outcome()
}

#[tokio::test]
async fn what_is_said_after_a_lease_waits_for_it_in_order_and_no_other_host_waits() {
    let (_directory, slow, mut ledger) = slow();
    ledger.put(lease("alice", 7));
    assert!(ledger.is_open(&"alice".into()) && !ledger.is_open(&"bob".into()));
    assert!(["one", "two"].into_iter().all(|said| ledger.hold(&"alice".into(), said).is_ok()));
    let early = tokio::time::timeout(Duration::from_millis(200), ledger.told().notified()).await;
    assert!(early.is_err() && ledger.outcome().due.is_empty() && slow.epoch("alice").is_none());
    slow.allow(1, true);
    let outcome = outcome(&mut ledger).await;
    assert_eq!(slow.epoch("alice"), Some(7));
    assert_eq!(outcome.due, ["one", "two"]);
    assert!(
        outcome.failed.is_empty() && outcome.error.is_none() && !ledger.is_open(&"alice".into())
    );
}

#[tokio::test]
async fn leases_that_wait_together_are_one_transaction_and_the_last_of_each_host_counts() {
    let (_directory, slow, mut ledger) = slow();
    for epoch in 1..=1_000 {
        ledger.put(lease(&format!("host{}", epoch % 10), epoch));
    }
    slow.allow(usize::MAX, true);
    ledger.settle();
    // One transaction may have begun with the first record.
    assert!(slow.transactions.load(Ordering::Relaxed) <= 2, "{:?}", slow.transactions);
    let epochs: Vec<_> = (1..=10).map(|n| slow.epoch(&format!("host{}", n % 10))).collect();
    assert_eq!(epochs, (991..=1_000).map(Some).collect::<Vec<_>>());
    outcome(&mut ledger).await;
    assert!((0..10).all(|n| !ledger.is_open(&format!("host{n}").as_str().into())));
}

#[tokio::test]
async fn a_host_whose_lease_cannot_be_written_is_told_nothing_until_it_can() {
    let (_directory, slow, mut ledger) = slow();
    ledger.put(lease("alice", 7));
    ledger.hold(&"alice".into(), "one").unwrap();
    slow.allow(1, false);
    let first = outcome(&mut ledger).await;
    assert!(first.due.is_empty() && first.failed == ["one"], "{first:?}");
    assert!(first.error.unwrap().to_string().contains("registration of alice"));
    // The host returns, and sends nothing that needs a write.
    assert!(ledger.is_open(&"alice".into()) && ledger.hold(&"alice".into(), "two").is_ok());
    slow.allow(1, true);
    let second = outcome(&mut ledger).await;
    assert_eq!(second.due, ["two"]);
    assert_eq!(slow.epoch("alice"), Some(7));
}

#[tokio::test]
async fn a_newer_lease_holds_nothing_up_that_waits_for_an_older_one() {
    let (_directory, slow, mut ledger) = slow();
    ledger.put(lease("alice", 1));
    ledger.hold(&"alice".into(), "one").unwrap();
    while !ledger.desk.lock().waiting.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ledger.put(lease("alice", 2));
    ledger.hold(&"alice".into(), "two").unwrap();
    slow.allow(1, true);
    let first = outcome(&mut ledger).await;
    assert_eq!(first.due, ["one"]);
    assert!(ledger.is_open(&"alice".into()));
    slow.allow(1, true);
    let second = outcome(&mut ledger).await;
    assert_eq!(second.due, ["two"]);
}

#[test]
fn what_waits_at_the_end_is_written() {
    let (_directory, slow, mut ledger) = slow();
    for n in 0..100 {
        ledger.put(lease(&format!("host{n}"), n));
    }
    slow.allow(usize::MAX, true);
    drop(ledger);
    assert!((0..100).all(|n| slow.epoch(&format!("host{n}")) == Some(n)));
}

#[test]
fn too_much_is_not_held_for_one_host() {
    let (_directory, slow, mut ledger) = slow();
    ledger.put(lease("alice", 1));
    let held = (0..1_000).take_while(|_| ledger.hold(&"alice".into(), "one").is_ok()).count();
    assert_eq!(held, MOST_HELD);
    slow.allow(usize::MAX, true);
}

#[tokio::test]
async fn a_later_record_of_a_subject_is_never_on_disk_without_the_earlier_ones() {
    let (_directory, slow, mut ledger) = slow();
    let entry = |key: &str| Entry { subject: Subject::default(), ..lease(key, 7) };
    ledger.put(entry("first"));
    slow.allow(1, false);
    tokio::time::timeout(Duration::from_secs(20), ledger.told().notified()).await.unwrap();
    // The loop has not looked yet.
    ledger.put(entry("second"));
    ledger.hold(&"".into(), "both").unwrap();
    slow.allow(1, true);
    assert_eq!(outcome(&mut ledger).await.due, ["both"]);
    assert_eq!(["first", "second"].map(|key| slow.epoch(key)), [Some(7); 2]);
}

#[tokio::test]
async fn what_is_forgotten_is_not_tried_again() {
    let (_directory, slow, mut ledger) = slow();
    ledger.put(lease("alice", 7));
    slow.allow(1, false);
    ledger.settle();
    ledger.outcome();
    ledger.forget(&"alice".into());
    ledger.put(lease("bob", 8));
    slow.allow(1, true);
    ledger.settle();
    assert_eq!(["alice", "bob"].map(|host| slow.epoch(host)), [None, Some(8)]);
}

/// What an anchor does with a registration at a gateway of OAI, as captured. The update names no host.
fn registration_at_oai() -> Vec<LmaOutput> {
    let capture = include_str!("../../../wire/tests/captures/oai-pmip.hex");
    let line = capture.lines().find(|line| !line.starts_with('#')).unwrap();
    let octet = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    let packet: Vec<u8> = (0..line.len()).step_by(2).map(octet).collect();
    let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    let (gateway, anchor) = (address(8), address(24));
    let update = Datagram {
        interface: None,
        from: (gateway, 0),
        to: (anchor, 0),
        protocol: segue_pmip::MOBILITY,
        hop_limit: 64,
        waited_ns: 0,
        bytes: packet[40..].to_vec(),
    };
    let message = Message::parse(&update.bytes, &Profile::OAI).unwrap();
    let sent = message.options.iter().find_map(|option| match option {
        MobilityOption::Timestamp(at) => {
            Some(UnixTime::from_timestamp(at.seconds, at.fraction_65536ths))
        }
        _ => None,
    });
    let pool = Pool::prefixes("2001:100::/32".parse().unwrap(), 64, 0).unwrap();
    let clock = DayClock::new(Time::ZERO, sent.unwrap());
    let mut lma = Lma::new(LmaConfig {
        gateways: vec![Allowed { prefix: Prefix::host(gateway), profile: Profile::OAI }],
        ..LmaConfig::new(anchor, pool, clock)
    });
    lma.handle(Time::ZERO, Input::Interfaces(Vec::new()));
    while lma.poll().is_some() {}
    lma.handle(Time::ZERO, Input::Datagram(update));
    std::iter::from_fn(|| lma.poll()).collect()
}

#[test]
fn an_acknowledgement_to_a_gateway_of_oai_waits_for_its_record() {
    let (_directory, slow, mut ledger) = slow();
    let mut held = Vec::new();
    for output in registration_at_oai() {
        match output {
            Output::Persist(record) => ledger.put(records::of_lma(&record).unwrap()),
            Output::Send(_, after) => {
                let hold = |subject| ledger.hold(subject, "acknowledgement").is_ok();
                held.push(after.as_ref().map(hold));
            }
            _ => {}
        }
    }
    // Before the assertion: a ledger whose disk never answers cannot be dropped.
    slow.allow(usize::MAX, true);
    assert_eq!(held, [Some(true)]);
}
