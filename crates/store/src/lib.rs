//! State that outlives a process: registrations, enrolments, address leases, keys.
//!
//! Everything goes through the [`Store`] trait; nothing else writes state files. [`Embedded`] keeps it in one file of
//! the machine. Several anchors that share the load share a store elsewhere; the trait fits etcd as it is:
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

/// What must be true for a transaction to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The key has no value (or one that has expired).
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
        /// The value it must have.
        value: &'a [u8],
    },
}

/// What a transaction changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Gives the key this value.
    Put {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
        /// Its value.
        value: &'a [u8],
        /// The value vanishes after this long, even across restarts of the process.
        lifetime: Option<Duration>,
    },
    /// Removes the key's value, if it has one.
    Delete {
        /// Table of the key.
        table: &'a str,
        /// The key.
        key: &'a str,
    },
}

/// Tables of keys with values. What a call has written is durable when it returns.
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

    /// Does all of `writes`, in order, if every one of `conditions` is true, else nothing; returns which. No reader
    /// sees a part of it, even after a crash.
    ///
    /// # Errors
    /// If the store cannot be written; nothing has changed then.
    fn transact(&self, conditions: &[Condition], writes: &[Write]) -> Result<bool, StoreError>;

    /// Gives `key` a value, replacing any other.
    ///
    /// # Errors
    /// As [`Store::transact`].
    fn put(&self, table: &str, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.transact(&[], &[Write::Put { table, key, value, lifetime: None }]).map(drop)
    }

    /// Gives `key` a value if it has none; returns whether it did. Of several callers that try, one succeeds.
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

    /// Gives `key` a value, replacing any other.
    ///
    /// # Errors
    /// [`StoreError::Value`] if it cannot be written as postcard, else as [`Store::put`].
    fn put_as<T: Serialize>(&self, table: &str, key: &str, value: &T) -> Result<(), StoreError> {
        self.put(table, key, &encode(table, key, value)?)
    }

    /// Gives `key` a value that vanishes after `lifetime`, replacing any other.
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
