//! Records on their way to the store. A separate thread writes them: all waiting records go into one transaction, and
//! only the last record of each key. Outputs that depend on a record are held until it is on disk. If the write fails,
//! the held outputs are returned as failed, and the records are written again when another output depends on them.
//!
//! An output names the subject of the records that it depends on ([`Subject`]): a record delays only the outputs of its
//! subject. At most [`MOST_HELD`] outputs of a subject are held.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use segue_ip::Subject;
use segue_store::{Store, Write};
use tokio::sync::Notify;
use tracing::debug;

/// Most outputs held of one subject.
const MOST_HELD: usize = 64;

/// The table that a ledger writes to.
#[derive(Clone, Copy, Debug)]
pub struct StoreTable {
    /// Its name in the store.
    pub name: &'static str,
    /// The word for a record in error messages, such as `registration`.
    pub of: &'static str,
}

/// A record as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is about.
    pub subject: Subject,
    /// Its key. A later entry with the same key replaces this one.
    pub key: String,
    /// Its value; `None` deletes the record.
    pub value: Option<Vec<u8>>,
}

/// For roles that store nothing.
impl From<Infallible> for Entry {
    fn from(never: Infallible) -> Entry {
        match never {}
    }
}

/// The results of writes.
#[derive(Debug)]
pub struct Outcome<H> {
    /// Held outputs whose records are written, in order.
    pub due: Vec<H>,
    /// Held outputs whose records could not be written.
    pub failed: Vec<H>,
    /// The last error, if a write failed.
    pub error: Option<anyhow::Error>,
}

/// The loop's side. `H` is an output that depends on records.
pub struct Ledger<H> {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
    /// Records put so far.
    count: u64,
    /// Subjects with records that are not known to be on disk.
    open: BTreeMap<Subject, Open<H>>,
}

struct Open<H> {
    /// The number of the subject's last record; all subjects share one sequence.
    number: u64,
    /// A write failed; the records wait until another output is held for them.
    failed: bool,
    /// Held outputs, each with the number of the record that it waits for.
    held: VecDeque<(u64, H)>,
}

impl<H> Ledger<H> {
    /// A ledger for a role that stores nothing.
    pub fn without_store() -> Ledger<H> {
        Ledger::over(Arc::default(), None)
    }

    fn over(desk: Arc<Desk>, thread: Option<JoinHandle<()>>) -> Ledger<H> {
        Ledger { desk, thread, count: 0, open: BTreeMap::new() }
    }

    /// Starts the writing thread, with the caller's scheduling.
    pub fn start(store: Arc<dyn Store>, table: StoreTable) -> anyhow::Result<Ledger<H>> {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("segue-store".into())
            .spawn(move || {
                let _told = Ended(&theirs);
                while let Some(batch) = theirs.take() {
                    let result = write(store.as_ref(), table, &batch);
                    theirs.done(batch, result);
                }
            })
            .context("no thread for the store")?;
        Ok(Ledger::over(desk, Some(thread)))
    }

    /// Queues a record for writing. Never blocks.
    pub fn put(&mut self, entry: Entry) {
        self.count += 1;
        let number = self.count;
        let open = self.open.entry(entry.subject.clone()).or_insert_with(|| Open {
            number,
            failed: false,
            held: VecDeque::new(),
        });
        (open.number, open.failed) = (number, false);
        self.desk.put(number, entry);
    }

    /// Returns whether outputs of this subject have to wait for records.
    pub fn is_open(&self, subject: &Subject) -> bool {
        self.open.contains_key(subject)
    }

    /// Holds an output until the subject's records are written. Returns it if too many are held, or no records are
    /// pending.
    pub fn hold(&mut self, subject: &Subject, what: H) -> Result<(), H> {
        let Some(open) = self.open.get_mut(subject) else { return Err(what) };
        if open.held.len() >= MOST_HELD {
            return Err(what);
        }
        if std::mem::take(&mut open.failed) {
            self.desk.try_again();
        }
        open.held.push_back((open.number, what));
        Ok(())
    }

    /// Notified whenever the thread has a result.
    pub fn told(&self) -> Arc<Notify> {
        Arc::clone(&self.desk.told)
    }

    /// The thread's results so far.
    pub fn outcome(&mut self) -> Outcome<H> {
        let (results, error) = self.desk.results();
        let mut outcome = Outcome { due: Vec::new(), failed: Vec::new(), error };
        for (subject, Written { number, good }) in results {
            let Some(open) = self.open.get_mut(&subject) else { continue };
            let waited = open.held.partition_point(|(waits_for, _)| *waits_for <= number);
            let waited = open.held.drain(..waited).map(|(_, what)| what);
            if good { &mut outcome.due } else { &mut outcome.failed }.extend(waited);
            if number < open.number {
                continue;
            }
            if good {
                self.open.remove(&subject);
            } else {
                open.failed = true;
            }
        }
        outcome
    }

    /// Waits until nothing is being written. After that, the caller may change the records in the
    /// store.
    pub fn settle(&self) {
        self.desk.settle();
    }

    /// Drops everything of a subject. Call it after [`Ledger::settle`], once the outcome has been handled.
    pub fn forget(&mut self, subject: &Subject) {
        self.open.remove(subject);
        self.desk.lock().waiting.retain(|_, waiting| waiting.entry.subject != *subject);
    }

    /// Checks that the writing thread is alive.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn writes(&self) -> anyhow::Result<()> {
        if self.desk.lock().ended {
            bail!("the thread that writes the daemon's state has ended");
        }
        Ok(())
    }
}

impl<H> Drop for Ledger<H> {
    /// Writes all waiting records.
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
    told: Arc<Notify>,
}

#[derive(Default)]
struct Papers {
    /// Records to be written, including those whose write failed.
    waiting: Batch,
    /// There is a reason to write.
    due: bool,
    /// A batch is being written.
    writing: bool,
    /// By subject.
    results: BTreeMap<Subject, Written>,
    error: Option<anyhow::Error>,
    /// The thread ends once nothing is due.
    closes: bool,
    /// The thread has ended.
    ended: bool,
}

/// Records with their numbers, by key.
type Batch = BTreeMap<String, Waiting>;

struct Waiting {
    number: u64,
    entry: Entry,
}

struct Written {
    number: u64,
    good: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, number: u64, entry: Entry) {
        self.lock().waiting.insert(entry.key.clone(), Waiting { number, entry });
        self.try_again();
    }

    fn try_again(&self) {
        self.lock().due = true;
        self.changed.notify_all();
    }

    fn results(&self) -> (BTreeMap<Subject, Written>, Option<anyhow::Error>) {
        let mut papers = self.lock();
        (std::mem::take(&mut papers.results), papers.error.take())
    }

    fn settle(&self) {
        let busy = |papers: &mut Papers| (papers.writing || papers.due) && !papers.ended;
        let _papers = self.changed.wait_while(self.lock(), busy);
    }

    /// Takes all waiting records; `None` if nothing is due and the ledger is closing.
    fn take(&self) -> Option<Batch> {
        let idle = |papers: &mut Papers| !papers.due && !papers.closes;
        let waited = self.changed.wait_while(self.lock(), idle);
        let mut papers = waited.unwrap_or_else(PoisonError::into_inner);
        papers.writing = std::mem::take(&mut papers.due);
        papers.writing.then(|| std::mem::take(&mut papers.waiting))
    }

    /// Records that could not be written go into the next batch, unless a newer one replaces them: a later record of a
    /// subject is never on disk without the earlier ones.
    fn done(&self, batch: Batch, result: anyhow::Result<()>) {
        let good = result.is_ok();
        let mut papers = self.lock();
        for (key, Waiting { number, entry }) in batch {
            let subject = papers.results.entry(entry.subject.clone());
            let written = subject.or_insert(Written { number, good });
            *written = Written { number: number.max(written.number), good };
            if !good {
                papers.waiting.entry(key).or_insert(Waiting { number, entry });
            }
        }
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

/// Writes records in one transaction.
fn write(store: &dyn Store, table: StoreTable, batch: &Batch) -> anyhow::Result<()> {
    let mut writes = Vec::new();
    for Waiting { entry: Entry { key, value, .. }, .. } in batch.values() {
        let table = table.name;
        writes.push(match value {
            Some(value) => Write::Put { table, key, value, lifetime: None },
            None => Write::Delete { table, key },
        });
    }
    store.transact(&[], &writes).with_context(|| {
        let first = batch.keys().next().map_or("", String::as_str);
        let more = match batch.len().saturating_sub(1) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let of = table.of;
        format!("the {of} of {first}{more} cannot be written down and is not answered")
    })?;
    debug!("{} records written in one transaction", batch.len());
    Ok(())
}

#[cfg(test)]
mod tests;
