//! FreeRADIUS as a child process, in the foreground in a node, with a separate directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use segue_linux::netns::Netns;

use crate::world::wait_for;

/// The secret that the server shares with its clients.
pub(crate) const SECRET: &str = "a secret of 26 characters";

/// The server's configuration.
const CONFIG: &str = include_str!("../../../../examples/pmip/radiusd.conf");

/// A server. Dropping it stops the server, and shows the end of its log if the test fails.
pub(crate) struct RadiusServer {
    child: Child,
    dir: PathBuf,
}

/// Whether FreeRADIUS is installed; prints a note if not.
pub(crate) fn installed() -> bool {
    let there = Path::new("/usr/sbin/freeradius").exists();
    if !there {
        println!("skipped: FreeRADIUS is not installed");
    }
    there
}

impl RadiusServer {
    /// Starts a server with these users (in the format of its file `users`), at this port and the next.
    pub(crate) fn start(node: &Netns, dir: &Path, port: u16, users: &str) -> RadiusServer {
        let dir = dir.join(format!("radius{port}"));
        std::fs::create_dir(&dir).unwrap();
        let filled_in = [
            ("@DIR@", dir.display().to_string()),
            ("@SECRET@", SECRET.to_owned()),
            ("@PORT@", port.to_string()),
            ("@ACCOUNTING@", (port + 1).to_string()),
        ];
        let config = filled_in
            .iter()
            .fold(CONFIG.to_owned(), |text, (word, value)| text.replace(word, value));
        std::fs::write(dir.join("radiusd.conf"), config).unwrap();
        std::fs::write(dir.join("users"), users).unwrap();
        std::fs::write(dir.join("dictionary"), "").unwrap();
        let log = File::create(dir.join("log")).unwrap();
        let child = node
            .command("/usr/sbin/freeradius")
            .args(["-X", "-d"])
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = RadiusServer { child, dir };
        wait_for("FreeRADIUS is ready", || server.log().contains("Ready to process requests"));
        server
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// The accounting records as the server wrote them.
    pub(crate) fn records(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.join("detail")).unwrap_or_default();
        text.split("\n\n").filter(|record| !record.trim().is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for RadiusServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("--- FreeRADIUS\n{}", lines[lines.len().saturating_sub(80)..].join("\n"));
        }
    }
}

/// A capture of an interface into a file, until this is dropped.
pub(crate) struct Capture {
    child: Child,
    pub(crate) file: PathBuf,
}

impl Capture {
    /// Starts a capture of RADIUS messages.
    pub(crate) fn start(node: &Netns, dir: &Path, interface: &str) -> Capture {
        Capture::of(node, dir, interface, "udp portrange 1812-1900")
    }

    /// Starts a capture of packets that match a filter.
    pub(crate) fn of(node: &Netns, dir: &Path, interface: &str, filter: &str) -> Capture {
        let file = dir.join(format!("{interface}.pcap"));
        let child = node
            .command("dumpcap")
            .args(["-q", "-i", interface, "-f", filter, "-w"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let capture = Capture { child, file };
        wait_for("the capture has begun", || capture.file.exists());
        std::thread::sleep(std::time::Duration::from_millis(300));
        capture
    }

    /// Ends the capture. Returns a line for each packet, and a line for each packet in which tshark, which knows the
    /// secret, finds an error.
    pub(crate) fn read(mut self) -> (Vec<String>, Vec<String>) {
        self.end();
        let read = |filter: &str| {
            let mut tshark = Command::new("tshark");
            tshark.args(["-n", "-o", &format!("radius.shared_secret:{SECRET}")]);
            tshark.args(["-o", "radius.validate_authenticator:TRUE", "-Y", filter, "-r"]);
            let output = tshark.arg(&self.file).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().map(str::to_owned).collect::<Vec<String>>()
        };
        // tshark does not check the authenticator of requests.
        let unproven = "radius.code in {2, 3, 5} && !(radius.authenticator.valid == 1)";
        let wrong = "_ws.malformed || radius.invalid_length || radius.authenticator.invalid == 1";
        (read("radius"), read(&format!("{wrong} || ({unproven})")))
    }

    /// Ends the capture. Returns these fields of each packet as tshark decodes them, separated by semicolons.
    pub(crate) fn fields(mut self, fields: &[&str]) -> Vec<String> {
        self.end();
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-T", "fields", "-E", "separator=;", "-E", "occurrence=f", "-r"]);
        tshark.arg(&self.file).args(fields.iter().flat_map(|field| ["-e", *field]));
        let output = tshark.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn end(&mut self) {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
