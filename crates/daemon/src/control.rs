//! A daemon's control socket: a request is one line of JSON, and so is its answer. Everything that
//! views or steers a daemon (command line, demo, later the terminal and web views) uses these
//! types; none touches protocol state.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::Gid;
use segue_linux::peer;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use crate::locator::Locator;

mod events;
mod place;

pub use events::{EventRecord, EventsPage};
pub use place::Place;

/// A daemon's refusal of an unauthorised client.
const NOT_YOU: &str = "the daemon does not answer you: be root, or a member of its control_group";
/// Longest request in bytes.
const MAX_REQUEST: u64 = 64 * 1024;

/// A request to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// [`Status`], with the events from this number on.
    Status {
        /// First event wanted; [`u64::MAX`] for none.
        events_from: u64,
    },
    /// The events from this number on: an [`EventsPage`].
    Events {
        /// First event wanted.
        from: u64,
    },
    /// Some of the flows: a [`FlowsPage`].
    Flows {
        /// Where the page begins: 0, or as the last page says.
        #[serde(default)]
        from: u64,
        /// Only those of this host, by name (anchor).
        #[serde(default)]
        host: Option<String>,
    },
    /// Moves flows (host).
    Handover {
        /// One flow, as `segue flows` prints it.
        flow: Option<String>,
        /// A class by name; all classes if neither is given.
        class: Option<String>,
        /// The path; back to automatic if not given.
        to: Option<String>,
    },
    /// Switches the keepalive of a path on or off (host).
    Keepalive {
        /// The path.
        path: String,
        /// Whether it is probed.
        on: bool,
    },
    /// Makes a join line for a host (anchor).
    Enroll {
        /// The host's name.
        name: String,
        /// Addresses at which the host finds the anchor; the anchor's own if empty.
        addresses: Vec<Locator>,
        /// How long the join line is valid, in seconds; a day if not given.
        #[serde(default)]
        valid_s: Option<u64>,
    },
    /// Lists the enrolled hosts (anchor).
    Enrolments,
    /// Ends a host's enrolment (anchor).
    Unenroll {
        /// The host's name.
        name: String,
    },
}

/// A daemon's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Events`].
    Events(EventsPage),
    /// To [`Request::Flows`].
    Flows(FlowsPage),
    /// To [`Request::Enrolments`].
    Enrolments(Vec<EnrolmentStatus>),
    /// Done; for an enrolment the join line.
    Done(String),
    /// Refused, and why.
    Error(String),
}

/// The status of a daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// `host` or `anchor`.
    pub role: String,
    /// The host's name, empty at an anchor.
    pub name: String,
    /// Program version.
    pub version: String,
    /// `ebpf`, `ebpf+xdp` or `user`.
    pub datapath: String,
    /// The tunnel device.
    pub device: String,
    /// The host is registered (an anchor: it listens).
    pub registered: bool,
    /// The anchor in use (host).
    pub anchor: Option<String>,
    /// Own inner addresses.
    pub inner: Vec<String>,
    /// The interface that carries signalling (host).
    pub signalling: Option<String>,
    /// Why the anchor is not reached (host).
    #[serde(default)]
    pub trouble: Option<TroubleStatus>,
    /// Monotonic clock in nanoseconds, for relating events.
    pub now_ns: u64,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The registered hosts (anchor).
    pub hosts: Vec<HostStatus>,
    /// The paths.
    pub paths: Vec<PathStatus>,
    /// The path that each class of flows uses (host).
    pub classes: BTreeMap<String, String>,
    /// The path to which an operator bound a class of flows (host).
    #[serde(default)]
    pub orders: BTreeMap<String, String>,
    /// Refused packets by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets sent again over another path while their own was in doubt.
    pub reinjected: u64,
    /// Events from the number asked for on.
    pub events: Vec<EventRecord>,
    /// Number of the next event.
    pub next_event: u64,
}

/// Why the anchor is not reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TroubleStatus {
    /// In words.
    pub why: String,
    /// Seconds since that was last seen.
    pub ago_s: f64,
}

/// A registered host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its inner addresses.
    pub inner: Vec<String>,
    /// Its signalling connection stands.
    pub connected: bool,
}

/// An enrolled host, or one with a pending join line. Times are seconds since 1970 on the anchor's
/// clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentStatus {
    /// Its name.
    pub name: String,
    /// `enrolled`; `expired` if its certificate is; `invited` while its join line is pending; `line
    /// expired` if the line was not used in time.
    pub state: String,
    /// Its inner addresses, which it keeps.
    pub inner: Vec<String>,
    /// When it was enrolled, or the line was made.
    pub since_s: u64,
    /// When its certificate, or the line, expires.
    pub expires_s: u64,
    /// Its signalling connection stands.
    pub connected: bool,
    /// When it was last connected. If it has not connected since the anchor started: when it last
    /// registered.
    pub seen_s: Option<u64>,
}

/// A path. Losses and averages are over the time constants in `tau_s`, in that order; empty before
/// there is a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// The host's name (anchor).
    pub host: String,
    /// The path's name: the host's interface.
    pub name: String,
    /// This end.
    pub local: Option<String>,
    /// The other end, as last seen.
    pub remote: Option<String>,
    /// `setup`, `starting`, `up` or `down`: requests and answers pass (host), requests arrive
    /// (anchor); `unwatched` if the keepalive is off or, at an anchor, if only the host measures.
    pub state: String,
    /// Who measures: `both`, `client`, `reports` or `round-trip-loss`.
    #[serde(default)]
    pub mode: String,
    /// Form of the packets: `segue` or `upmt`.
    #[serde(default)]
    pub encapsulation: String,
    /// Probes may ride on data.
    #[serde(default)]
    pub rides: bool,
    /// Packets towards the host pass, as far as is known.
    pub downlink: bool,
    /// Path that carries this one's packets instead.
    pub via: Option<String>,
    /// K.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: f64,
    /// The longest time until an outage is noticed, in milliseconds: T_Rmax (eq. 1) with the
    /// largest RTT seen, or the time that the questions in doubt take.
    pub bound_ms: f64,
    /// Time constants of the averages in seconds.
    pub tau_s: Vec<f64>,
    /// Last round-trip time in milliseconds.
    pub rtt_last_ms: Option<f64>,
    /// Smallest.
    pub rtt_min_ms: Option<f64>,
    /// Largest.
    pub rtt_max_ms: Option<f64>,
    /// Averages.
    pub rtt_ms: Vec<f64>,
    /// One-way loss from host to anchor (OWLc), averages.
    pub owl_up: Vec<f64>,
    /// One-way loss from anchor to host (OWLs), averages.
    pub owl_down: Vec<f64>,
    /// Packets towards the anchor since the first exchange: sent and lost.
    pub up: Count,
    /// Packets towards the host since the first exchange: sent and lost.
    pub down: Count,
    /// Round-trip loss, averages; only where it is evaluated or reported.
    #[serde(default)]
    pub rtl: Vec<f64>,
    /// Largest error of the last round-trip time in milliseconds.
    #[serde(default)]
    pub uncertainty_ms: f64,
    /// Probes of its own kind that this end has sent, with and without data: requests (host), responses to
    /// requests (anchor).
    pub probes_sent: u64,
    /// Those that rode on data.
    #[serde(default)]
    pub probes_rode: u64,
    /// Those that went alone.
    #[serde(default)]
    pub probes_alone: u64,
    /// The largest IP packet known to pass upwards, in bytes (host).
    #[serde(default)]
    pub mtu_up: Option<u16>,
    /// The same downwards.
    #[serde(default)]
    pub mtu_down: Option<u16>,
    /// Something that was due did not come: questions are under way (host).
    #[serde(default)]
    pub in_doubt: bool,
    /// How often that has happened.
    #[serde(default)]
    pub doubts: u64,
    /// Why K and T_KA have their values (host, if they follow the measurements).
    #[serde(default)]
    pub why: Option<WhyStatus>,
    /// Probes received.
    pub probes_received: u64,
    /// Changes between up and down.
    pub transitions: u64,
    /// Packets sent on the path, including probes except questions and their answers, modulo 2³².
    pub tx_packets: u32,
    /// Packets received on the path, likewise.
    pub rx_packets: u32,
    /// Inner bytes sent.
    pub tx_bytes: u64,
    /// Inner bytes received.
    pub rx_bytes: u64,
}

impl PathStatus {
    /// Its state for display: a path that is up and in doubt is `in doubt`.
    #[must_use]
    pub fn shown_state(&self) -> &str {
        if self.in_doubt && self.state == "up" { "in doubt" } else { &self.state }
    }
}

/// What the planner chose, and from what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhyStatus {
    /// K.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: f64,
    /// The path carries data.
    pub active: bool,
    /// Mean round-trip time then known, in milliseconds.
    pub rtt_ms: f64,
    /// Largest round-trip time then known, in milliseconds.
    pub rtt_max_ms: f64,
    /// Planned loss towards the anchor.
    pub loss_up: f64,
    /// Planned loss towards the host.
    pub loss_down: f64,
    /// Planned share of probes lost in either direction.
    pub loss: f64,
    /// Mean length of loss bursts in milliseconds; `None` if none was seen.
    pub burst_ms: Option<f64>,
    /// Questions in doubt.
    pub questions: u8,
    /// Time from one question to the next, in milliseconds.
    pub spacing_ms: f64,
    /// Time from the beginning of doubt to down (T_D), in milliseconds.
    pub t_d_ms: f64,
    /// Planned mean time between false alarms (T_fp) in seconds; `None` if none is expected.
    pub t_fp_s: Option<f64>,
    /// Planned mean time to notice an outage in milliseconds: from the first packet lost while data
    /// flow, else from the outage.
    pub detection_ms: f64,
    /// What was given up: `nothing` or `false_positives`.
    pub given_up: String,
    /// Seconds since the change.
    pub changed_s: f64,
    /// All of it in one sentence.
    pub text: String,
}

/// Packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Sent.
    pub sent: u64,
    /// Lost of those.
    pub lost: u64,
}

/// One page of the flows. There may be a million, so a client asks for page after page, and the
/// daemon tends its paths in between.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowsPage {
    /// The flows.
    pub flows: Vec<FlowStatus>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<u64>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The flow as this end sends it.
    pub flow: String,
    /// Its class (host).
    pub class: Option<String>,
    /// The path it is bound to.
    pub path: String,
    /// The path that carries it while its own is dead.
    pub via: Option<String>,
    /// An operator bound it.
    pub pinned: bool,
    /// Packets sent.
    pub packets: u64,
    /// Inner bytes sent.
    pub bytes: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: f64,
    /// Why it uses that path.
    pub why: String,
}

/// A role's default control socket.
pub fn default_path(role: &str) -> PathBuf {
    PathBuf::from(format!("/run/segue/{role}.sock"))
}

/// Asks a daemon.
pub fn ask(path: &Path, request: &Request) -> anyhow::Result<Response> {
    Client::connect(path)?.ask(request)
}

/// All flows of a daemon, or those of one host (anchor); `each` page as it comes.
pub fn flows(
    path: &Path,
    host: Option<&str>,
    mut each: impl FnMut(Vec<FlowStatus>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(path)?;
    let mut next = Some(0);
    while let Some(from) = next {
        let request = Request::Flows { from, host: host.map(str::to_owned) };
        let Response::Flows(page) = client.ask(&request)? else {
            bail!("the daemon's answer makes no sense");
        };
        next = page.next;
        each(page.flows)?;
    }
    Ok(())
}

/// A connection to a daemon.
struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn connect(path: &Path) -> anyhow::Result<Client> {
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
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Response> {
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
        match serde_json::from_str(&answer).context("the daemon's answer makes no sense")? {
            Response::Error(error) => bail!(error),
            response => Ok(response),
        }
    }
}

/// A request with the channel for its answer.
pub type Asked = (Request, oneshot::Sender<Response>);

/// The listening control socket; dropping it removes its file.
pub struct Server {
    path: PathBuf,
    /// Device and inode of the socket's file: any other file at the same path belongs to another
    /// process.
    file: (u64, u64),
}

impl Server {
    /// Listens at `path`, readable and writable for the owner and the `group`, and hands requests
    /// to `sink`. It replaces only a socket file without a listener.
    pub fn start(
        path: &Path,
        group: Option<Gid>,
        sink: mpsc::Sender<Asked>,
    ) -> anyhow::Result<Server> {
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
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) if may_ask(&stream, group) => {
                        tokio::spawn(serve(stream, sink.clone()));
                    }
                    Ok((stream, _)) => refuse(stream),
                    // Out of descriptors, for example: that passes.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Ok(Server { path: path.to_owned(), file })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
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
fn refuse(stream: tokio::net::UnixStream) {
    let Ok(mut bytes) = serde_json::to_vec(&Response::Error(NOT_YOU.into())) else { return };
    bytes.push(b'\n');
    // The socket is new and empty, so the line fits without waiting; a client that has left needs
    // none.
    let _ = stream.into_std().and_then(|mut stream| stream.write_all(&bytes));
}

async fn serve(stream: tokio::net::UnixStream, sink: mpsc::Sender<Asked>) {
    let (read, mut write) = stream.into_split();
    let mut lines = tokio::io::BufReader::new(read.take(MAX_REQUEST)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let response = match serde_json::from_str(&line) {
            Err(error) => Response::Error(format!("the request makes no sense: {error}")),
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
