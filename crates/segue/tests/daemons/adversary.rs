//! What neither an outsider's nor the system's tricks may do to the daemons.

use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

use crate::over_both;
use crate::world::{Daemon, World, paths_up, registered, text};

over_both! { among_others:
    enrolling_a_name_again_ends_what_the_old_credentials_have
    a_host_without_ipv6_works_with_ipv4_alone
    logs_that_cannot_be_written_end_no_daemon
}

fn enrolling_a_name_again_ends_what_the_old_credentials_have(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, mut host) = world.running();
    let join = world.enroll(&anchor, "laptop");
    anchor.wait("the old registration is gone", |status| {
        status["hosts"] == serde_json::json!([]) && status["paths"] == serde_json::json!([])
    });
    host.wait("the old host knows", |status| !registered(status));
    host.end(Signal::SIGTERM);
    let host = world.host(&join);
    host.wait("the new credentials serve", |status| paths_up(status) == 2);
}

fn a_host_without_ipv6_works_with_ipv4_alone(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    world
        .net
        .host()
        .run(|| {
            for scope in ["all", "default"] {
                let key = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
                std::fs::write(key, "1").unwrap();
            }
        })
        .unwrap();
    let anchor = world.anchor();
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("registered, with paths", |status| registered(status) && paths_up(status) == 2);
}

fn logs_that_cannot_be_written_end_no_daemon(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    for daemon in ["anchor", "host"] {
        let log = world.path(daemon).with_extension("log");
        std::os::unix::fs::symlink("/dev/full", log).unwrap();
    }
    let (mut anchor, mut host) = world.running();
    assert!(anchor.runs() && host.runs());
}

/// A file system that goes away with this value.
struct Tmpfs(std::path::PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_does_not_end_the_anchor() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let directory = world.path("small");
    std::fs::create_dir(&directory).unwrap();
    let size = Some("size=1700k");
    mount(Some("segue"), &directory, Some("tmpfs"), MsFlags::empty(), size).unwrap();
    let small = Tmpfs(directory);
    let state = small.0.join("anchor.db");
    let args = ["anchor", "--datapath", "user", "--state", state.to_str().unwrap()];
    let mut anchor = Daemon::start(world.net.anchor(), world.path("anchor"), &args);
    anchor.wait("the anchor answers", |_| true);
    // While the disk is full nobody can be enrolled.
    let join = world.enroll(&anchor, "laptop");
    let mut host = world.host(&join);
    host.wait("registered", registered);
    host.end(Signal::SIGTERM);
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k"])
        .arg(format!("of={}", small.0.join("fill").display()))
        .output()
        .unwrap();
    assert!(text(&filled.stderr).contains("No space left"), "{}", text(&filled.stderr));
    // Each start is a new registration, which the anchor wants to write down.
    for _ in 0..2 {
        let mut host = world.host(&join);
        host.wait("registered", registered);
        host.end(Signal::SIGTERM);
    }
    assert!(anchor.runs());
    assert!(anchor.log().contains("will not outlive a restart"), "{}", anchor.log());
}
