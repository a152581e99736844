//! Finds damage in a file before redb works on it, and turns redb's panics into errors.
//!
//! redb trusts what a file that was closed in order says of its pages: a flipped bit can make it panic, or read a wrong value.
//! So [`verify`] first opens a copy in memory, where redb checks the sum of each page; the file itself stays as it is.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};

use crate::StoreError;

/// The longest file that is checked as a whole; of a longer one damage shows when the damaged page is read.
const CHECKED_MAX: u64 = 64 << 20;

thread_local! {
    /// This thread runs redb: its panic is reported as an error, without a trace on the terminal.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs redb on the file at `path`.
///
/// # Errors
/// [`StoreError::Damaged`] if it panics, else its own.
pub(crate) fn guarded<T>(
    path: &Path,
    act: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !WITHIN.get() {
                usual(info);
            }
        }));
    });
    let outer = WITHIN.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(act));
    WITHIN.set(outer);
    outcome.unwrap_or_else(|_| Err(StoreError::Damaged { path: path.to_owned() }))
}

/// Checks all pages of the file at `path` that are in use.
///
/// # Errors
/// [`StoreError::InUse`], [`StoreError::Damaged`], [`StoreError::Format`], [`StoreError::Io`].
pub(crate) fn verify(path: &Path) -> Result<(), StoreError> {
    let mut file = File::open(path).map_err(StoreError::io("open", path))?;
    // Another process has it open and may be writing. Where locks are not supported, redb says so itself.
    if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return Err(StoreError::InUse { path: path.to_owned() });
    }
    let length = file.metadata().map_err(StoreError::io("read", path))?.len();
    if length == 0 || length > CHECKED_MAX {
        return Ok(());
    }
    open_copy(path, &mut file).map(drop)
}

/// Opens a copy of the file in memory, after a check of all pages.
pub(crate) fn open_copy(path: &Path, file: &mut File) -> Result<Database, StoreError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
    let copy = InMemoryBackend::new();
    let filled = copy.set_len(bytes.len() as u64).and_then(|()| copy.write(0, &bytes));
    filled.map_err(StoreError::io("read", path))?;
    let damaged = || StoreError::Damaged { path: path.to_owned() };
    // Memory has no errors of its own.
    let fail = |error: redb::Error| match StoreError::backend(path, error) {
        format @ StoreError::Format { .. } => format,
        _ => damaged(),
    };
    guarded(path, || {
        let opened = Database::builder().create_with_backend(copy);
        let mut database = opened.map_err(|error| fail(error.into()))?;
        let is_whole = database.check_integrity().map_err(|error| fail(error.into()))?;
        is_whole.then_some(database).ok_or_else(damaged)
    })
}
