//! Notifies the service manager that the daemon is ready, alive or stopping (`sd_notify(3)`). Without a manager nothing
//! is sent.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The daemon is ready.
const READY: &str = "READY=1";
/// The loop is running. The manager restarts a daemon that does not send this within `WatchdogSec`.
const ALIVE: &str = "WATCHDOG=1";
/// The daemon is shutting down.
const STOPPING: &str = "STOPPING=1";

/// The socket of the service manager, if there is one.
pub(crate) struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The manager that has started this process, if any.
    pub(crate) fn of_process() -> Manager {
        Manager::at(std::env::var_os("NOTIFY_SOCKET"))
    }

    fn at(place: Option<OsString>) -> Manager {
        let address = place.and_then(|place| match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            _ => SocketAddr::from_pathname(&place).ok(),
        });
        Manager(address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))))
    }

    pub(crate) fn ready(&self) {
        self.say(READY);
    }

    pub(crate) fn alive(&self) {
        self.say(ALIVE);
    }

    pub(crate) fn stopping(&self) {
        self.say(STOPPING);
    }

    fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.0 {
            // The daemon continues if the manager is gone.
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_at_a_path_and_in_the_abstract_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("segue-notify-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        let listening =
            [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&hidden).unwrap()];
        for (place, listening) in
            [path.into(), format!("@{name}").into()].into_iter().zip(listening)
        {
            let manager = Manager::at(Some(place));
            manager.ready();
            manager.alive();
            manager.stopping();
            for expected in [READY, ALIVE, STOPPING] {
                let mut said = [0; 32];
                let length = listening.recv(&mut said).unwrap();
                assert_eq!(&said[..length], expected.as_bytes());
            }
        }
        Manager::at(None).ready();
        Manager::at(Some("/nonexistent/notify".into())).ready();
    }
}
