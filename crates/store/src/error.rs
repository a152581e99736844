//! Errors of persistent state.

use std::io;
use std::path::{Path, PathBuf};

/// A store that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("another segue uses {}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a store, or is damaged.
    #[error("{} is damaged or no state file of segue; move it away to start afresh", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by an incompatible version.
    #[error("{} has the file format {version}, which this version cannot read", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The version found.
        version: u8,
    },
    /// The operating system reported an error.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// A write failed, and the file has not been reopened successfully since.
    #[error("{} failed and cannot be opened again yet", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// Any other error of redb.
    #[error("{}: {source}", path.display())]
    Backend {
        /// The file.
        path: PathBuf,
        /// The error of redb.
        #[source]
        source: Box<redb::Error>,
    },
    /// A value does not have the requested type.
    #[error("the value of {key} in table {table} does not decode: {source}")]
    Value {
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// The error of the decoder.
        #[source]
        source: postcard::Error,
    },
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { what, path, source }
    }

    pub(crate) fn value(table: &str, key: &str, source: postcard::Error) -> StoreError {
        StoreError::Value { table: table.into(), key: key.into(), source }
    }

    /// Classifies redb's errors by what an operator can do about them.
    pub(crate) fn backend(path: &Path, error: redb::Error) -> StoreError {
        let path = path.to_owned();
        match error {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path },
            redb::Error::Corrupted(_) => StoreError::Damaged { path },
            redb::Error::UpgradeRequired(version) => StoreError::Format { path, version },
            redb::Error::Io(source) => match source.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    StoreError::Damaged { path }
                }
                _ => StoreError::Io { what: "use", path, source },
            },
            other => StoreError::Backend { path, source: Box::new(other) },
        }
    }
}
