//! Persistent state: registrations, enrolments, address leases, keys.
//!
//! All state files are written through the [`Store`] trait. [`Embedded`] stores everything in one local file. Several
//! anchors that share the load need a shared store; the trait maps to etcd as it is:
//!
//! | here | embedded | etcd |
//! | --- | --- | --- |
//! | table and key | a redb table | `/segue/TABLE/KEY` |
//! | [`Store::transact`] | one write transaction | one `Txn`: compare, then put and delete |
//! | lifetime of a value | expiry stored with it, checked on reading | a lease of that time to live |
//! | [`Store::list`] | table scan | range over the prefix |
//!
//! Values are bytes; [`StoreExt`] reads and writes any serde type as postcard.

mod damage;
mod embedded;
mod error;

use std::time::Duration;

pub use embedded::Embedded;
pub use error::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A precondition of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The key has no value, or only an expired one.
    Absent {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
    },
    /// The key has exactly this value.
    Holds {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
        /// The required value.
        value: &'a [u8],
    },
}

/// A change in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Set the value of a key.
    Put {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
        /// The new value.
        value: &'a [u8],
        /// The value expires after this time, even across restarts of the process; `None`: never.
        lifetime: Option<Duration>,
    },
    /// Remove the value of a key, if it has one.
    Delete {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
    },
}

/// Tables of keys and values. A write is durable when the call returns.
pub trait Store: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn get(&self, table: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Every key of `table` with its value, in the order of the keys; empty for an unknown table.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn list(&self, table: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Applies all `writes`, in order, if all `conditions` hold; otherwise changes nothing. Returns whether it applied
    /// them. The change is atomic for readers and across crashes.
    ///
    /// # Errors
    /// If the store cannot be written; then nothing has changed.
    fn transact(&self, conditions: &[Condition], writes: &[Write]) -> Result<bool, StoreError>;

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As [`Store::transact`].
    fn put(&self, table: &str, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.transact(&[], &[Write::Put { table, key, value, lifetime: None }]).map(drop)
    }

    /// Sets the value of `key` if it has none, and returns whether it did. Only one of several concurrent callers
    /// succeeds.
    ///
    /// # Errors
    /// As [`Store::transact`].
    fn put_if_absent(&self, table: &str, key: &str, value: &[u8]) -> Result<bool, StoreError> {
        self.transact(
            &[Condition::Absent { table, key }],
            &[Write::Put { table, key, value, lifetime: None }],
        )
    }

    /// Removes the value of `key`, if it has one.
    ///
    /// # Errors
    /// As [`Store::transact`].
    fn delete(&self, table: &str, key: &str) -> Result<(), StoreError> {
        self.transact(&[], &[Write::Delete { table, key }]).map(drop)
    }
}

/// Typed values in any [`Store`], as postcard.
pub trait StoreExt: Store {
    /// The value of `key` as a `T`.
    ///
    /// # Errors
    /// [`StoreError::Value`] if it is not one, else as [`Store::get`].
    fn get_as<T: DeserializeOwned>(&self, table: &str, key: &str) -> Result<Option<T>, StoreError> {
        self.get(table, key)?.map(|bytes| decode(table, key, &bytes)).transpose()
    }

    /// Every key of `table` with its value as a `T`.
    ///
    /// # Errors
    /// [`StoreError::Value`] if one of them is not a `T`, else as [`Store::list`].
    fn list_as<T: DeserializeOwned>(&self, table: &str) -> Result<Vec<(String, T)>, StoreError> {
        let decoded = |(key, bytes): (String, Vec<u8>)| {
            let value = decode(table, &key, &bytes)?;
            Ok((key, value))
        };
        self.list(table)?.into_iter().map(decoded).collect()
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// [`StoreError::Value`] if it cannot be encoded as postcard, else as [`Store::put`].
    fn put_as<T: Serialize>(&self, table: &str, key: &str, value: &T) -> Result<(), StoreError> {
        self.put(table, key, &encode(table, key, value)?)
    }

    /// Sets the value of `key`, which expires after `lifetime`.
    ///
    /// # Errors
    /// As [`StoreExt::put_as`].
    fn put_for<T: Serialize>(
        &self,
        table: &str,
        key: &str,
        value: &T,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let value = &encode(table, key, value)?;
        let write = Write::Put { table, key, value, lifetime: Some(lifetime) };
        self.transact(&[], &[write]).map(drop)
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

fn encode<T: Serialize>(table: &str, key: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_allocvec(value).map_err(|source| StoreError::value(table, key, source))
}

fn decode<T: DeserializeOwned>(table: &str, key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|source| StoreError::value(table, key, source))
}
