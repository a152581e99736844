//! Performance bars: real daemons on the demonstration's network in namespaces, judged by the
//! emulator's record of each packet. Each test prints its measurement beside its bar (`cargo test
//! --test bars -- --nocapture`). The tests need root; otherwise each prints a note and does
//! nothing.
//!
//! A busy machine delays daemons. Every bar on a duration therefore allows for the scheduling delay
//! measured at the same time: the larger of the delay of a test thread ([`late`]) and the delay of
//! the daemon's requests.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod accuracy;
mod busy;
mod defaults;
mod detection;
mod directions;
mod filtered;
mod flow;
mod late;
mod loss;
mod lossy;
mod restart;
mod returns;
mod rides;
mod round_trip;
mod stage;
mod step;
mod truth;
mod unplugged;
mod voice;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Both datapaths.
const DATAPATHS: [&str; 2] = ["ebpf", "user"];

/// Many networks at once are themselves a load, so a test that starts them runs alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// A share of the machine. Without root, prints a note and returns `None`.
fn shared() -> Option<RwLockReadGuard<'static, ()>> {
    root().then(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

/// Exclusive use of the machine. Without root, prints a note and returns `None`.
fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    root().then(|| MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Runs `each` on all `items` in parallel, and fails if any of them fails.
fn together<T: Send>(items: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || each(item))).collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert_eq!(failed, 0, "see above");
    });
}
