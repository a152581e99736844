//! Leases on their way to the store. A separate thread writes them: all that wait go into one
//! transaction, only the last one of each host. Messages that follow from a lease are held until it
//! is on disk. If it cannot be written, the host hears nothing of it: its connection ends, and the
//! lease is tried again when the host asks again.
//!
//! For each enrolled host at most one lease waits and at most [`MOST_HELD`] messages are held.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use segue_store::{Store, Write};
use segue_tunnel::ConnId;
use segue_wire::signal::FromAnchor;
use tokio::sync::Notify;
use tracing::debug;

use super::enrolment::{LEASES, Lease, encoded};

/// Most messages held for one host; a connection that exceeds this ends.
const MOST_HELD: usize = 64;

/// What to do on a connection.
#[derive(Debug)]
pub enum Say {
    /// Send this.
    Message(FromAnchor),
    /// End it once everything is sent.
    Close,
}

/// What has become of leases.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was held for the written leases, in order.
    pub said: Vec<(ConnId, Say)>,
    /// Connections that wait for leases that could not be written.
    pub failed: Vec<ConnId>,
    /// Why not.
    pub error: Option<anyhow::Error>,
}

/// The loop's side.
pub struct Ledger {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
    /// Number of leases so far.
    count: u64,
    /// By host: leases not yet known to be on disk.
    open: BTreeMap<String, Open>,
}

struct Open {
    lease: Lease,
    /// The lease's number, among all.
    number: u64,
    /// The write failed; the lease waits until its host asks again.
    failed: bool,
    /// Held messages, each with the number of the lease that it waits for.
    held: VecDeque<(u64, ConnId, Say)>,
}

impl Ledger {
    /// Starts the writing thread, with the caller's scheduling.
    pub fn start(store: Arc<dyn Store>) -> anyhow::Result<Ledger> {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("segue-store".into())
            .spawn(move || {
                let _told = Ended(&theirs);
                while let Some(batch) = theirs.take() {
                    let result = write(store.as_ref(), &batch);
                    theirs.done(batch, result);
                }
            })
            .context("no thread for the store")?;
        Ok(Ledger { desk, thread: Some(thread), count: 0, open: BTreeMap::new() })
    }

    /// Queues a host's lease for writing. Never blocks.
    pub fn put(&mut self, host: &str, lease: Lease) {
        self.count += 1;
        let number = self.count;
        let open = self.open.entry(host.to_owned()).or_insert_with(|| Open {
            lease: lease.clone(),
            number,
            failed: false,
            held: VecDeque::new(),
        });
        (open.lease, open.number, open.failed) = (lease.clone(), number, false);
        self.desk.put(host, number, lease);
    }

    /// Whether messages to this host have to wait.
    pub fn is_open(&self, host: &str) -> bool {
        self.open.contains_key(host)
    }

    /// Holds a message until the host's lease is written; false if too many are held for it.
    pub fn hold(&mut self, host: &str, conn: ConnId, say: Say) -> bool {
        let Some(open) = self.open.get_mut(host) else { return false };
        if open.held.len() >= MOST_HELD {
            return false;
        }
        if open.failed {
            self.count += 1;
            (open.number, open.failed) = (self.count, false);
            self.desk.put(host, open.number, open.lease.clone());
        }
        open.held.push_back((open.number, conn, say));
        true
    }

    /// Waits until the thread has a result. Cancel-safe.
    pub async fn told(&self) {
        self.desk.told.notified().await;
    }

    /// The thread's results so far.
    pub fn outcome(&mut self) -> Outcome {
        let (results, error) = self.desk.results();
        let mut outcome = Outcome { error, ..Outcome::default() };
        for (host, Written { number, good }) in results {
            let Some(open) = self.open.get_mut(&host) else { continue };
            while open.held.front().is_some_and(|(waits_for, ..)| *waits_for <= number) {
                let Some((_, conn, say)) = open.held.pop_front() else { break };
                if good {
                    outcome.said.push((conn, say));
                } else if !outcome.failed.contains(&conn) {
                    outcome.failed.push(conn);
                }
            }
            if number < open.number {
                continue;
            }
            if good {
                self.open.remove(&host);
            } else {
                open.failed = true;
            }
        }
        outcome
    }

    /// Waits until nothing is being written. After that, the caller may change the leases in the
    /// store.
    pub fn settle(&self) {
        self.desk.settle();
    }

    /// Forgets everything about a host. Call it after [`Ledger::settle`] and once the outcome is
    /// handled.
    pub fn forget(&mut self, host: &str) {
        self.open.remove(host);
    }

    /// # Errors
    /// If the thread has ended.
    pub fn writes(&self) -> anyhow::Result<()> {
        if self.desk.lock().ended {
            bail!("the thread that writes the anchor's state has ended");
        }
        Ok(())
    }
}

impl Drop for Ledger {
    /// Writes what still waits.
    fn drop(&mut self) {
        self.desk.lock().closes = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State shared by both sides.
#[derive(Default)]
struct Desk {
    papers: Mutex<Papers>,
    changed: Condvar,
    told: Notify,
}

#[derive(Default)]
struct Papers {
    waiting: Batch,
    /// A batch is being written.
    writing: bool,
    results: BTreeMap<String, Written>,
    error: Option<anyhow::Error>,
    /// The thread is to end once nothing waits.
    closes: bool,
    /// The thread has ended.
    ended: bool,
}

/// Leases with their numbers, by host.
type Batch = BTreeMap<String, (u64, Lease)>;

struct Written {
    number: u64,
    good: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, host: &str, number: u64, lease: Lease) {
        self.lock().waiting.insert(host.to_owned(), (number, lease));
        self.changed.notify_all();
    }

    fn results(&self) -> (BTreeMap<String, Written>, Option<anyhow::Error>) {
        let mut papers = self.lock();
        (std::mem::take(&mut papers.results), papers.error.take())
    }

    fn settle(&self) {
        let busy =
            |papers: &mut Papers| (papers.writing || !papers.waiting.is_empty()) && !papers.ended;
        let _papers = self.changed.wait_while(self.lock(), busy);
    }

    /// Everything that waits; `None` if nothing waits and nothing more will come.
    fn take(&self) -> Option<Batch> {
        let idle = |papers: &mut Papers| papers.waiting.is_empty() && !papers.closes;
        let waited = self.changed.wait_while(self.lock(), idle);
        let mut papers = waited.unwrap_or_else(PoisonError::into_inner);
        papers.writing = !papers.waiting.is_empty();
        papers.writing.then(|| std::mem::take(&mut papers.waiting))
    }

    fn done(&self, batch: Batch, result: anyhow::Result<()>) {
        let good = result.is_ok();
        let mut papers = self.lock();
        let results = batch.into_iter().map(|(host, (number, _))| (host, Written { number, good }));
        papers.results.extend(results);
        papers.error = result.err().or(papers.error.take());
        papers.writing = false;
        drop(papers);
        self.changed.notify_all();
        self.told.notify_one();
    }
}

/// Signals that the thread has ended, even by a panic.
struct Ended<'a>(&'a Desk);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Writes leases in one transaction.
fn write(store: &dyn Store, batch: &Batch) -> anyhow::Result<()> {
    let values: Vec<(&str, Vec<u8>)> = batch
        .iter()
        .map(|(host, (_, lease))| Ok((host.as_str(), encoded(lease)?)))
        .collect::<anyhow::Result<_>>()?;
    let writes: Vec<Write> = values
        .iter()
        .map(|(key, value)| Write::Put { table: LEASES, key, value, lifetime: None })
        .collect();
    store.transact(&[], &writes).with_context(|| {
        let first = batch.keys().next().map_or("", String::as_str);
        let more = match batch.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        format!("the registration of {first}{more} cannot be written down and is not answered")
    })?;
    debug!("{} leases written in one transaction", batch.len());
    Ok(())
}

#[cfg(test)]
mod tests;
