//! The bars that are held in namespaces: the real daemons on the demonstration's network, judged by
//! the emulator's own record of each packet. Each test prints what it measured beside its bar
//! (`cargo test --test bars -- --nocapture`). Needs root; without it each says so and does nothing.
//!
//! A busy machine delays daemons. So every bar on a duration allows for the scheduling delay that was
//! measured in the same moments: that of a thread of ours ([`late`]) and that of the daemon's own
//! requests, the larger of the two.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod accuracy;
mod busy;
mod defaults;
mod detection;
mod directions;
mod flow;
mod late;
mod loss;
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

/// Both ways of moving packets.
const DATAPATHS: [&str; 2] = ["ebpf", "user"];

/// Many networks at once are a load of their own: whoever starts them is alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// A share of the machine; `None`, and a word about it, without root.
fn shared() -> Option<RwLockReadGuard<'static, ()>> {
    root().then(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

/// The machine alone; `None`, and a word about it, without root.
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

/// Runs `each` with each of `items` at the same time, and fails if one of them fails.
fn together<T: Send>(items: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || each(item))).collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert_eq!(failed, 0, "see above");
    });
}
