//! Announcements of a lab's radios: lines of JSON on a Unix socket, for programs that need the information that a
//! network card or an access point would give them (docs/lab.md).

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Directory of the labs' sockets, `NAME.sock`. NAME is the common prefix of the lab's namespaces.
const DIRECTORY: &str = "/run/segue-lab";
/// Maximum number of listeners; further ones are disconnected.
const MAX_LISTENERS: usize = 64;

/// An event of a radio, past or imminent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Time of the event on the monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// The event.
    #[serde(flatten)]
    pub what: What,
    /// The radio's node.
    pub node: String,
    /// The radio's device there.
    pub interface: String,
    /// The radio's link-layer address.
    pub mac: String,
    /// The cell.
    pub cell: String,
    /// The router of the cell.
    pub router: String,
    /// The cell's device there.
    pub router_interface: String,
    /// The cell's link-layer address: the radio's point of attachment.
    pub router_mac: String,
}

/// The event of a radio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// The radio attached to the cell.
    Attached,
    /// The radio left the cell.
    Detached,
    /// The radio will leave the cell.
    Leaving {
        /// Time until then in milliseconds.
        within_ms: u64,
    },
}

/// The socket of a lab. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Opens the socket of the lab with this name.
    pub(crate) fn open(name: &str) -> Result<Socket> {
        let path = Path::new(DIRECTORY).join(format!("{name}.sock"));
        let open = || -> io::Result<UnixListener> {
            fs::create_dir_all(DIRECTORY)?;
            // An existing file is from a dead process with the same process ID.
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = open().with_context(|| format!("open the socket {}", path.display()))?;
        Ok(Socket { listener, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a waiting listener, if any.
    pub(crate) fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Succeeds only for the last lab, when the directory is empty.
        let _ = fs::remove_dir(DIRECTORY);
    }
}

/// Removes the sockets of the labs for which `gone` returns true.
pub(crate) fn clean(gone: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let lab = name.to_str().and_then(|name| name.strip_suffix(".sock"));
        if lab.is_some_and(&gone) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(DIRECTORY);
}

/// The connected listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<UnixStream>);

impl Listeners {
    /// Adds a listener and first sends it these announcements.
    pub(crate) fn add(&mut self, stream: UnixStream, first: &[Announcement]) {
        self.0.retain(still_there);
        if self.0.len() < MAX_LISTENERS
            && stream.set_nonblocking(true).is_ok()
            && first.iter().all(|announcement| send(&stream, announcement))
        {
            self.0.push(stream);
        }
    }

    /// Sends an announcement to all listeners. Drops a listener that does not read as soon as its socket is full.
    pub(crate) fn tell(&mut self, announcement: &Announcement) {
        self.0.retain(|listener| send(listener, announcement));
    }
}

fn send(mut to: &UnixStream, announcement: &Announcement) -> bool {
    let line = serde_json::to_string(announcement).expect("it has only numbers and text");
    to.write_all(format!("{line}\n").as_bytes()).is_ok()
}

/// Whether the listener is still connected. Discards what it sends.
fn still_there(mut listener: &UnixStream) -> bool {
    match listener.read(&mut [0; 256]) {
        Ok(len) => len > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn announcement(what: What) -> Announcement {
        let text = str::to_owned;
        Announcement {
            at_ns: 7,
            what,
            node: text("phone"),
            interface: text("wlan0"),
            mac: segue_linux::link::mac_text([2, 0x5e, 0x67, 1, 0, 0]),
            cell: text("home"),
            router: text("mag"),
            router_interface: text("home"),
            router_mac: segue_linux::link::mac_text([2, 0x5e, 0x67, 2, 0, 0]),
        }
    }

    #[test]
    fn an_announcement_is_a_flat_line_that_reads_back() {
        let leaving = announcement(What::Leaving { within_ms: 250 });
        let line = serde_json::to_string(&leaving).unwrap();
        assert_eq!(
            line,
            "{\"at_ns\":7,\"what\":\"leaving\",\"within_ms\":250,\"node\":\"phone\",\
             \"interface\":\"wlan0\",\"mac\":\"02:5e:67:01:00:00\",\"cell\":\"home\",\"router\":\"mag\",\
             \"router_interface\":\"home\",\"router_mac\":\"02:5e:67:02:00:00\"}"
        );
        for what in [What::Attached, What::Detached, What::Leaving { within_ms: 1 }] {
            let line = serde_json::to_string(&announcement(what)).unwrap();
            assert_eq!(serde_json::from_str::<Announcement>(&line).unwrap(), announcement(what));
        }
    }

    #[test]
    fn a_listener_hears_the_present_first_and_one_that_does_not_read_is_dropped() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut listeners = Listeners::default();
        listeners.add(near, &[announcement(What::Attached)]);
        listeners.tell(&announcement(What::Detached));
        let mut lines = BufReader::new(far.try_clone().unwrap()).lines();
        for word in ["attached", "detached"] {
            assert!(lines.next().unwrap().unwrap().contains(&format!("\"what\":\"{word}\"")));
        }
        for _ in 0..100_000 {
            listeners.tell(&announcement(What::Attached));
        }
        assert!(listeners.0.is_empty());
    }

    #[test]
    fn listeners_that_are_gone_leave_room_for_others() {
        let mut listeners = Listeners::default();
        let mut ends = Vec::new();
        for _ in 0..MAX_LISTENERS + 1 {
            let (near, far) = UnixStream::pair().unwrap();
            listeners.add(near, &[]);
            ends.push(far);
        }
        assert_eq!(listeners.0.len(), MAX_LISTENERS);
        ends.truncate(3);
        let (near, _far) = UnixStream::pair().unwrap();
        listeners.add(near, &[]);
        assert_eq!(listeners.0.len(), 4);
    }
}
