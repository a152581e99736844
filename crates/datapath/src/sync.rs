//! Locks that stay usable after a thread has panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires a lock. A panicking thread leaves only plain numbers behind, which stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
