//! A store in a single file, for a single anchor and for hosts.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{
    Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle,
    WriteTransaction,
};

use crate::damage::{guarded, open_copy, verify};
use crate::{Condition, Store, StoreError, Write};

/// Each value is prefixed with its expiry time: milliseconds since 1970, little-endian; [`FOREVER`] if it does not
/// expire.
const EXPIRY_BYTES: usize = 8;
const FOREVER: u64 = u64::MAX;

/// A [`Store`] in one file, which only one process at a time can open.
#[derive(Debug)]
pub struct Embedded {
    /// `None` while the file cannot be reopened.
    database: RwLock<Option<Database>>,
    /// A write has failed: redb accepts no other until the file is reopened.
    failed: AtomicBool,
    path: PathBuf,
}

impl Embedded {
    /// Opens the store at `path`. Creates a missing file, readable only by its owner (0600), and missing parent
    /// directories (0700). The mode of an existing file is set to 0600.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Damaged`], [`StoreError::Format`], [`StoreError::Io`].
    pub fn open(path: &Path) -> Result<Embedded, StoreError> {
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(StoreError::io("create directory", directory))?;
        }
        Embedded::of(open_file(path)?, path)
    }

    /// Reads the store at `path` into memory, even while another process has it open. Changes to the copy are lost.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Format`], [`StoreError::Io`].
    pub fn snapshot(path: &Path) -> Result<Embedded, StoreError> {
        let mut file = File::open(path).map_err(StoreError::io("read", path))?;
        Embedded::of(open_copy(path, &mut file)?, path)
    }

    fn of(database: Database, path: &Path) -> Result<Embedded, StoreError> {
        let store = Embedded {
            database: RwLock::new(Some(database)),
            failed: AtomicBool::new(false),
            path: path.to_owned(),
        };
        store.with(|database| store.purge(database))?;
        Ok(store)
    }

    /// Names of all tables that were ever written to.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn tables(&self) -> Result<Vec<String>, StoreError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(self.fail())?;
            let tables = transaction.list_tables().map_err(self.fail())?;
            Ok(tables.map(|table| table.name().to_owned()).collect())
        })
    }

    /// Reopens the file after a failed write, as a restart would.
    fn mend(&self) -> Result<(), StoreError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Another caller may have reopened it already.
        if self.failed.load(Ordering::Acquire) {
            // Dropping the database releases the lock on the file.
            let closed = database.take();
            let _ = guarded(&self.path, || {
                drop(closed);
                Ok(())
            });
            *database = Some(open_file(&self.path)?);
            self.failed.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = || self.database.read().unwrap_or_else(PoisonError::into_inner);
        if database().is_none() {
            self.mend()?;
        }
        let database = database();
        let closed = || StoreError::Closed { path: self.path.clone() };
        let database = database.as_ref().ok_or_else(closed)?;
        guarded(&self.path, || act(database))
    }

    fn fail<E: Into<redb::Error>>(&self) -> impl Fn(E) -> StoreError {
        |error| StoreError::backend(&self.path, error.into())
    }

    /// Removes expired values. Expired values are never returned, but occupy space until the store is next opened or
    /// their key is written.
    fn purge(&self, database: &Database) -> Result<(), StoreError> {
        let transaction = database.begin_write().map_err(self.fail())?;
        let tables: Vec<String> = transaction
            .list_tables()
            .map_err(self.fail())?
            .map(|table| table.name().to_owned())
            .collect();
        let now_ms = now_ms();
        for name in tables {
            let mut table = transaction.open_table(definition(&name)).map_err(self.fail())?;
            table.retain(|_, stored| alive(stored, now_ms).is_some()).map_err(self.fail())?;
        }
        transaction.commit().map_err(self.fail())
    }

    fn holds(
        &self,
        transaction: &WriteTransaction,
        now_ms: u64,
        condition: &Condition,
    ) -> Result<bool, StoreError> {
        let (Condition::Absent { table, key } | Condition::Holds { table, key, .. }) = *condition;
        let table = transaction.open_table(definition(table)).map_err(self.fail())?;
        let stored = table.get(key).map_err(self.fail())?;
        let value = stored.as_ref().and_then(|stored| alive(stored.value(), now_ms));
        Ok(match condition {
            Condition::Absent { .. } => value.is_none(),
            Condition::Holds { value: wanted, .. } => value == Some(*wanted),
        })
    }

    fn write(
        &self,
        transaction: &WriteTransaction,
        now_ms: u64,
        write: &Write,
    ) -> Result<(), StoreError> {
        let (Write::Put { table, .. } | Write::Delete { table, .. }) = *write;
        let mut table = transaction.open_table(definition(table)).map_err(self.fail())?;
        match *write {
            Write::Put { key, value, lifetime, .. } => {
                let expiry = lifetime.map_or(FOREVER, |lifetime| {
                    let ms = u64::try_from(lifetime.as_millis()).unwrap_or(FOREVER);
                    now_ms.saturating_add(ms)
                });
                let mut stored = expiry.to_le_bytes().to_vec();
                stored.extend_from_slice(value);
                table.insert(key, stored.as_slice()).map_err(self.fail())?;
            }
            Write::Delete { key, .. } => {
                table.remove(key).map_err(self.fail())?;
            }
        }
        Ok(())
    }
}

impl Embedded {
    fn find(
        &self,
        database: &Database,
        table: &str,
        key: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = database.begin_read().map_err(self.fail())?;
        let table = match transaction.open_table(definition(table)) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(self.fail()(error)),
        };
        let stored = table.get(key).map_err(self.fail())?;
        Ok(stored.and_then(|stored| alive(stored.value(), now_ms()).map(<[u8]>::to_vec)))
    }

    fn scan(&self, database: &Database, table: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let transaction = database.begin_read().map_err(self.fail())?;
        let table = match transaction.open_table(definition(table)) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(self.fail()(error)),
        };
        let now_ms = now_ms();
        let mut found = Vec::new();
        for entry in table.iter().map_err(self.fail())? {
            let (key, stored) = entry.map_err(self.fail())?;
            if let Some(value) = alive(stored.value(), now_ms) {
                found.push((key.value().to_owned(), value.to_vec()));
            }
        }
        Ok(found)
    }

    fn attempt(
        &self,
        database: &Database,
        conditions: &[Condition],
        writes: &[Write],
    ) -> Result<bool, StoreError> {
        let transaction = database.begin_write().map_err(self.fail())?;
        let now_ms = now_ms();
        for condition in conditions {
            if !self.holds(&transaction, now_ms, condition)? {
                transaction.abort().map_err(self.fail())?;
                return Ok(false);
            }
        }
        // An error before the commit drops the transaction, which rolls it back.
        for write in writes {
            self.write(&transaction, now_ms, write)?;
        }
        transaction.commit().map_err(self.fail())?;
        Ok(true)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let database = self.database.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = guarded(&self.path, || {
            drop(database);
            Ok(())
        });
    }
}

impl Store for Embedded {
    fn get(&self, table: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|database| self.find(database, table, key))
    }

    fn list(&self, table: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(|database| self.scan(database, table))
    }

    fn transact(&self, conditions: &[Condition], writes: &[Write]) -> Result<bool, StoreError> {
        self.mend()?;
        let done = self.with(|database| self.attempt(database, conditions, writes));
        if done.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        done
    }
}

/// Opens the file, or creates one atomically: it becomes visible only when it is complete.
fn open_file(path: &Path) -> Result<Database, StoreError> {
    if path.exists() {
        verify(path)?;
        return open_at(path, path);
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(new);
    let database = open_at(&new, path);
    // Linking never replaces a file: another process may have created it first.
    let linked = match &database {
        Ok(_) => std::fs::hard_link(&new, path),
        Err(_) => Ok(()),
    };
    let removed = std::fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_at(path, path),
        Err(error) => Err(StoreError::io("create", path)(error)),
        Ok(()) => {
            let database = database?;
            removed.map_err(StoreError::io("remove", &new))?;
            Ok(database)
        }
    }
}

/// Opens or creates the file at `at` with mode 0600. Errors name `path`.
fn open_at(at: &Path, path: &Path) -> Result<Database, StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(at)
        .map_err(StoreError::io("open", path))?;
    let copy = file.try_clone().map_err(StoreError::io("open", path))?;
    let create = || Database::builder().create_file(copy);
    let database =
        guarded(path, || create().map_err(|error| StoreError::backend(path, error.into())))?;
    // Change the mode only of a file that turned out to be a store.
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(StoreError::io("set the mode of", path))?;
    Ok(database)
}

fn definition(table: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(table)
}

/// The value without its expiry; `None` if it has expired.
fn alive(stored: &[u8], now_ms: u64) -> Option<&[u8]> {
    let (expiry, value) = stored.split_first_chunk::<EXPIRY_BYTES>()?;
    (u64::from_le_bytes(*expiry) > now_ms).then_some(value)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreExt;

    #[test]
    fn a_file_that_could_not_be_opened_again_is_tried_by_the_next_who_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let [path, aside] = ["store.db", "aside.db"].map(|name| directory.path().join(name));
        let store = Embedded::open(&path).unwrap();
        store.put_as("table", "key", &7).unwrap();
        // As after a failed write: the next call tries to reopen the file and fails.
        store.failed.store(true, Ordering::Release);
        std::fs::rename(&path, &aside).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(store.put_as("table", "key", &8).is_err());
        assert!(store.get_as::<i32>("table", "key").is_err());
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(store.get_as("table", "key").unwrap(), Some(7));
        store.put_as("table", "key", &9).unwrap();
    }
}
