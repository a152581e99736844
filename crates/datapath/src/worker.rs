//! A thread that serves a datapath until the datapath is dropped.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::DatapathError;
use crate::sync::lock;

/// The thread. Dropping the worker stops it and waits for it.
pub(crate) struct Worker {
    name: &'static str,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Why the thread has ended, if it gave a reason.
    ended: Arc<Mutex<Option<String>>>,
}

impl Worker {
    /// Starts a thread. `body` returns when the other end of its socket closes, or with the error that stops it.
    ///
    /// # Errors
    /// When the system has no more descriptors or threads.
    pub(crate) fn start(
        name: &'static str,
        body: impl FnOnce(&UnixStream) -> Result<(), String> + Send + 'static,
    ) -> Result<Worker, DatapathError> {
        let failed = |what| move |source: io::Error| DatapathError::Kernel { what, source };
        let ended = Arc::<Mutex<Option<String>>>::default();
        let (stop, stopped) =
            UnixStream::pair().map_err(failed("make the packet path's stop signal"))?;
        let why = Arc::clone(&ended);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                if let Err(error) = body(&stopped) {
                    *lock(&why) = Some(error);
                }
            })
            .map_err(failed("start the packet path's thread"))?;
        Ok(Worker { name, stop: Some(stop), thread: Some(thread), ended })
    }

    /// Checks that the thread is still running.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] if it is not; it is not restarted.
    pub(crate) fn runs(&self) -> Result<(), DatapathError> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let why = lock(&self.ended).clone().unwrap_or_else(|| "it panicked".into());
        Err(DatapathError::Ended { thread: self.name, why })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
