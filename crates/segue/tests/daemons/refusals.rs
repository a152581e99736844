//! Invalid input: one line with the mistake, exit status 2, and no leftovers.

use std::process::Output;

use segue_lab::Lab;
use segue_lab::topology::End;

use crate::world::{SEGUE, World, inventory, possible, settled, tag, text};

pub(crate) fn expect_one_line(output: &Output, part: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("segue: "), "{said}");
    assert!(said.contains(part), "{part:?} in: {said}");
}

/// One node with an interface `up0`, a directory, and a join line for an anchor on its network.
struct Place {
    lab: Lab,
    dir: tempfile::TempDir,
    join: String,
}

impl Place {
    fn new() -> Option<Place> {
        if !possible() {
            return None;
        }
        let _building = crate::building();
        let mut lab = Lab::new(&tag()).unwrap();
        for node in ["a", "b"] {
            lab.add_node(node, false).unwrap();
        }
        let (near, far) = (["10.61.3.1/24".parse().unwrap()], ["10.61.3.2/24".parse().unwrap()]);
        lab.connect(
            End { node: "a", device: "up0", addresses: &near },
            End { node: "b", device: "up0", addresses: &far },
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let join = std::process::Command::new(SEGUE)
            .args(["enroll", "laptop", "--at", "10.61.3.2", "--state"])
            .arg(dir.path().join("enrol.db"))
            .arg("--control")
            .arg(dir.path().join("nobody.sock"))
            .output()
            .unwrap();
        assert!(join.status.success(), "{}", text(&join.stderr));
        Some(Place { lab, dir, join: text(&join.stdout).trim().to_owned() })
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `segue ARGS` in the node until it exits; stops a daemon that starts nevertheless.
    fn run(&self, args: &[&str]) -> Output {
        self.run_as(&[SEGUE], args)
    }

    fn run_as(&self, program: &[&str], args: &[&str]) -> Output {
        let node = self.lab.node("a").unwrap();
        let mut command = node.command("timeout");
        command.args(["--signal=KILL", "60"]).args(program).args(args);
        command.output().unwrap()
    }

    fn host(&self, config: &str, part: &str) {
        std::fs::write(self.path("host.toml"), config).unwrap();
        let control = self.path("host.sock");
        let file = self.path("host.toml");
        let state = self.path("host.db");
        let args = ["host", "-c", &file, "--join", &self.join, "--control", &control, "--state"];
        let args = [&args[..], &[&state]].concat();
        expect_one_line(&self.run(&args), part);
        assert!(!self.dir.path().join("host.sock").exists());
    }

    fn anchor(&self, config: &str, part: &str) {
        std::fs::write(self.path("anchor.toml"), config).unwrap();
        let (control, state) = (self.path("anchor.sock"), self.path("anchor.db"));
        let file = self.path("anchor.toml");
        let args = ["anchor", "-c", &file, "--state", &state, "--control", &control];
        expect_one_line(&self.run(&args), part);
        assert!(!self.dir.path().join("anchor.sock").exists());
    }
}

#[test]
fn a_bad_configuration_file_is_refused_by_file_and_line() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let before = settled(place.lab.node("a").unwrap());
    place.host("\nprot = 5005\n", "host.toml:2: ");
    place.host("port = \"many\"\n", "host.toml:1: ");
    place.host("port = 70000\n", "host.toml:1: ");
    place.host("[keepalive]\nk = 5\nperiod = \"3 parsecs\"\n", "parsecs");
    place.host("[keepalive]\nk = 5\nperiod = 50\n", "host.toml:3: ");
    place.host("[keepalive]\nk = 5\n", "k and period go together");
    place.host("[path.wifi]\nprize = 3\n", "host.toml:2: ");
    place.host("routes = [\"everything\"]\n", "everything");
    place.host("device = \"eth7\"\n", "segue");
    place.host("device = \"segue-is-too-long\"\n", "15 characters");
    place.host("port = \n", "host.toml:1: ");
    place.anchor("\n\npool = \"10.0.0.0/8\"\n", "anchor.toml:3: ");
    place.anchor("pool_v4 = \"10.77.3.0/16\"\n", "host bits");
    place.anchor("pool_v4 = \"10.77.0.0\"\n", "pool_v4");
    place.anchor("pool_v6 = \"10.77.0.0/16\"\n", "family");
    place.anchor("pool_v4 = \"\"\npool_v6 = \"\"\n", "needs pool_v4, pool_v6 or both");
    place.anchor("expiry = \"60\"\n", "unit");
    place.anchor("addresses = [\"nowhere/example\"]\n", "nowhere/example");
    place.anchor("device = \"tun0\"\n", "segue");
    let missing = place.path("missing.toml");
    expect_one_line(&place.run(&["anchor", "-c", &missing]), "cannot read");
    expect_one_line(&place.run(&["host", "-c", &missing]), "missing.toml");
    assert_eq!(inventory(place.lab.node("a").unwrap()), before);
}

#[test]
fn a_missing_or_damaged_join_line_is_refused() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let before = settled(place.lab.node("a").unwrap());
    let control = place.path("host.sock");
    let state = place.path("host.db");
    let run = |args: &[&str]| {
        place.run(&[&["host", "--control", &control, "--state", &state], args].concat())
    };
    expect_one_line(&run(&[]), "segue enroll NAME");
    expect_one_line(&run(&["--join", "hello"]), "segue2:");
    for cut in [8, place.join.len() / 2, place.join.len() - 1] {
        expect_one_line(&run(&["--join", &place.join[..cut]]), "damaged");
    }
    let mut flipped = place.join.clone().into_bytes();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    expect_one_line(&run(&["--join", &flipped]), "damaged");
    let _ = std::fs::remove_file(&state);
    expect_one_line(&run(&["--join-file", &place.path("none")]), "cannot read the join line");
    let file = place.path("join");
    std::fs::write(&file, &place.join).unwrap();
    for mode in [0o640, 0o604, 0o644, 0o660] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
        expect_one_line(&run(&["--join-file", &file]), &format!("chmod 600 {file}"));
    }
    assert_eq!(inventory(place.lab.node("a").unwrap()), before);
    assert!(!place.dir.path().join("host.sock").exists());
}

#[test]
fn the_pattern_does_not_write_to_the_state_of_an_anchor() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let (control, state) = (place.path("echo.sock"), place.path("enrol.db"));
    let echo = ["echo", "--pool", "10.9.0.0/24", "--control", &control, "--state", &state];
    expect_one_line(&place.run(&echo), "enrol.db is the state of another role");
}

#[test]
fn an_interface_that_is_not_there_is_refused() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let before = settled(place.lab.node("a").unwrap());
    place.host("interfaces = [\"wlan7\"]\n", "wlan7");
    place.host("interfaces = [\"up0\", \"wlan7\"]\n", "wlan7");
    place.anchor("interfaces = [\"wlan7\"]\n", "wlan7");
    assert_eq!(inventory(place.lab.node("a").unwrap()), before);
}

#[test]
fn what_is_no_socket_is_not_replaced_by_the_control_socket() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let before = settled(place.lab.node("a").unwrap());
    let (file, state) = (place.path("precious"), place.path("anchor.db"));
    std::fs::write(&file, "precious").unwrap();
    let host = place.path("host.db");
    let host = ["host", "--join", &place.join, "--state", &host];
    for args in [&host[..], &["anchor", "--state", &state]] {
        let output = place.run(&[args, &["--control", &file]].concat());
        expect_one_line(&output, "precious is no socket");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }
    assert!(place.run(&["clean", "--control", &file]).status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(inventory(place.lab.node("a").unwrap()), before);
}

#[test]
fn a_port_in_use_is_refused_on_either_datapath() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let node = place.lab.node("a").unwrap();
    let before = settled(node);
    let bound = |port: u16| node.run(|| std::net::UdpSocket::bind(("::", port)).unwrap()).unwrap();
    let tunnel = bound(5005);
    for datapath in ["ebpf", "user"] {
        place.host(&format!("datapath = \"{datapath}\"\n"), "5005");
        place.anchor(&format!("datapath = \"{datapath}\"\n"), "5005");
    }
    drop(tunnel);
    let _signal = bound(5006);
    for datapath in ["ebpf", "user"] {
        place.anchor(&format!("datapath = \"{datapath}\"\n"), "5006");
    }
    assert_eq!(inventory(node), before);
}

/// Copies the program in a separate process: otherwise a child that another test starts meanwhile
/// would briefly inherit the open file, and a file open for writing cannot be executed.
fn copy_of_segue(to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg(SEGUE).arg(to).status();
    assert!(copied.unwrap().success());
}

#[test]
fn without_permission_there_is_one_line_and_no_trace() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let node = place.lab.node("a").unwrap();
    let before = settled(node);
    // Other users may have no access to the binary's directory, but they can reach a copy beside
    // the test's files.
    let binary = place.path("segue");
    copy_of_segue(std::path::Path::new(&binary));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.dir.path(), open).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", &binary];
    let (control, state) = (place.path("n.sock"), place.path("n.db"));
    for datapath in ["auto", "ebpf", "user"] {
        let common = ["--datapath", datapath, "--control", &control];
        let host = [&["host", "--join", &place.join][..], &common].concat();
        expect_one_line(&place.run_as(&nobody, &host), "root");
        let anchor = [&["anchor", "--state", &state][..], &common].concat();
        expect_one_line(&place.run_as(&nobody, &anchor), "root");
        assert!(!std::path::Path::new(&control).exists());
    }
    let output = place.run_as(&nobody, &["anchor"]);
    expect_one_line(&output, "root");
    assert_eq!(inventory(node), before);
}

#[test]
fn asking_where_no_daemon_runs_is_refused() {
    let _turn = crate::among_others();
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("none.sock");
    for verb in [&["status"][..], &["paths"], &["flows"], &["handover", "--auto"]] {
        let mut command = std::process::Command::new(SEGUE);
        command.env("COLUMNS", "1000");
        let output = command.args(verb).arg("--control").arg(&control).output().unwrap();
        expect_one_line(&output, "none.sock");
    }
}

#[test]
fn only_root_and_the_daemons_own_user_may_ask() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let anchor = world.anchor();
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions())
    };
    assert_eq!(mode(&anchor.socket()) & 0o777, 0o600);
    // Access stays refused even if file permissions allow it.
    for path in [world.dir.path(), &anchor.socket()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, open).unwrap();
    }
    let binary = world.path("segue");
    copy_of_segue(&binary);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    let output = command.args(["status", "--control"]).arg(anchor.socket()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    assert!(anchor.json(&["status", "--json"]).is_some());
}

#[test]
fn logs_hold_no_secrets() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (anchor, mut host) = world.running();
    host.end(nix::sys::signal::Signal::SIGTERM);
    let join = std::fs::read_to_string(world.path("host.join")).unwrap();
    // The logs have level debug.
    let logs = anchor.log() + &host.log();
    assert!(logs.contains("registered") && logs.contains("DEBUG"), "{logs}");
    let line = join.trim().strip_prefix("segue2:").expect("a join line");
    assert!(line.len() > 100);
    for at in 0..=line.len() - 16 {
        assert!(!logs.contains(&line[at..at + 16]), "part {at} of the join line");
    }
    // The secret in the line is the token; look for it in any encoding.
    let token = join.parse::<segue_daemon::identity::Join>().unwrap().token.0;
    let list = token.map(|byte| byte.to_string()).join(", ");
    let hex = token.map(|byte| format!("{byte:02x}"));
    for written in [list, hex.concat(), hex.join(" "), hex.join(", "), hex.join(":")] {
        for logs in [&logs, &logs.to_lowercase()] {
            assert!(!logs.contains(&written), "the token, as {written}");
        }
    }
}

#[test]
fn a_damaged_state_file_is_named_by_every_role_and_verb() {
    let _turn = crate::among_others();
    let Some(place) = Place::new() else { return };
    let state = place.path("damaged.db");
    let mut bytes = std::fs::read(place.path("enrol.db")).unwrap();
    // Flip a bit in each kibibyte after the header.
    bytes.iter_mut().skip(4_096).step_by(1_024).for_each(|byte| *byte ^= 4);
    std::fs::write(&state, &bytes).unwrap();
    let [lma, mag] = ["lma", "wlan1"].map(|name| {
        let file = crate::pmip::example(&format!("{name}.toml"));
        file.to_str().unwrap().to_owned()
    });
    let control = place.path("nobody.sock");
    let of_state = ["--state", &state, "--control", &control];
    let verbs: [&[&str]; 6] = [
        &["anchor", "--datapath", "user"],
        &["host", "--datapath", "user"],
        &["pmip", "lma", "--datapath", "user", "-c", &lma],
        &["pmip", "mag", "--datapath", "user", "-c", &mag],
        &["echo", "--pool", "10.9.0.0/24"],
        &["enroll", "laptop", "--at", "10.61.3.2"],
    ];
    for verb in verbs {
        let output = place.run(&[verb, &of_state[..]].concat());
        expect_one_line(&output, &state);
        assert!(text(&output.stderr).contains("damaged"), "{verb:?}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read(&state).unwrap(), bytes, "it is left as it was");
}
