//! A captive portal is recognized, and its page can be opened outside the tunnel.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::doctor::{doctor, expect};
use crate::world::{SEGUE, World, nft, path, text, wait_for};

/// A web server on this port of a node: answers `/login` with `who`, and redirects any other request there.
fn web(node: &Netns, port: u16, who: &'static str) {
    let listener = node.run(|| TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1_024];
            let read = stream.read(&mut request).unwrap_or(0);
            let login = request[..read].starts_with(b"GET /login");
            let answer = match login {
                true => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{who}", who.len()),
                false => "HTTP/1.1 302 Found\r\nLocation: http://login.test/login?net=1&a=b\r\n\
                          Content-Length: 0\r\n\r\n"
                    .into(),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// The text of the correspondent's page as a program on the host reads it.
fn page(world: &World, through: &[&str]) -> String {
    let url = format!("http://{}/login", DemoNet::CN.0);
    let program = ["curl", "--silent", "--show-error", "--max-time", "10", &url];
    let all = [through, &program].concat();
    let output = world.net.host().command(all[0]).args(&all[1..]).output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_captive_portal_is_named_and_its_page_is_one_command_away() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    // All TCP traffic to port 80 over wifi is redirected to the router; everything else is dropped.
    nft(
        world.net.router(),
        "table inet portal { \
           chain before { type nat hook prerouting priority dstnat; \
             iifname wifi tcp dport 80 redirect to :8080; }; \
           chain through { type filter hook forward priority 0; \
             iifname wifi drop; oifname wifi drop; }; }",
    );
    web(world.net.router(), 8_080, "the portal");
    web(world.net.cn(), 80, "the world");
    let anchor = world.anchor();
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("lte is up", |status| path(status, "lte")["state"] == "up");

    let socket = host.socket();
    let (_, lines) = doctor(world.net.host(), &["--control", socket.to_str().unwrap()]);
    let command = "sudo segue run --path wifi -- w3m 'http://login.test/login?net=1&a=b'";
    expect(&lines, "portal", "todo", command);
    let portals = lines.iter().filter(|(check, ..)| check == "portal").count();
    assert_eq!(portals, 1, "lte has none: {lines:#?}");

    assert_eq!(page(&world, &[]), "the world", "through the tunnel");
    let run = [SEGUE, "run", "--path", "wifi", "--"];
    assert_eq!(page(&world, &run), "the portal", "over wifi");
    // Child processes take the same way, and the exit status is the program's.
    let shell = [&run[..], &["sh", "-c", "\"$@\"; exit 7", "sh"]].concat();
    assert_eq!(page(&world, &shell), "the portal");
    let mut ends = world.net.host().command(SEGUE);
    ends.args(["run", "--path", "wifi", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ends.status().unwrap().code(), Some(7));
    assert_eq!(page(&world, &[]), "the world", "and nothing else does");
    // It can still query a resolver on this machine.
    let local = [&run[..], &["sh", "-c", "getent hosts localhost"]].concat();
    let output = world.net.host().command(local[0]).args(&local[1..]).status().unwrap();
    assert!(output.success());

    for (args, part) in [
        (&["run", "--path", "wlan7", "--", "true"][..], "no interface wlan7; up are "),
        (&["run", "--path", "lo", "--", "true"], "lo is the loopback device, not an access"),
        (&["run", "--path", "segue0", "--", "true"], "segue0 is a tunnel, not an access; up are "),
        (&["run", "--path", "wifi", "--", "no-such-program"], "cannot run no-such-program"),
    ] {
        let refused = world.net.host().command(SEGUE).args(args).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(part), "{said}");
    }
}

/// `segue run` over wifi on the host.
fn over_wifi(world: &World, more: &[&str]) -> Command {
    let mut command = world.net.host().command(SEGUE);
    command.args(["run", "--path", "wifi"]).args(more).arg("--");
    command
}

/// The numbers that `id -G` prints.
fn groups(id: &mut Command) -> BTreeSet<String> {
    let output = id.output().unwrap();
    text(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_program_over_an_access_starts_as_from_a_shell() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    // No signal is blocked in it.
    let mut ends = over_wifi(&world, &[]);
    let output = ends.args(["sh", "-c", "kill -TERM $$; echo alive"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(128 + 15), String::new()));
    // It gets arguments of any bytes.
    let mut prints = over_wifi(&world, &[]);
    let output = prints.args(["printf", "%s"]).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.stdout, b"\xff");
    // It is in all groups of its user: root, and a member of a second group if this machine has one.
    let file = std::fs::read_to_string("/etc/group").unwrap();
    let members = file.lines().filter_map(|line| line.rsplit([':', ',']).next());
    let mut users: Vec<&str> = members.filter(|name| !name.is_empty()).collect();
    users.push("root");
    for user in [users[0], "root"] {
        let wanted = groups(Command::new("id").args(["-G", user]));
        if !wanted.is_empty() {
            let got = groups(over_wifi(&world, &["--user", user]).args(["id", "-G"]));
            assert_eq!(got, wanted, "{user}");
        }
    }
    let help = Command::new(SEGUE).args(["run", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("-- <PROGRAM> [ARGUMENT]..."), "{}", text(&help.stdout));
    // `ip netns exec` mounts /sys anew, without control groups.
    let script = "umount -l /sys && mount -t sysfs none /sys && exec \"$@\"";
    let mut without = world.net.host().command("unshare");
    without.args(["--mount", "sh", "-c", script, "sh", SEGUE]);
    let output = without.args(["run", "--path", "wifi", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("control groups of version 2 (cgroup2) are not mounted here"), "{said}");
}

/// Starts a shell script over wifi. Returns once it prints a line, with that line.
fn script(world: &World, script: &str) -> (Child, String) {
    let mut command = over_wifi(world, &[]);
    // A shell cannot trap SIGINT if the tests run in the background of one, which ignores it.
    command.args(["env", "--default-signal=INT", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// Whether the control group of a `segue run` exists.
fn has_group(child: &Child) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 ")).unwrap();
    let root = Path::new(mount.split(' ').nth(1).unwrap());
    root.join(format!("segue-run-{}", child.id())).exists()
}

#[test]
fn a_signal_reaches_the_program_and_a_second_one_kills_it() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT")] {
        let trap = format!("trap 'exit 3' {name}; echo ready; while :; do sleep 0.05; done");
        let (mut child, line) = script(&world, &trap);
        assert_eq!(line, "ready\n");
        assert!(has_group(&child));
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{name}: the trap has run");
        assert!(!has_group(&child));
    }
    let deaf = "trap '' INT TERM; sleep 1000 & echo ready; while :; do sleep 1; done";
    let (mut child, _) = script(&world, deaf);
    let mut status = None;
    wait_for("all are killed", || {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(128 + 9));
    assert!(!has_group(&child), "the shell's child is dead too");
}
