//! Which hosts may join, and which enrolments survive a restart of the anchor.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::over_both;
use crate::traffic::{Stream, UdpEcho, Voice, correspondents, one_datagram};
use crate::world::{World, inner, paths_up, registered, text, wait_for};

over_both! { among_others:
    credentials_of_another_anchor_or_of_an_ended_enrolment_are_refused
    a_host_returns_to_a_restarted_anchor_and_keeps_its_addresses
}

fn credentials_of_another_anchor_or_of_an_ended_enrolment_are_refused(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    // The state of another anchor: its authority signs, but this anchor does not know it.
    let state = world.path("other.db");
    let foreign = std::process::Command::new(crate::world::SEGUE)
        .args(["enroll", "stranger", "--at", &segue_lab::DemoNet::ANCHOR.0.to_string()])
        .arg("--state")
        .arg(&state)
        .arg("--control")
        .arg(world.path("nobody.sock"))
        .output()
        .unwrap();
    assert!(foreign.status.success(), "{}", text(&foreign.stderr));
    let (anchor, host) = world.running();
    let stream =
        Stream::start(world.net.host(), world.net.cn(), correspondents()[0], Duration::ZERO);
    let stranger = world.host_in(
        world.net.cn(),
        "stranger",
        text(&foreign.stdout).trim(),
        "device = \"segue1\"\n",
    );
    wait_for("a log that says why", || stranger.log().contains("certificate"));
    std::thread::sleep(Duration::from_secs(2));
    let status = stranger.status();
    assert!(!registered(&status) && status["inner"] == serde_json::json!([]), "{status:#}");
    assert_eq!(anchor.status()["hosts"].as_array().unwrap().len(), 1);
    drop(stranger);

    let removed = anchor.cli(&["enroll", "laptop", "--remove"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    anchor.wait("the host is gone", |status| {
        status["hosts"] == serde_json::json!([]) && status["paths"] == serde_json::json!([])
    });
    host.wait("the host knows", |status| !registered(status));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!registered(&host.status()), "it stays out");
    assert_eq!(anchor.status()["hosts"], serde_json::json!([]));
    drop(stream);
    let again = anchor.cli(&["enroll", "laptop", "--remove"]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("not enrolled"));
}

fn a_host_returns_to_a_restarted_anchor_and_keeps_its_addresses(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (mut anchor, host) = world.running();
    let before = inner(&host.status());
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        anchor.end(signal);
        host.wait("the host knows", |s| !registered(s) || paths_up(s) == 0);
        anchor = world.anchor();
        let status = host.wait("registered again", |s| registered(s) && paths_up(s) == 2);
        assert_eq!(inner(&status), before, "after {signal}");
        voice.flows_on(20);
        let echo = UdpEcho::start(world.net.cn(), correspondents()[1]);
        one_datagram(world.net.host(), echo.address).expect("a new flow passes");
    }
    // A second anchor with the same state, control socket or ports is refused and changes nothing.
    second_anchor_is_refused(&world);
    assert!(anchor.runs());
    voice.flows_on(20);
    assert!(registered(&host.status()));
}

fn second_anchor_is_refused(world: &World) {
    let args = |control: &str, state: &str| {
        vec![
            "anchor".to_owned(),
            "--datapath".into(),
            world.datapath.into(),
            "--control".into(),
            world.path(control).to_str().unwrap().into(),
            "--state".into(),
            world.path(state).to_str().unwrap().into(),
        ]
    };
    for (control, state, part) in [
        ("anchor.sock", "second.db", "another daemon already listens"),
        ("second.sock", "anchor.db", "another segue uses"),
        ("second.sock", "second.db", "in use"),
    ] {
        let mut command = world.net.anchor().command(crate::world::SEGUE);
        let output = command.args(args(control, state)).output().unwrap();
        crate::refusals::expect_one_line(&output, part);
        assert!(!world.path("second.sock").exists());
    }
}
