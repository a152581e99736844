//! The example protocol as daemons: they store leases, and set and remove addresses.

use std::path::Path;

use nix::sys::signal::Signal;
use segue_daemon::control::{Request, Response, Status, ask};
use segue_daemon::echo::{Ask, Words};
use segue_lab::Lab;
use segue_lab::topology::End;
use segue_linux::netns::Netns;

use crate::world::{Daemon, possible, tag, text, wait_for};

fn status(daemon: &Daemon) -> Option<Status<Words>> {
    let wanted = Request::<Words>::Status { events_from: 0 };
    match ask(&daemon.socket(), &wanted).ok()? {
        Response::Status(status) => Some(*status),
        _ => None,
    }
}

fn leases(daemon: &Daemon) -> Vec<(String, u64)> {
    let status = status(daemon);
    status.map(|status| status.body.leases.into_iter().collect()).unwrap_or_default()
}

fn has(node: &Netns, address: &str) -> bool {
    let all = node.command("ip").args(["-o", "-4", "address", "show"]).output().unwrap();
    text(&all.stdout).contains(&format!(" {address}/24 "))
}

fn client(lab: &Lab, name: &str, owner: &str, dir: &Path) -> Daemon {
    let args = ["echo", "--server", "10.61.1.1", "--owner", owner];
    Daemon::start(lab.node(name).unwrap(), dir.join(name), &args)
}

#[test]
fn addresses_are_leased_stored_set_and_taken_away() {
    let _turn = crate::among_others();
    if !possible() {
        return;
    }
    let building = crate::building();
    let mut lab = Lab::new(&tag()).unwrap();
    for node in ["server", "a", "b"] {
        lab.add_node(node, false).unwrap();
    }
    for (net, node) in [(1, "a"), (2, "b")] {
        let [near, far] = [1, 2].map(|n| [format!("10.61.{net}.{n}/24").parse().unwrap()]);
        let server = End { node: "server", device: node, addresses: &near };
        lab.connect(server, End { node, device: "up0", addresses: &far }).unwrap();
    }
    let server = "10.61.2.1".parse().unwrap();
    lab.route("b", "10.61.1.0/24".parse().unwrap(), server, None).unwrap();
    drop(building);
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("leases.db");
    let serve = || {
        let args = ["echo", "--pool", "10.9.0.0/24", "--lifetime", "3", "--state"];
        let args = [&args[..], &[state.to_str().unwrap()]].concat();
        Daemon::start(lab.node("server").unwrap(), dir.path().join("server"), &args)
    };
    let mut server = serve();
    wait_for("the server", || status(&server).is_some());
    let a = client(&lab, "a", "7", dir.path());
    wait_for("the first lease", || leases(&a) == [("10.9.0.1/24".into(), 7)]);
    let mut b = client(&lab, "b", "8", dir.path());
    let second = || leases(&b) == [("10.9.0.2/24".into(), 8)];
    wait_for("the second lease", second);
    assert_eq!(leases(&server), [("10.9.0.1/24".into(), 7), ("10.9.0.2/24".into(), 8)]);
    let [node_a, node_b] = ["a", "b"].map(|name| lab.node(name).unwrap());
    wait_for("their addresses", || has(node_a, "10.9.0.1") && has(node_b, "10.9.0.2"));

    // The daemon restores an address that another program removed.
    let removed =
        node_a.command("ip").args(["address", "del", "10.9.0.1/24", "dev", "up0"]).status();
    assert!(removed.unwrap().success() && !has(node_a, "10.9.0.1"));
    wait_for("the address is back", || has(node_a, "10.9.0.1"));

    // The server knows its stored leases after a crash: the first client renews last and still has its address.
    server.end(Signal::SIGKILL);
    server = serve();
    wait_for("the server", || leases(&server).len() == 2);
    assert!(second() && leases(&a) == [("10.9.0.1/24".into(), 7)]);

    // Without a server, a lease expires and its address is removed.
    server.end(Signal::SIGTERM);
    wait_for("the lease is over", || leases(&a).is_empty() && !has(node_a, "10.9.0.1"));
    let kinds = status(&a).unwrap().events.into_iter().map(|event| event.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), ["leased", "ended"]);
    server = serve();
    wait_for("a lease anew", || !leases(&a).is_empty() && second());
    // `status` and `events` work with a daemon of any role; tunnel verbs report the role that they found.
    let shown = [&["status"][..], &["events"]].map(|verb| text(&a.cli(verb).stdout));
    assert!(shown[0].starts_with("echo-client, up") && !shown[1].is_empty(), "{shown:?}");
    let refused = text(&a.cli(&["paths"]).stderr);
    assert!(refused.contains("with the role echo-client"), "{refused}");

    let released = ask(&a.socket(), &Request::<Words>::Own(Ask::Release)).unwrap();
    assert!(matches!(released, Response::Done(_)), "{released:?}");
    let refused = ask(&server.socket(), &Request::<Words>::Own(Ask::Release));
    assert!(refused.unwrap_err().to_string().contains("clients alone"));
    wait_for("the same lease", || leases(&a) == [("10.9.0.1/24".into(), 7)]);

    // A daemon stopped by SIGTERM removes its addresses.
    assert!(has(node_b, "10.9.0.2"));
    assert!(b.end(Signal::SIGTERM).success());
    assert!(!has(node_b, "10.9.0.2"));
}
