//! The user's request to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports whether the user has asked to stop.
#[derive(Clone)]
pub struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// Returns true once SIGINT or SIGTERM has arrived.
    pub fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Catches SIGINT and SIGTERM from this call on, so that the program can clean up.
pub fn interrupts() -> anyhow::Result<Interrupts> {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block()?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::spawn(move || {
        while set.wait().is_ok() {
            raised.store(true, Ordering::Relaxed);
        }
    });
    Ok(Interrupts(flag))
}
