//! The output about daemons fits into 80 columns.

use std::process::Command;

use crate::pty::Pty;
use crate::screen::{COLUMNS, fits};
use crate::traffic::{Voice, correspondents};
use crate::world::{Daemon, SEGUE, World, text, wait_for};

/// The screens of hosts and anchors.
const OF_TUNNELS: [&[&str]; 6] =
    [&["status"], &["paths"], &["paths", "--why"], &["flows"], &["flows", "--why"], &["events"]];

/// Asserts that these screens of a daemon fit, both in a pipe and on a terminal.
pub(crate) fn all_fit(daemon: &Daemon, screens: &[&[&str]]) {
    for screen in screens {
        let command = || {
            let mut command = Command::new(SEGUE);
            command.args(*screen).arg("--control").arg(daemon.socket()).env_remove("COLUMNS");
            command
        };
        let output = command().output().unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success() && !printed.trim().is_empty(), "{screen:?}: {printed}");
        fits(&screen.join(" "), &printed);
        let mut pty = Pty::start(COLUMNS as u16, 50, None, &mut command());
        pty.end();
        fits(&screen.join(" "), &pty.raw.replace('\r', ""));
    }
}

#[test]
fn what_hosts_and_anchors_say_fits() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (anchor, host) = world.running();
    let calls: Vec<Voice> = correspondents()
        .into_iter()
        .map(|ip| Voice::start(world.net.host(), world.net.cn(), ip))
        .collect();
    wait_for("flows at both ends", || [&host, &anchor].iter().all(|d| d.flows().len() >= 2));
    for order in [&["--to", "lte"][..], &["--auto"]] {
        assert!(host.cli(&[&["handover"], order].concat()).status.success());
    }
    all_fit(&host, &OF_TUNNELS);
    all_fit(&anchor, &OF_TUNNELS);
    let node = world.net.host();
    let doctor = node.command(SEGUE).arg("doctor").arg("--control").arg(host.socket()).output();
    let doctor = text(&doctor.unwrap().stdout);
    assert!(doctor.contains("kernel"), "{doctor}");
    fits("doctor", &doctor);
    drop(calls);
}
