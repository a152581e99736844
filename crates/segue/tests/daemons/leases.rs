//! A host's lease is on disk before the host learns it, and a slow or full disk delays no other
//! host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use segue_daemon::signalling::Worker;
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION};

use crate::fleet::{Member, Peer};
use crate::several::Two;
use crate::world::{registered, text, wait_for};

/// A small separate file system.
struct Disk {
    directory: PathBuf,
}

/// Freezes a file system until dropped. Meanwhile a process that writes to it cannot even be
/// killed.
struct Frozen<'a>(&'a Path);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = done("fsfreeze", &["-u", self.0.to_str().unwrap()]);
    }
}

fn done(command: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(command).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    output.status.success().then_some(()).ok_or_else(|| text(&output.stderr))
}

impl Disk {
    /// An in-memory file system with just enough room for an anchor's state.
    fn small(within: &Path) -> Disk {
        let directory = within.join("disk");
        std::fs::create_dir(&directory).unwrap();
        let at = directory.to_str().unwrap();
        done("mount", &["-t", "tmpfs", "-o", "size=1800k", "segue", at]).unwrap();
        Disk { directory }
    }

    /// A file system that can be frozen: writes then wait until it is thawed. `None` without loop
    /// devices.
    fn freezable(within: &Path) -> Option<Disk> {
        let [image, directory] = ["disk.img", "disk"].map(|name| within.join(name));
        std::fs::File::create(&image).unwrap().set_len(24 << 20).unwrap();
        std::fs::create_dir(&directory).unwrap();
        let [image, at] = [&image, &directory].map(|path| path.to_str().unwrap());
        let made = done("mkfs.ext4", &["-q", "-m", "0", image])
            .and_then(|()| done("mount", &["-o", "loop", image, at]));
        match made {
            Ok(()) => Some(Disk { directory }),
            Err(error) => {
                println!("skipped: no file system to freeze: {error}");
                None
            }
        }
    }

    fn freeze(&self) -> Frozen<'_> {
        done("fsfreeze", &["-f", self.directory.to_str().unwrap()]).unwrap();
        Frozen(&self.directory)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = done("umount", &["-l", self.directory.to_str().unwrap()]);
    }
}

fn register(epoch: u64) -> FromHost {
    FromHost::Register { version: SIGNAL_VERSION, epoch }
}

#[test]
fn a_registration_is_answered_when_it_is_on_disk_and_a_slow_disk_holds_nothing_else_up() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let Some(disk) = Disk::freezable(two.directory()) else { return };
    let state = disk.directory.join("anchor.db");
    let mut anchor = two.anchor_at(&state);
    let worker = Arc::new(Worker::start().unwrap());
    let [alice, bob] = [("alice", 1, "a"), ("bob", 2, "b")].map(|(name, net, node)| {
        let line = two.enroll(&anchor, net, name);
        (Member::enrol(&worker, two.node(node), &line), two.node(node))
    });
    let mut standing = Peer::connect(&worker, bob.1, &bob.0).unwrap();
    standing.register(1).expect("registered");
    let written = || anchor.log().matches("written in one transaction").count();
    let before = written();

    let frozen = disk.freeze();
    // Register as often as the anchor allows in a burst; each registration is a new lease.
    let mut peer = Peer::connect(&worker, alice.1, &alice.0).unwrap();
    for epoch in 1..=8 {
        peer.send(&register(epoch)).unwrap();
    }
    wait_for("the anchor has heard them", || {
        anchor.log().matches("alice: registered").count() == 8
    });
    assert_eq!(peer.receive_within(Duration::from_secs(1)), None, "answered before it is kept");
    let start = Instant::now();
    for _ in 0..10 {
        anchor.status();
    }
    println!("status in {:?} while the disk is frozen", start.elapsed() / 10);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // Another host, which needs no write, is served.
    standing.add_path(0);
    drop(frozen);
    for epoch in 1..=8 {
        let answer = peer.receive();
        assert!(matches!(answer, Some(FromAnchor::Registered { .. })), "{epoch}: {answer:?}");
    }
    let transactions = written() - before;
    println!("8 registrations in {transactions} transactions");
    assert!((1..=2).contains(&transactions), "{transactions}");

    // An anchor killed while its answer is sent knows the lease after its restart.
    let mut peer = Peer::connect(&worker, alice.1, &alice.0).unwrap();
    let own = peer.register(100).expect("registered");
    anchor.end(Signal::SIGKILL);
    drop(anchor);
    let anchor = two.anchor_at(&state);
    let mut peer = Peer::connect(&worker, alice.1, &alice.0).unwrap();
    peer.send(&register(99)).unwrap();
    let refused = peer.receive();
    assert_eq!(refused, Some(FromAnchor::Refused { reason: Refusal::Behind { epoch: 100 } }));
    let mut peer = Peer::connect(&worker, alice.1, &alice.0).unwrap();
    assert_eq!(peer.register(101), Some(own));
    drop(anchor);
}

#[test]
fn what_does_not_fit_on_the_disk_is_not_answered_and_no_restart_is_needed_afterwards() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let disk = Disk::small(two.directory());
    let state = disk.directory.join("anchor.db");
    let mut anchor = two.anchor_at(&state);
    let mut standing = two.host(&anchor, 2, "b");
    let worker = Arc::new(Worker::start().unwrap());
    let line = two.enroll(&anchor, 1, "alice");
    let alice = Member::enrol(&worker, two.node("a"), &line);
    let fill = disk.directory.join("fill");
    let filled = done("dd", &["if=/dev/zero", "bs=4k", &format!("of={}", fill.display())]);
    assert!(filled.as_ref().is_err_and(|said| said.contains("No space left")), "{filled:?}");
    let register = |epoch| {
        let connected = Peer::connect(&worker, two.node("a"), &alice);
        connected.ok().and_then(|mut peer| peer.register(epoch))
    };
    // A few leases still fit into the file's free space.
    let epoch = (1..50).find(|epoch| register(*epoch).is_none()).expect("one is not answered");
    assert!(anchor.log().contains("registration of alice cannot be written down"));
    println!("registration {epoch} is the first that is not answered");
    assert!(anchor.runs() && standing.runs() && registered(&standing.status()));
    anchor.cli(&["enroll", "bob"]);
    std::fs::remove_file(&fill).unwrap();
    two.enroll(&anchor, 1, "bob");
    // The lease exists in memory, but is still written before the answer.
    wait_for("answered when there is room again", || register(epoch).is_some());
    anchor.end(Signal::SIGKILL);
    let _anchor = two.anchor_at(&state);
    assert_eq!(register(epoch - 1), None, "the lease is known");
    assert!(register(epoch).is_some());
}
