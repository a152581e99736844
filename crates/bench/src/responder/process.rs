//! Responders in separate processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;
use tempfile::TempDir;

use super::Running;
use crate::BenchError;
use crate::error::system;
use crate::protocol::{FAR, SERVICE_PORT};
use crate::world::{RECEIVE_BUFFER, World};

const SCENARIO: &str = include_str!("../assets/message.xml");
const C_REFLECTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reflector"));
const REFLECTOR: &str = include_str!("../assets/Reflector.java");

/// A child process in the far namespace; killed when dropped.
pub(super) struct Process {
    child: Child,
    /// Its input files and working directory.
    _files: TempDir,
}

impl Running for Process {
    fn processes(&self) -> Vec<Pid> {
        vec![Pid::from_raw(self.child.id() as i32)]
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Debian's `sipp` as a server, with a scenario that answers MESSAGE.
pub(super) fn sip(world: &World) -> Result<Process, BenchError> {
    let files = with_file("message.xml", SCENARIO)?;
    let mut command = world.far.command("sipp");
    command.args(["-sf", "message.xml", "-i", &FAR.to_string(), "-p", &SERVICE_PORT.to_string()]);
    // Forget calls immediately; otherwise memory would grow with each request.
    command.args(["-nostdin", "-nr", "-deadcall_wait", "0"]);
    start(command, files, "sipp", "install the package sip-tester")
}

/// A single source file for the Java launcher.
pub(super) fn java(world: &World, paths: u32) -> Result<Process, BenchError> {
    let files = with_file("Reflector.java", REFLECTOR)?;
    let mut command = world.far.command("java");
    command.args(["Reflector.java", &SERVICE_PORT.to_string(), &paths.to_string()]);
    start(command, files, "a Java VM", "install a JDK, version 11 or later")
}

/// The C program, compiled with the bench.
pub(super) fn c(world: &World, paths: u32) -> Result<Process, BenchError> {
    let files = with_file("reflector", C_REFLECTOR)?;
    let program = files.path().join("reflector");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))
        .map_err(system("write a responder's files"))?;
    let mut command = world.far.command(&program);
    let [port, buffer] = [usize::from(SERVICE_PORT), RECEIVE_BUFFER].map(|n| n.to_string());
    command.args([port, paths.to_string(), buffer]);
    start(command, files, "the C library", "install glibc, which the compiled C program needs")
}

fn with_file(name: &str, text: impl AsRef<[u8]>) -> Result<TempDir, BenchError> {
    let files = tempfile::tempdir().map_err(system("make a directory for a responder"))?;
    fs::write(files.path().join(name), text).map_err(system("write a responder's files"))?;
    Ok(files)
}

fn start(
    mut command: Command,
    files: TempDir,
    what: &'static str,
    remedy: &str,
) -> Result<Process, BenchError> {
    command.current_dir(files.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Ok(Process { child, _files: files }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(BenchError::Missing { what, remedy: remedy.into() })
        }
        Err(e) => Err(system("start a responder")(e)),
    }
}
