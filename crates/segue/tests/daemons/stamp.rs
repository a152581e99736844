//! An anchor answers STAMP: plain requests in its kernel datapath, all others in user space.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_lab::DemoNet;
use serde_json::Value;

use crate::over_both;
use crate::traffic::{UdpEcho, correspondents, one_datagram};
use crate::world::{Daemon, PATIENCE, SEGUE, World, drops, paths_up, registered, text};

over_both! { among_others:
    an_anchor_answers_stamp_and_serves_its_paths
    an_anchor_with_a_key_answers_authenticated_stamp_alone
    a_reflector_in_the_kernel_runs_beside_an_anchor
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// A base packet, and the TLV header of an unknown extension.
const PLAIN: [u8; 44] = [0; 44];
const UNKNOWN: [u8; 4] = [0x80, 200, 0, 0];

fn an_anchor_answers_stamp_and_serves_its_paths(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = anchor(&world, "stamp = true\n");
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("two paths up", |status| registered(status) && paths_up(status) == 2);
    for to in [IpAddr::from(DemoNet::ANCHOR.0), DemoNet::ANCHOR.1.into()] {
        let numbers = world.net.cn().run(|| numbers(to)).unwrap();
        // Kernel and user space number their answers separately: with eBPF the kernel sends the
        // first and the last.
        let expected = if datapath == "ebpf" { [0, 0, 1] } else { [0, 1, 2] };
        assert_eq!(numbers, expected, "{to}");
        for options in [&[][..], &["--direct", "--follow-up"]] {
            let target = measure(&world, &to.to_string(), options);
            assert_eq!(
                (&target["received"], &target["rtl"]),
                (&10.into(), &0.0.into()),
                "{target}"
            );
            assert_eq!(target["reflector"]["implausible"], 0, "{target}");
        }
    }
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    one_datagram(world.net.host(), echo.address).expect("traffic passes beside it");
    assert_eq!(paths_up(&host.status()), 2);
    assert_eq!(anchor.status()["drops"], serde_json::json!({}));
}

fn an_anchor_with_a_key_answers_authenticated_stamp_alone(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let key = world.file("stamp.key", KEY);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let anchor = anchor(&world, &format!("stamp = 8862\nstamp_key = {key:?}\n"));
    let to = &format!("{}:8862", DemoNet::ANCHOR.0);
    for options in [&[][..], &["--direct"]] {
        let target = measure(&world, to, &[&["--key", &key], options].concat());
        assert_eq!(target["received"], 10, "{target}");
        assert_eq!(target["reflector"]["integrity"], 0, "{target}");
    }
    assert_eq!(measure(&world, to, &["-k", "1"])["received"], 0);
    anchor.wait("what was refused", |status| drops(status, "stamp_truncated") == 10);
}

fn a_reflector_in_the_kernel_runs_beside_an_anchor(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let mut reflector = world.net.anchor().command(SEGUE);
    reflector.env("COLUMNS", "1000");
    reflector.args(["probe", "--listen", "--stamp", "--kernel", "-I", "core", "--json"]);
    let mut reflector = reflector.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reflector.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next();
    if first.is_some() {
        let mut command = world.net.host().command(SEGUE);
        command.env("COLUMNS", "1000");
        let to = DemoNet::ANCHOR.0.to_string();
        command
            .args(["probe", "--stamp", &to, "-I", "wifi", "-c", "10", "-i", "20ms", "-k", "100"]);
        let measured = command.output().unwrap();
        let said = text(&measured.stdout);
        assert!(said.contains("10 sent, 10 received"), "{said}{}", text(&measured.stderr));
    }
    kill(Pid::from_raw(reflector.id() as i32), Signal::SIGINT).unwrap();
    let summary = lines.last().unwrap_or_default();
    let output = reflector.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && first.is_some(), "{said}");
    assert!(said.contains("UDP port 5005 is in use") && said.lines().count() == 1, "{said}");
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["kernel_answers"], 10, "{summary}");
    // The tunnel keeps working meanwhile.
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    one_datagram(world.net.host(), echo.address).expect("traffic passes beside it");
    assert_eq!((paths_up(&host.status()), paths_up(&anchor.status())), (2, 2));
}

fn anchor(world: &World, config: &str) -> Daemon {
    let (config, state) = (world.file("anchor.toml", config), world.path("anchor.db"));
    let args =
        ["anchor", "--datapath", world.datapath, "-c", &config, "--state", state.to_str().unwrap()];
    let daemon = Daemon::start(world.net.anchor(), world.path("anchor"), &args);
    daemon.wait("the anchor answers", |_| true);
    daemon
}

/// The reflector's sequence numbers for a plain request, one with an extension, and another plain
/// one.
fn numbers(to: IpAddr) -> [u8; 3] {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect((to, 862)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    [&PLAIN[..], &[&PLAIN[..], &UNKNOWN].concat(), &PLAIN].map(|request| {
        socket.send(request).unwrap();
        let mut answer = [0; 100];
        assert_eq!(socket.recv(&mut answer).unwrap(), request.len());
        answer[3]
    })
}

/// Runs our STAMP sender at the correspondent with ten requests.
fn measure(world: &World, to: &str, options: &[&str]) -> Value {
    let mut command = world.net.cn().command(SEGUE);
    command.env("COLUMNS", "1000");
    command.args(["probe", "--stamp", to, "-c", "10", "-i", "20ms", "--json"]);
    if !options.contains(&"-k") {
        command.args(["-k", "100"]);
    }
    let output = command.args(options).output().unwrap();
    let printed = text(&output.stdout);
    let last = printed.lines().last().unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    let summary: Value = serde_json::from_str(last).unwrap();
    summary["targets"][0].clone()
}
