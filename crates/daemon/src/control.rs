//! A daemon's control socket. A request is one line of JSON, and so is its answer. Every program that displays or
//! controls a daemon (command line, demo, later the terminal and web views) uses these types; none touches protocol
//! state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::Gid;
use segue_linux::peer;
use segue_probe::metrics::Page;
use segue_text::errors::Told;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

pub mod any;
mod events;
mod filter;
mod metrics;
mod place;
mod sample;
pub mod tunnels;

pub use any::{Any, expecting};
pub use events::{EventRecord, EventsPage, News};
pub use filter::FilterStatus;
pub(crate) use metrics::{page, refused};
pub use place::Place;
pub use sample::{PathSample, WifiStatus};
pub use tunnels::{
    Count, EnrolmentStatus, FlowStatus, FlowsPage, HostStatus, LossStatus, PathStatus,
    TranslatorStatus, TroubleStatus, TunnelAnswer, TunnelEvent, TunnelRequest, TunnelStatus,
    Tunnels, WhyStatus,
};

/// A daemon's refusal of an unauthorised client.
const NOT_YOU: &str = "the daemon does not answer you: be root, or a member of its control_group";
/// The client's error if the answer does not fit the request.
const NO_SENSE: &str = "the daemon's answer makes no sense: is the daemon of another version, or of a role that cannot be asked this?";
/// The daemon's error for an unknown request.
const NO_SUCH_REQUEST: &str = "this daemon does not know the request: its role cannot be asked this, or it is of another version";
/// How long a daemon has to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request in bytes.
const MAX_REQUEST: u64 = 64 * 1024;

/// A role's vocabulary on its control socket, in addition to the common one.
pub trait Vocabulary: Clone + Debug + 'static {
    /// The reports of its machine.
    type News: News<Self::Event>;
    /// The requests specific to the role.
    type Request: Serialize + DeserializeOwned + Send + Debug;
    /// The answers specific to the role.
    type Answer: Serialize + DeserializeOwned + Send + Debug;
    /// The role's part of the status.
    type Status: Serialize + DeserializeOwned + Send + Debug;
    /// The content of an event, apart from its time and kind.
    type Event: Serialize + DeserializeOwned + Clone + Default + Send + Debug;

    /// The datapath in use, for metrics; empty if the role does not report one.
    fn datapath(_status: &Status<Self>) -> String {
        String::new()
    }

    /// The role's Prometheus metrics, in addition to the common ones.
    fn metrics(_status: &Status<Self>, _page: &mut Page) {}
}

/// A request to a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", bound = "")]
pub enum Request<V: Vocabulary> {
    /// [`Status`], with the events from `events_from` on.
    Status {
        /// First event wanted; [`u64::MAX`] for none.
        events_from: u64,
    },
    /// The events from `from` on: an [`EventsPage`].
    Events {
        /// First event wanted.
        from: u64,
    },
    /// A request specific to the role.
    #[serde(untagged)]
    Own(V::Request),
}

/// A daemon's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", bound = "")]
pub enum Response<V: Vocabulary> {
    /// To [`Request::Status`].
    Status(Box<Status<V>>),
    /// To [`Request::Events`].
    Events(EventsPage<V>),
    /// Done; the text is the join line for an enrolment.
    Done(String),
    /// Refused, with the reason.
    Error(String),
    /// An answer specific to the role.
    #[serde(untagged)]
    Own(V::Answer),
}

/// The status of a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Status<V: Vocabulary> {
    /// The part that every daemon has.
    #[serde(flatten)]
    pub head: Head,
    /// Events, from the requested number on.
    pub events: Vec<EventRecord<V>>,
    /// The role's part.
    #[serde(flatten)]
    pub body: V::Status,
}

/// Number of events by kind and, within each kind, by cause; the cause is empty for events without one.
pub type EventCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// The part of the status that every daemon has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// The role, such as `host` or `anchor`.
    pub role: String,
    /// The daemon's name: the host's name on a host, else empty.
    pub name: String,
    /// Program version.
    pub version: String,
    /// The daemon's monotonic clock in nanoseconds, to relate events to.
    pub now_ns: u64,
    /// Seconds since the daemon's start.
    pub uptime_s: f64,
    /// Refused packets by reason.
    pub drops: BTreeMap<String, u64>,
    /// Number of the next event.
    pub next_event: u64,
    /// Number of events by kind and cause.
    #[serde(default)]
    pub event_counts: EventCounts,
    /// Path of the event log, if there is one.
    #[serde(default)]
    pub history: Option<PathBuf>,
}

/// Directory of the control sockets.
const SOCKETS: &str = "/run/segue";

/// The default control socket of a role, or of a named instance of it.
pub fn default_path(role: &str, instance: Option<&str>) -> PathBuf {
    let dash = instance.map(|name| format!("-{name}")).unwrap_or_default();
    PathBuf::from(format!("{SOCKETS}/{role}{dash}.sock"))
}

/// The control sockets in the default directory, sorted.
pub fn sockets() -> Vec<PathBuf> {
    let found = std::fs::read_dir(SOCKETS).into_iter().flatten().flatten();
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sock");
    let mut all: Vec<PathBuf> = found.map(|entry| entry.path()).filter(is_socket).collect();
    all.sort();
    all
}

/// Sends a request to a daemon and returns its answer.
pub fn ask<V: Vocabulary>(path: &Path, request: &Request<V>) -> anyhow::Result<Response<V>> {
    ask_within(path, request, PATIENCE)
}

/// The same with another timeout, for a request that the daemon may pass on to other daemons.
pub fn ask_within<V: Vocabulary>(
    path: &Path,
    request: &Request<V>,
    patience: Duration,
) -> anyhow::Result<Response<V>> {
    Client::patient(path, patience)?.ask(request)
}

/// The status of a daemon, with the events from `events_from` on.
pub fn status<V: Vocabulary>(path: &Path, events_from: u64) -> anyhow::Result<Status<V>> {
    match ask(path, &Request::Status { events_from })? {
        Response::Status(status) => Ok(*status),
        _ => bail!(NO_SENSE),
    }
}

/// A connection to a daemon.
struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn connect(path: &Path) -> anyhow::Result<Client> {
        Client::patient(path, PATIENCE)
    }

    fn patient(path: &Path, patience: Duration) -> anyhow::Result<Client> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let name = path.display();
            let said = match error.kind() {
                ErrorKind::PermissionDenied => format!(
                    "{name} is closed to you: be root, or a member of the group that control_group names"
                ),
                _ => format!("no daemon answers at {name}; is one running, and may you reach it?"),
            };
            anyhow::Error::new(error).context(said)
        })?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    fn ask<V: Vocabulary>(&mut self, request: &Request<V>) -> anyhow::Result<Response<V>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // The daemon refuses an unauthorised client without reading the request, so the refusal
            // may still be there to read.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).context("the daemon does not listen");
            }
            _ => {}
        }
        let mut answer = String::new();
        let length = self.stream.read_line(&mut answer).context("the daemon did not answer")?;
        if length == 0 {
            bail!("the daemon hung up without an answer; has it ended?");
        }
        let Ok(answer) = serde_json::from_str(&answer) else { bail!(NO_SENSE) };
        match answer {
            Response::Error(error) => bail!(error),
            response => Ok(response),
        }
    }
}

/// A request with the channel for its answer.
pub type Asked<V> = (Request<V>, oneshot::Sender<Response<V>>);

/// The listening control socket; dropping it removes its file.
pub struct Server {
    path: PathBuf,
    listening: anyhow::Result<Listening>,
    listen: Box<dyn Fn() -> anyhow::Result<Listening> + Send>,
}

struct Listening {
    /// Device and inode of the socket's file: any other file at the same path belongs to another
    /// process.
    file: (u64, u64),
    task: AbortHandle,
}

impl Server {
    /// Listens at `path`, readable and writable for the owner and the `group`, and hands requests
    /// to `sink`. It replaces only a socket file without a listener.
    pub fn start<V: Vocabulary>(
        path: &Path,
        group: Option<Gid>,
        sink: mpsc::Sender<Asked<V>>,
    ) -> anyhow::Result<Server> {
        let (at, sink) = (path.to_owned(), sink);
        let listen = Box::new(move || Server::listen::<V>(&at, group, sink.clone()));
        Ok(Server { path: path.to_owned(), listening: Ok(listen()?), listen })
    }

    /// Listens again if the socket's file was removed. Call it periodically.
    pub fn look_after(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if !found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return;
        }
        let path = self.path.display();
        match ((self.listen)(), &self.listening) {
            (Ok(listening), before) => {
                before.iter().for_each(|before| before.task.abort());
                warn!("the control socket {path} was removed, and is there again");
                self.listening = Ok(listening);
            }
            (Err(error), Ok(before)) => {
                before.task.abort();
                warn!("the control socket {path} was removed: {}", Told(&error));
                self.listening = Err(error);
            }
            // Already logged.
            (Err(_), Err(_)) => {}
        }
    }

    fn listen<V: Vocabulary>(
        path: &Path,
        group: Option<Gid>,
        sink: mpsc::Sender<Asked<V>>,
    ) -> anyhow::Result<Listening> {
        let cannot = || format!("cannot listen at {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        match Place::of(path).with_context(cannot)? {
            Place::Free => {}
            Place::Stale => std::fs::remove_file(path).with_context(cannot)?,
            Place::InUse => bail!("another daemon already listens at {}", path.display()),
            Place::Foreign => bail!(
                "{} is no socket and is left alone; move it away, or name another path with --control",
                path.display()
            ),
        }
        let listener = UnixListener::bind(path).with_context(cannot)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        group.map_or(Ok(()), |group| open_to(path, group))?;
        let file = identity(path).with_context(cannot)?;
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) if may_ask(&stream, group) => {
                        tokio::spawn(serve(stream, sink.clone()));
                    }
                    Ok((stream, _)) => refuse::<V>(stream),
                    // Out of descriptors, for example: retry.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Ok(Listening { file, task: task.abort_handle() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let own = |file: (u64, u64)| self.listening.as_ref().is_ok_and(|own| own.file == file);
        if identity(&self.path).is_ok_and(own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Lets a group use the socket.
fn open_to(path: &Path, group: Gid) -> anyhow::Result<()> {
    std::os::unix::fs::chown(path, None, Some(group.as_raw())).with_context(|| {
        format!(
            "control_group: the socket cannot be given to group {group}; a daemon without CAP_CHOWN has to be in \
             that group (SupplementaryGroups= in its unit)"
        )
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(())
}

/// Root, the daemon's own user and members of the group. The file's mode says the same, but it is
/// set a moment after the file appears, and others may change it.
fn may_ask(stream: &tokio::net::UnixStream, group: Option<Gid>) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    let Ok(peer) = stream.peer_cred() else { return false };
    let is_member = |group: Gid| {
        let others = || peer::groups(stream.as_fd()).unwrap_or_default();
        peer.gid() == group.as_raw() || others().contains(&group.as_raw())
    };
    peer.uid() == 0 || peer.uid() == own || group.is_some_and(is_member)
}

/// Sends a refusal and hangs up, so that unauthorised clients hold no connection.
fn refuse<V: Vocabulary>(stream: tokio::net::UnixStream) {
    let Ok(mut bytes) = serde_json::to_vec(&Response::<V>::Error(NOT_YOU.into())) else {
        return;
    };
    bytes.push(b'\n');
    // The socket is new and its buffer empty, so the line fits without waiting. A client that has left needs no answer.
    let _ = stream.into_std().and_then(|mut stream| stream.write_all(&bytes));
}

async fn serve<V: Vocabulary>(stream: tokio::net::UnixStream, sink: mpsc::Sender<Asked<V>>) {
    let (read, mut write) = stream.into_split();
    let mut lines = tokio::io::BufReader::new(read.take(MAX_REQUEST)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let response = match serde_json::from_str(&line) {
            Err(error) => {
                debug!("a request that makes no sense: {error}");
                Response::Error(NO_SUCH_REQUEST.into())
            }
            Ok(request) => {
                let (back, answer) = oneshot::channel();
                if sink.send((request, back)).await.is_err() {
                    return;
                }
                match answer.await {
                    Ok(response) => response,
                    Err(_) => return,
                }
            }
        };
        let Ok(mut bytes) = serde_json::to_vec(&response) else { return };
        bytes.push(b'\n');
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
