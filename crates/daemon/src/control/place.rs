//! Checks the path of a control socket: a daemon removes only a socket without a listener.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};

/// The state of a control socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing.
    Free,
    /// A socket without a listener: a daemon ended without removing it.
    Stale,
    /// The socket of a running process, or one that cannot be ruled out as such.
    InUse,
    /// Not a socket: a file, a directory, or a link, even one to a socket.
    Foreign,
}

impl Place {
    /// Looks at `path`.
    ///
    /// # Errors
    /// If the system reports no state.
    pub fn of(path: &Path) -> std::io::Result<Place> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::Free),
            Err(error) => return Err(error),
        };
        if !found.file_type().is_socket() {
            return Ok(Place::Foreign);
        }
        // Without blocking: a stopped daemon with a full backlog still listens.
        let refused = connect_at_once(path)
            .is_err_and(|error| matches!(error, Errno::ECONNREFUSED | Errno::ENOENT));
        Ok(if refused { Place::Stale } else { Place::InUse })
    }
}

fn connect_at_once(path: &Path) -> nix::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::control::{Server, Tunnels};

    fn start(path: &Path) -> anyhow::Result<Server> {
        Server::start::<Tunnels>(path, None, mpsc::channel(1).0)
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_on_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.sock");
        std::fs::write(&path, "precious").unwrap();
        let refused = start(&path).err().unwrap().to_string();
        assert!(refused.contains("is no socket") && refused.contains("host.sock"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();

        // A link is not a socket, even if its target is one.
        let elsewhere = directory.path().join("elsewhere");
        drop(std::os::unix::net::UnixListener::bind(&elsewhere).unwrap());
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(start(&path).is_err());
        assert!(elsewhere.exists());
        std::fs::remove_file(&path).unwrap();

        // As left by a crash.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = start(&path).unwrap();
        let second = start(&path).err().unwrap().to_string();
        assert!(second.contains("another daemon"), "{second}");
        drop(first);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_socket_of_a_daemon_that_does_not_answer_is_not_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.sock");
        let stopped = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        // Until the backlog is full.
        while connect_at_once(&path).is_ok() {
            assert_eq!(Place::of(&path).unwrap(), Place::InUse);
            waiting.push(());
            assert!(waiting.len() < 10_000);
        }
        assert_eq!(Place::of(&path).unwrap(), Place::InUse);
        assert!(start(&path).is_err() && path.exists());
        drop(stopped);
        assert_eq!(Place::of(&path).unwrap(), Place::Stale);
    }

    #[tokio::test]
    async fn a_daemon_that_ends_leaves_the_socket_of_its_successor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.sock");
        let first = start(&path).unwrap();
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        let second = start(&path).unwrap();
        drop(first);
        assert_eq!(Place::of(&path).unwrap(), Place::InUse);
        drop(second);
        assert_eq!(Place::of(&path).unwrap(), Place::Free);
    }

    #[tokio::test]
    async fn a_socket_that_was_removed_is_made_again_and_that_of_another_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/control.sock");
        let mut server = start(&path).unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        server.look_after();
        assert_eq!(Place::of(&path).unwrap(), Place::InUse);
        std::fs::remove_file(&path).unwrap();
        let other = start(&path).unwrap();
        server.look_after();
        drop(server);
        assert_eq!(Place::of(&path).unwrap(), Place::InUse, "it is the other's");
        drop(other);
        assert_eq!(Place::of(&path).unwrap(), Place::Free);
    }
}
