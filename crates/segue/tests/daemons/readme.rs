//! Executes the README's quick start on two fresh machines. Each has separate file systems where files are installed
//! and where daemons keep their state. The network behind the anchor has no route back to its pools. `scripts/try-deb`
//! runs the same commands with the package and systemd.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::world::{SEGUE, World, text, wait_for};

const README: &str = include_str!("../../../../README.md");
/// Directories that an installation and the daemons write to.
const OWN: [&str; 4] = ["/etc", "/usr/local", "/var/lib", "/run"];

/// A machine: a process that holds the mounts, and the daemons.
struct Machine {
    disk: PathBuf,
    holder: Child,
    daemons: Vec<Child>,
}

impl Machine {
    fn new(node: &Netns, disk: PathBuf) -> Machine {
        let mut script = String::from("set -e\n");
        for path in OWN {
            let own = disk.join(&path[1..]);
            std::fs::create_dir_all(&own).unwrap();
            script += &format!("mount --bind {} {path}\n", own.display());
        }
        let ready = disk.join("ready");
        script += &format!("touch {}\nexec sleep 600\n", ready.display());
        let mut shell = node.command("unshare");
        let holder = shell.args(["--mount", "sh", "-c", &script]).spawn().unwrap();
        wait_for("the machine's file systems", || ready.exists());
        Machine { disk, holder, daemons: Vec::new() }
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("nsenter");
        shell.args(["-t", &self.holder.id().to_string(), "--mount", "--net", "sh", "-c"]);
        // Start in the machine's directory, as after a login.
        shell.arg(format!("cd {} && {command}", self.disk.display())).stdin(Stdio::null());
        shell
    }

    /// Runs one command of the README. The test substitutes what is missing here: `make install` for the package,
    /// running the unit's command for systemd, and a copy from the other machine for `scp`.
    fn run(&mut self, command: &str, other: Option<&Machine>) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut child = match words[..] {
            ["apt", "install", "./segue_*.deb"] => {
                let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect();
                let mut make = Command::new("make");
                make.env_remove("MAKEFLAGS").current_dir(root).arg("install");
                make.arg(format!("DESTDIR={}", self.disk.display()));
                make.arg(format!("BINARY={SEGUE}"));
                make
            }
            ["systemctl", "enable", "--now", unit] => {
                let unit = self.disk.join(format!("usr/local/lib/systemd/system/{unit}.service"));
                let unit = std::fs::read_to_string(unit).unwrap();
                let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
                self.daemons.push(self.shell(&format!("exec {start}")).spawn().unwrap());
                return;
            }
            ["scp", from, to] => {
                let from = from.rsplit(':').next().unwrap();
                let to = self.disk.join(to.trim_start_matches('/')).join(from);
                let from = other.unwrap().disk.join(from);
                let mode = from.metadata().unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, 0o600, "as scp will copy it");
                std::fs::copy(from, to).unwrap();
                return;
            }
            _ => self.shell(command),
        };
        let output = child.output().unwrap();
        let said = [text(&output.stdout), text(&output.stderr)].concat();
        assert!(output.status.success(), "{command}: {said}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in self.daemons.iter_mut().chain([&mut self.holder]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The commands of each block of a section, without the root prompt.
fn blocks(section: &str) -> Vec<Vec<String>> {
    let start = README.find(&format!("## {section}\n")).unwrap();
    let section = &README[start..];
    let section = &section[..section[3..].find("\n## ").unwrap()];
    let blocks = section.split("```\n").skip(1).step_by(2);
    let commands = |block: &str| {
        block.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
    };
    blocks.map(commands).collect()
}

#[test]
fn the_quick_start_leads_from_nothing_to_a_ping_in_four_commands_a_machine() {
    let _turn = crate::alone();
    let Some(world) = World::new("ebpf") else { return };
    crate::translation::cut_the_way_back(&world);
    let blocks = blocks("Quick start");
    let [at_anchor, at_host] = [&blocks[0], &blocks[1]];
    assert!(at_anchor.len() <= 4 && at_host.len() <= 4, "{at_anchor:?} {at_host:?}");
    let mut anchor = Machine::new(world.net.anchor(), world.path("anchor"));
    let mut host = Machine::new(world.net.host(), world.path("host"));
    for command in at_anchor {
        let command = command.replace("192.0.2.1", &DemoNet::ANCHOR.0.to_string());
        if command.starts_with("segue ") {
            // systemd would not wait longer for the daemon either, and a user takes time to type.
            wait_for("the anchor's socket", || anchor.disk.join("run/segue/anchor.sock").exists());
        }
        anchor.run(&command, None);
    }
    let (v4, v6) = DemoNet::CN;
    for command in at_host {
        let command = command.replace("debian.org", &v4.to_string());
        if command.starts_with("ping ") {
            wait_for("two paths up", || {
                let status = host.shell("segue status --json").output().unwrap();
                serde_json::from_slice(&status.stdout)
                    .is_ok_and(|s| crate::world::paths_up(&s) == 2)
            });
        }
        host.run(&command, Some(&anchor));
    }
    host.run(&format!("ping -c 3 {v6}"), None);
    // The packets went through the tunnel: a route outside it exists too, but not with the inner address.
    let route = text(&host.shell(&format!("ip route get {v4}")).output().unwrap().stdout);
    assert!(route.contains("dev segue0"), "{route}");
    let doctor = host.shell("segue doctor").output().unwrap();
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));
    let doctor = anchor.shell("segue doctor").output().unwrap();
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));
}
