//! Locks that a thread that panicked does not make unusable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A thread that panicked left plain numbers behind, which stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
