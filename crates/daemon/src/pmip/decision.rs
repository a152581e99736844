//! Whoever decides where flows go (paper 3's decision entity) is a program of its own, at a local socket: it is told of
//! bindings and flows in lines of JSON, and orders where flows go (docs/decision.md).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use segue_ip::FlowKey;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::quality::{LinkStatus, QualityStatus};
use crate::control::Place;

/// Lines that wait for a connection; one that does not read them loses the connection. A gateway that is lost moves as many
/// flows as there may be by default, at once.
const WAITING: usize = 262_144;
/// Connections at a time.
const CONNECTIONS: usize = 16;
/// Longest line in bytes.
const LONGEST: u64 = 64 * 1024;

/// A flow, as it is named on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowName {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, the host's.
    pub dst: IpAddr,
    /// Source port, or 0.
    #[serde(default)]
    pub sport: u16,
    /// Destination port, or 0.
    #[serde(default)]
    pub dport: u16,
    /// IP protocol.
    pub protocol: u8,
    /// IPv6 flow label where there are no ports, or 0.
    #[serde(default)]
    pub label: u32,
}

impl From<FlowKey> for FlowName {
    fn from(FlowKey { src, dst, sport, dport, protocol, label }: FlowKey) -> FlowName {
        FlowName { src, dst, sport, dport, protocol, label }
    }
}

impl From<FlowName> for FlowKey {
    fn from(FlowName { src, dst, sport, dport, protocol, label }: FlowName) -> FlowKey {
        FlowKey { src, dst, sport, dport, protocol, label }
    }
}

/// What a flow has carried towards its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowRate {
    /// Packets.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// In the last second that was looked at, in kbit/s, once there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kbps: Option<f64>,
}

/// What whoever decides is told.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Told {
    /// A host's interface is at this gateway. Those that are there come first, on connecting.
    Binding {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Its number, by which flows are placed.
        bid: u16,
        /// Access Technology Type.
        att: String,
        /// Its prefixes.
        prefixes: Vec<String>,
        /// The gateway.
        proxy_coa: String,
    },
    /// It is not any more.
    Left {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// It is about to leave: its flows go another way by now, if there is one.
    GoingDown {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Within this time.
        within_ms: f64,
    },
    /// It does not leave after all.
    Stays {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// There is a flow, or it goes another way than before.
    Flow {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// Its differentiated services code point.
        dscp: u8,
        /// Where it goes, or will if nobody decides.
        bid: u16,
        /// Why: `rule`, `decision` or `moved`.
        why: &'static str,
        /// Decide. If the flow is new, its first packet waits for that for 20 ms.
        asked: bool,
        /// What it has carried.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// What a flow has carried: each second, if anything.
    Rate {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// Where it goes.
        bid: u16,
        /// What.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// It is forgotten: nothing has come of it for a while, or no interface of its host can carry it, or the table is full.
    FlowEnded {
        /// The flow.
        flow: FlowName,
    },
    /// How well the way to a gateway does: each second, if it is measured.
    Quality {
        /// The gateway.
        proxy_coa: String,
        /// How well.
        #[serde(flatten)]
        quality: QualityStatus,
    },
    /// What is known of the link to a host's interface: each second, if anything is.
    Link {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// What.
        #[serde(flatten)]
        link: LinkStatus,
    },
    /// An order that could not be followed.
    Refused {
        /// Why.
        why: String,
    },
}

/// What whoever decides orders.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// From now on it is asked first where a new flow goes.
    Decide,
    /// It is only told.
    Observe,
    /// A flow goes to this binding of its host.
    Place {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// The same, of a flow that goes elsewhere by now.
    Move {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// A flow goes where the anchor's own rule says.
    Default {
        /// The flow.
        flow: FlowName,
    },
}

/// What connections tell the daemon.
pub enum Happened {
    /// Somebody has connected, and is told through this.
    Connected(u64, mpsc::Sender<Told>),
    /// Somebody orders something, or says what is no order.
    Said(u64, Result<Order, String>),
    /// Somebody has left.
    Gone(u64),
}

/// The socket. Dropping this removes it.
pub struct Decisions {
    path: PathBuf,
    connected: BTreeMap<u64, Connected>,
    task: tokio::task::AbortHandle,
}

struct Connected {
    to: mpsc::Sender<Told>,
    decides: bool,
}

impl Decisions {
    /// Listens at a path.
    ///
    /// # Errors
    /// Something else is there, or it cannot be made.
    pub fn listen(path: &Path, sink: mpsc::Sender<Happened>) -> anyhow::Result<Decisions> {
        let cannot = || format!("decisions: cannot listen at {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(cannot)?;
        }
        match Place::of(path).with_context(cannot)? {
            Place::Free => {}
            Place::Stale => std::fs::remove_file(path).with_context(cannot)?,
            Place::InUse | Place::Foreign => bail!("{}: it is there already", cannot()),
        }
        let listener = UnixListener::bind(path).with_context(cannot)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(cannot)?;
        let task = tokio::spawn(async move {
            let room = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
            for number in 0.. {
                let Ok(permit) = std::sync::Arc::clone(&room).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let sink = sink.clone();
                        tokio::spawn(async move {
                            serve(number, stream, &sink).await;
                            let _ = sink.send(Happened::Gone(number)).await;
                            drop(permit);
                        });
                    }
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                }
            }
        });
        let (path, task) = (path.to_owned(), task.abort_handle());
        Ok(Decisions { path, connected: BTreeMap::new(), task })
    }

    /// Somebody has connected: tells them what is there.
    pub fn connected(&mut self, number: u64, to: mpsc::Sender<Told>, present: Vec<Told>) {
        info!("decisions: somebody has connected");
        let fits = present.into_iter().all(|told| to.try_send(told).is_ok());
        if !fits {
            warn!("decisions: a connection is closed, there are more flows than may wait for it");
        } else {
            self.connected.insert(number, Connected { to, decides: false });
        }
    }

    /// Somebody has left.
    pub fn gone(&mut self, number: u64) {
        self.connected.remove(&number);
    }

    /// Somebody decides, or only looks.
    pub fn decides(&mut self, number: u64, decides: bool) {
        if let Some(connected) = self.connected.get_mut(&number) {
            connected.decides = decides;
        }
    }

    /// Whether somebody decides.
    pub fn anybody(&self) -> bool {
        self.connected.values().any(|connected| connected.decides)
    }

    /// Whether somebody listens.
    pub fn heard(&self) -> bool {
        !self.connected.is_empty()
    }

    /// Tells all that have connected; whoever does not read loses the connection.
    pub fn tell(&mut self, told: &Told) {
        self.connected.retain(|_, connected| connected.to.try_send(told.clone()).is_ok());
    }

    /// Tells one.
    pub fn tell_one(&mut self, number: u64, told: Told) {
        if let Some(connected) = self.connected.get(&number) {
            let _ = connected.to.try_send(told);
        }
    }
}

impl Drop for Decisions {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(number: u64, stream: UnixStream, sink: &mpsc::Sender<Happened>) {
    let (read, mut write) = stream.into_split();
    let (to, mut tell) = mpsc::channel::<Told>(WAITING);
    if sink.send(Happened::Connected(number, to)).await.is_err() {
        return;
    }
    let mut lines = BufReader::new(read.take(LONGEST)).lines();
    loop {
        tokio::select! {
            told = tell.recv() => {
                let Some(told) = told else { return };
                let Ok(mut bytes) = serde_json::to_vec(&told) else { return };
                bytes.push(b'\n');
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                // The limit is of a line, not of a connection.
                lines.get_mut().get_mut().set_limit(LONGEST);
                if line.trim().is_empty() {
                    continue;
                }
                let order = serde_json::from_str(&line).map_err(|error| refusal(&error));
                if sink.send(Happened::Said(number, order)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Why a line is no order.
fn refusal(error: &serde_json::Error) -> String {
    const EXAMPLE: &str = r#"{"order":"decide"}"#;
    match error.classify() {
        Category::Data => {
            let said = error.to_string();
            let what = said.split(" at line ").next().unwrap_or(&said);
            let what = what.replace('`', "\"").replace("unknown field", "unknown key");
            format!("no order, such as {EXAMPLE}: {}", what.replace("missing field", "missing key"))
        }
        Category::Syntax | Category::Eof | Category::Io => {
            format!("this line is no JSON object, such as {EXAMPLE}: see column {}", error.column())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        refusal(&serde_json::from_str::<Order>(line).unwrap_err())
    }

    #[test]
    fn what_is_no_order_is_refused_in_words_of_the_page() {
        for line in ["decide", "{\"order\":", "{'order':'decide'}"] {
            let said = refused(line);
            assert!(said.starts_with("this line is no JSON object, such as {\"order\""), "{said}");
        }
        let unknown = refused(r#"{"order":"fly"}"#);
        assert!(unknown.contains("unknown variant \"fly\""), "{unknown}");
        let more = refused(r#"{"order":"decide","now":true}"#);
        assert!(more.ends_with("unknown key \"now\"") || more.contains("\"now\""), "{more}");
        let less = refused(r#"{"order":"default"}"#);
        assert!(less.ends_with("missing key \"flow\""), "{less}");
    }
}
