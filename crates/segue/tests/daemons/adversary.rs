//! Attacks by outsiders, and faults of the system, that must not harm the daemons.

use nix::sys::signal::Signal;

use crate::over_both;
use crate::world::{World, paths_up, registered};

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
