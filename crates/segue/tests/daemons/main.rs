//! The daemons end to end: the real binary in network namespaces, over both datapaths, controlled
//! and observed only through the command line. The tests need root; otherwise each prints a note
//! and does nothing.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod adversary;
mod capabilities;
mod changes;
mod clocks;
mod closed;
mod credentials;
mod crowd;
mod diagnosis;
mod doctor;
mod echo;
mod enrolment;
#[path = "../shared/exposition.rs"]
mod exposition;
mod fleet;
mod floods;
mod foreign;
mod handover;
mod hostile;
mod keepalive;
mod leases;
mod life;
mod memory;
mod mih;
mod mtu;
mod names;
mod nat;
mod nat64;
mod outage;
mod pairings;
mod pmip;
mod pmip_forged;
mod pmip_hosts;
mod pmip_ipv4;
mod pmip_quality;
mod pmip_radius;
mod pmip_sizes;
mod pmip_user;
mod portal;
#[path = "../views/pty.rs"]
mod pty;
mod radius_server;
mod reach;
mod readme;
mod reasons;
mod refusals;
mod routes;
#[path = "../shared/screen.rs"]
mod screen;
mod screens;
mod service;
mod several;
mod sizes_matrix;
mod stamp;
mod storms;
mod traffic;
mod translation;
mod upmt;
mod watch;
mod ways_out;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Timing tests run alone; all others share the machine.
static TURN: RwLock<()> = RwLock::new(());
/// The test runner decides how many tests run in parallel, but labs are built one at a time.
static BUILDING: Mutex<()> = Mutex::new(());

fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

fn among_others() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

fn building() -> MutexGuard<'static, ()> {
    BUILDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Generates a test for each datapath, which calls the function with the datapath's name. `$turn`
/// is `alone` or `among_others`.
macro_rules! over_both {
    ($turn:ident: $($name:ident)*) => { $($crate::over_both! { @one {} $turn $name })* };
    (#$ignored:tt $turn:ident: $($name:ident)*) => {
        $($crate::over_both! { @one { #$ignored } $turn $name })*
    };
    (@one { $(#$ignored:tt)? } $turn:ident $name:ident) => {
        mod $name {
            #[test]
            $(#$ignored)?
            fn over_ebpf() {
                let _turn = crate::$turn();
                super::$name("ebpf");
            }

            #[test]
            $(#$ignored)?
            fn in_user_space() {
                let _turn = crate::$turn();
                super::$name("user");
            }
        }
    };
}
pub(crate) use over_both;
