//! How a host obtains, stores, renews and loses its key and certificate.

use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use segue_daemon::identity::{Join, new_key};
use segue_daemon::signalling::Worker;
use segue_wire::enrol::{EnrolRefusal, Enrolled};
use serde_json::Value;

use crate::fleet::ask_to_be_enrolled;
use crate::refusals::expect_one_line;
use crate::traffic::{Voice, correspondents};
use crate::world::{Daemon, SEGUE, World, inner, paths_up, registered, text, wait_for};

const HOST_FILE: &str = "[keepalive]\nk = 6\nperiod = \"50ms\"\n";

/// Runs a host that exits by itself; returns its output.
fn ends(world: &World, name: &str, more: &[&str]) -> String {
    // Use a separate device and port: another host may be running in the same node.
    let config = format!("device = \"segue1\"\nport = 5105\n{HOST_FILE}");
    let config = world.file(&format!("{name}.toml"), &config);
    let (state, control) = (world.path(&format!("{name}.db")), world.path(&format!("{name}.sock")));
    let mut command = world.net.host().command("timeout");
    command.args([
        "--signal=KILL",
        "60",
        SEGUE,
        "host",
        "--datapath",
        world.datapath,
        "-c",
        &config,
    ]);
    command.env("SEGUE_LOG", "error").arg("--state").arg(state).arg("--control").arg(control);
    let output = command.args(more).output().unwrap();
    expect_one_line(&output, "segue");
    text(&output.stderr)
}

fn enrolments(anchor: &Daemon) -> Vec<Value> {
    let listed = anchor.json(&["enroll", "--list", "--json"]).expect("the anchor answers");
    listed.as_array().unwrap().clone()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn up(status: &Value) -> bool {
    registered(status) && paths_up(status) == 2
}

#[test]
fn a_join_line_serves_one_host_once_and_both_ends_may_start_again() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let mut anchor = world.anchor();
    let line = world.enroll(&anchor, "laptop");
    assert_eq!(enrolments(&anchor)[0]["state"], "invited");
    let mut host = world.host(&line);
    let first = inner(&host.wait("registered", up));
    let listed = enrolments(&anchor);
    assert_eq!((&listed[0]["state"], &listed[0]["connected"]), (&"enrolled".into(), &true.into()));
    assert!(listed[0]["inner"].as_array().unwrap().contains(&first.0.to_string().into()));
    assert!(listed[0]["expires_s"].as_u64().unwrap() > now_s() + 80 * 86_400);
    // The host's private key exists only in its state, which only its owner may read.
    let mode = std::fs::metadata(world.path("host.db")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);

    // An attacker who has copied the join line.
    let said = ends(&world, "copy", &["--join", &line]);
    assert!(said.contains("has been used") && said.contains("segue enroll laptop"), "{said}");
    assert!(anchor.log().contains("audit: enrolment of laptop from"), "{}", anchor.log());
    assert!(registered(&host.status()), "the host itself does not notice");

    // Restart host and anchor: with the join line, without it, and with a missing file.
    host.end(Signal::SIGKILL);
    let host_again = |more: &[&str]| {
        let host = world.host_with(world.net.host(), "host", HOST_FILE, more);
        assert_eq!(inner(&host.wait("registered again", up)), first, "{more:?}");
        host
    };
    let gone = world.path("gone");
    for more in [&["--join", &line][..], &[], &["--join-file", gone.to_str().unwrap()]] {
        host_again(more).end(Signal::SIGTERM);
        wait_for("the anchor knows", || enrolments(&anchor)[0]["connected"] == false);
        let seen = enrolments(&anchor)[0]["seen_s"].as_u64().unwrap();
        assert!(seen + 60 > now_s() && seen <= now_s(), "{seen}");
    }
    anchor.end(Signal::SIGKILL);
    anchor = world.anchor();
    let _host = host_again(&[]);
    assert!(enrolments(&anchor)[0]["connected"] == true);
}

/// Each repeat costs the anchor a certificate and a log line, so repeats are rate-limited.
#[test]
fn a_line_that_is_shown_again_and_again_is_heard_at_a_pace() {
    const REPEATS: usize = 260;
    const AT_ONCE: usize = 200;
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let anchor = world.anchor();
    let worker = Arc::new(Worker::start().unwrap());
    let join: Join = world.enroll(&anchor, "laptop").parse().unwrap();
    let other: Join = world.enroll(&anchor, "phone").parse().unwrap();
    let (key, begun) = (new_key().unwrap(), Instant::now());
    let ask = |join| ask_to_be_enrolled(&worker, world.net.host(), join, &key);
    let answers: Vec<Enrolled> = (0..REPEATS).map(|_| ask(&join)).collect();
    // After the burst, two per second.
    let most = AT_ONCE + 2 * begun.elapsed().as_secs() as usize + 2;
    let is_answered = |answer: &Enrolled| matches!(answer, Enrolled::Certificate { .. });
    assert!(answers[..AT_ONCE].iter().all(is_answered));
    let answered = answers.iter().filter(|answer| is_answered(answer)).count();
    assert!(answered <= most, "{answered} of {REPEATS}, {most} at most");
    let later = Enrolled::Refused { reason: EnrolRefusal::Later };
    assert!(answers.contains(&later) || most >= REPEATS, "{answered} of {REPEATS}");
    assert!(answers.iter().filter(|answer| !is_answered(answer)).all(|answer| *answer == later));
    assert_eq!(anchor.log().matches("audit: laptop").count(), answered);
    assert!(is_answered(&ask(&other)), "another host does not notice");
}

#[test]
fn lines_that_are_late_replaced_or_removed_are_refused_with_advice() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let anchor = world.anchor();
    let at = segue_lab::DemoNet::ANCHOR.0.to_string();
    let enroll = |more: &[&str]| {
        let done = anchor.cli(&[&["enroll", "laptop", "--at", &at], more].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout).trim().to_owned()
    };
    let late = enroll(&["--valid", "1s"]);
    std::thread::sleep(Duration::from_millis(2_100));
    let said = ends(&world, "late", &["--join", &late]);
    assert!(said.contains("not used in time") && said.contains("segue enroll laptop"), "{said}");
    assert_eq!(enrolments(&anchor)[0]["state"], "line expired");
    let former = enroll(&[]);
    let replaced = enroll(&[]);
    let said = ends(&world, "former", &["--join", &former]);
    assert!(said.contains("does not know this join line"), "{said}");
    assert!(anchor.cli(&["enroll", "laptop", "--remove"]).status.success());
    let said = ends(&world, "removed", &["--join", &replaced]);
    assert!(said.contains("does not know this join line"), "{said}");
    assert_eq!(enrolments(&anchor), [] as [Value; 0]);
    for (what, times) in [("join line for laptop made", 3), ("laptop removed", 1)] {
        assert_eq!(anchor.log().matches(&format!("audit: {what}")).count(), times, "{what}");
    }
}

#[test]
fn a_certificate_is_renewed_in_time_and_an_expired_host_is_told_what_to_do() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let config = world.file("short.toml", "certificate_lifetime = \"9s\"\n");
    let anchor = world.anchor_with(&["-c", &config]);
    let mut host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("registered", up);
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    let renewed = |log: &str| log.matches("audit: laptop renewed its certificate").count();
    let first = enrolments(&anchor)[0]["expires_s"].as_u64().unwrap();
    // Past the expiry of the first and of the second certificate.
    wait_for("two renewals", || renewed(&anchor.log()) >= 2);
    wait_for("the end of the first", || now_s() > first + 1);
    assert!(!anchor.log().contains("has expired"), "{}", anchor.log());
    voice.flows_on(20);
    drop(voice);
    // The new certificate works after a restart.
    host.end(Signal::SIGKILL);
    let mut host = world.host_with(world.net.host(), "host", HOST_FILE, &[]);
    host.wait("registered again", up);

    host.end(Signal::SIGTERM);
    wait_for("the end of its certificate", || enrolments(&anchor)[0]["state"] == "expired");
    std::thread::sleep(Duration::from_secs(1));
    let said = ends(&world, "host", &[]);
    let wanted = "the certificate of this host has expired: run `segue enroll laptop`";
    assert!(said.contains(wanted), "{said}");
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("the new line serves", up);
}

#[test]
fn a_host_that_does_not_renew_is_cut_off_and_keeps_its_address() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let config = world.file("short.toml", "certificate_lifetime = \"9s\"\n");
    let anchor = world.anchor_with(&["-c", &config]);
    let host = world.host(&world.enroll(&anchor, "laptop"));
    let own = inner(&host.wait("registered", up));
    // The host is stopped until its certificate has expired.
    host.signal(Signal::SIGSTOP);
    anchor.wait("cut off", |status| status["hosts"] == serde_json::json!([]));
    assert!(anchor.log().contains("audit: the certificate of laptop has expired"));
    host.signal(Signal::SIGCONT);
    wait_for("a running host says what to do", || {
        host.log().contains("has expired: run `segue enroll laptop` at the anchor")
    });
    assert!(!registered(&host.status()));
    drop(host);
    let host = world.host(&world.enroll(&anchor, "laptop"));
    assert_eq!(inner(&host.wait("the new line serves", up)), own);
}

#[test]
fn the_addresses_of_a_removed_host_go_to_nobody_else() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let mut anchor = world.anchor();
    let mut host = world.host(&world.enroll(&anchor, "laptop"));
    let first = inner(&host.wait("registered", up));
    host.end(Signal::SIGTERM);
    assert!(anchor.cli(&["enroll", "laptop", "--remove"]).status.success());
    let mut given = vec![first];
    for restart in [false, true] {
        if restart {
            anchor.end(Signal::SIGKILL);
            anchor = world.anchor();
        }
        let name = if restart { "phone" } else { "tablet" };
        let line = world.enroll(&anchor, name);
        let mut host = world.host_in(world.net.host(), name, &line, HOST_FILE);
        let own = inner(&host.wait("registered", up));
        assert!(
            given.iter().all(|other| other.0 != own.0 && other.1 != own.1),
            "{own:?} {given:?}"
        );
        given.push(own);
        host.end(Signal::SIGTERM);
        assert!(anchor.cli(&["enroll", name, "--remove"]).status.success());
    }
}

#[test]
fn a_line_is_written_to_a_file_for_its_owner_alone_and_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let enroll = |more: &[&str]| -> Output {
        let mut command = std::process::Command::new(SEGUE);
        command.env("COLUMNS", "1000");
        command.args(["enroll", "--control", &path("none.sock"), "--state", &path("anchor.db")]);
        command.args(more).output().unwrap()
    };
    let mode = |name: &str| {
        let mode = std::fs::symlink_metadata(path(name)).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777
    };
    let out = path("join");
    let wanted = ["laptop", "--at", "192.0.2.1", "--out", &out];
    let done = enroll(&wanted);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), format!("wrote the join line to {out}\n"));
    let first = std::fs::read_to_string(&out).unwrap();
    assert!(first.starts_with("segue2:") && mode("join") == 0o600);
    expect_one_line(&enroll(&wanted), "is there already; replace it with --force");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), first);
    // A world-readable file of that name becomes private, and the target of a symbolic link stays
    // unchanged.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&out, open).unwrap();
    let forced = [&wanted[..], &["--force"]].concat();
    assert!(enroll(&forced).status.success());
    let second = std::fs::read_to_string(&out).unwrap();
    assert!(second != first && mode("join") == 0o600);
    std::fs::remove_file(&out).unwrap();
    std::fs::write(path("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(path("precious"), &out).unwrap();
    expect_one_line(&enroll(&wanted), "is there already");
    assert!(enroll(&forced).status.success());
    assert_eq!(std::fs::read_to_string(path("precious")).unwrap(), "precious");
    assert_eq!(mode("join"), 0o600);
    // A refused name creates no file, and an unwritable file uses up no enrolment.
    let (bad, nowhere) = (path("bad"), path("nowhere/join"));
    expect_one_line(&enroll(&["a b", "--at", "192.0.2.1", "--out", &bad]), "cannot name a host");
    assert!(!std::path::Path::new(&bad).exists());
    let before = text(&enroll(&["--list", "--json"]).stdout);
    let refused = enroll(&["laptop", "--at", "192.0.2.1", "--out", &nowhere]);
    expect_one_line(&refused, "cannot write");
    assert_eq!(text(&enroll(&["--list", "--json"]).stdout), before);
    let listed: Value = serde_json::from_str(&before).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&"laptop".into(), &"invited".into()));
    let table = text(&enroll(&["--list"]).stdout);
    assert!(
        table.contains("last seen") && table.contains("laptop") && table.contains("never"),
        "{table}"
    );
    for wrong in
        [&["--list", "laptop"][..], &["laptop", "--json"], &["laptop", "--valid", "0s"], &[]]
    {
        assert_eq!(enroll(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
