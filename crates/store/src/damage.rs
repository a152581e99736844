//! Detects damage in a file before redb opens it, and turns redb's panics into errors.
//!
//! redb trusts the pages of a file that was closed properly: a flipped bit can make it panic or return a wrong value.
//! [`verify`] therefore first opens a copy in memory, where redb verifies the checksum of each page. The file itself
//! is not changed.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};

use crate::StoreError;

/// Maximum size of a file that is checked as a whole, in bytes. Damage in a larger file is found when the damaged page
/// is read.
const CHECKED_MAX: u64 = 64 << 20;

thread_local! {
    /// True while this thread runs redb: a panic becomes an error and prints no trace.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs an operation of redb on the file at `path`.
///
/// # Errors
/// [`StoreError::Damaged`] if redb panics; otherwise the operation's error.
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

/// Checks all used pages of the file at `path`. A file larger than [`CHECKED_MAX`] passes unchecked.
///
/// # Errors
/// [`StoreError::InUse`], [`StoreError::Damaged`], [`StoreError::Format`], [`StoreError::Io`].
pub(crate) fn verify(path: &Path) -> Result<(), StoreError> {
    let mut file = File::open(path).map_err(StoreError::io("open", path))?;
    // Another process has the file open and may be writing. Where locks are not supported, redb reports that itself.
    if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return Err(StoreError::InUse { path: path.to_owned() });
    }
    let length = file.metadata().map_err(StoreError::io("read", path))?.len();
    if length == 0 || length > CHECKED_MAX {
        return Ok(());
    }
    open_copy(path, &mut file).map(drop)
}

/// Opens a copy of the file in memory and checks all pages.
pub(crate) fn open_copy(path: &Path, file: &mut File) -> Result<Database, StoreError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
    let copy = InMemoryBackend::new();
    let filled = copy.set_len(bytes.len() as u64).and_then(|()| copy.write(0, &bytes));
    filled.map_err(StoreError::io("read", path))?;
    let damaged = || StoreError::Damaged { path: path.to_owned() };
    // Memory cannot fail, so any other error means damage.
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
