//! The local socket for a decision entity (paper 3): a separate program that decides which way each flow goes. The
//! daemon reports bindings and flows as lines of JSON, and the program answers with orders (docs/decision.md).

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

/// Events that may be queued for one connection; a connection that falls further behind is closed. Large enough for the
/// default maximum of flows, because losing a gateway moves all its flows at once.
const WAITING: usize = 262_144;
/// Most simultaneous connections.
const CONNECTIONS: usize = 16;
/// Longest line in bytes.
const LONGEST: u64 = 64 * 1024;

/// A flow, as the socket names it.
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
    /// IPv6 flow label of a flow without ports, or 0.
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

/// The traffic of a flow towards its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowRate {
    /// Packets.
    pub packets: u64,
    /// Bytes in these packets.
    pub bytes: u64,
    /// Rate between the last two samples, in kbit/s; absent before the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kbps: Option<f64>,
}

/// An event that the daemon reports to the decision entity.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Told {
    /// A host's interface is attached to this gateway. A new connection first receives the existing bindings.
    Binding {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Its binding identifier (BID), which orders refer to.
        bid: u16,
        /// Access Technology Type.
        att: String,
        /// Its prefixes.
        prefixes: Vec<String>,
        /// The gateway.
        proxy_coa: String,
    },
    /// The interface has left the gateway.
    Left {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// The interface is about to leave: its flows have already moved to another binding, if there is one.
    GoingDown {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Expected time until it leaves, in ms.
        within_ms: f64,
    },
    /// The interface stays after all; cancels [`Told::GoingDown`].
    Stays {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// A new flow, or a flow that has moved to another binding.
    Flow {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// Its differentiated services code point.
        dscp: u8,
        /// The binding it uses, or will use if no decision arrives.
        bid: u16,
        /// The reason: `rule`, `decision` or `moved`.
        why: &'static str,
        /// The daemon asks for a decision. The first packet of a new flow waits up to 20 ms for it.
        asked: bool,
        /// Its traffic so far.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// The traffic of a flow: reported once a second if it carried packets, and less often with very many flows.
    Rate {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// The binding it uses.
        bid: u16,
        /// Its traffic so far.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// The flow is forgotten: it was idle for too long, no interface of its host can carry it, or the table is full.
    FlowEnded {
        /// The flow.
        flow: FlowName,
    },
    /// The quality of the path to a gateway: reported each second if it is measured.
    Quality {
        /// The gateway.
        proxy_coa: String,
        /// The measured quality.
        #[serde(flatten)]
        quality: QualityStatus,
    },
    /// The state of the link to a host's interface: reported each second if any is known.
    Link {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// The link's state.
        #[serde(flatten)]
        link: LinkStatus,
    },
    /// An order could not be carried out.
    Refused {
        /// The reason.
        why: String,
    },
}

/// An order from the decision entity.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// The connection decides: from this point on, the daemon asks for a decision on each new flow.
    Decide {},
    /// The connection only observes.
    Observe {},
    /// Place a flow on this binding of its host.
    Place {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// The same, for a flow that currently uses another binding.
    Move {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// Return a flow to the anchor's own rule.
    Default {
        /// The flow.
        flow: FlowName,
    },
}

/// An event of the connections, for the daemon.
pub enum Happened {
    /// A client has connected; the sender carries the events for it.
    Connected(u64, mpsc::Sender<Told>),
    /// A client has sent an order, or a line that does not parse as one.
    Said(u64, Result<Order, String>),
    /// A client has disconnected.
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
    /// Another file or a live socket is at that path, or the socket cannot be created.
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

    /// Adds a connection and sends it the present state; closes it if its queue has no room for that.
    pub fn connected(&mut self, number: u64, to: mpsc::Sender<Told>, present: Vec<Told>) {
        info!("decisions: somebody has connected");
        let fits = present.into_iter().all(|told| to.try_send(told).is_ok());
        if !fits {
            warn!("decisions: a connection is closed, there are more flows than may wait for it");
        } else {
            self.connected.insert(number, Connected { to, decides: false });
        }
    }

    /// Removes a closed connection.
    pub fn gone(&mut self, number: u64) {
        self.connected.remove(&number);
    }

    /// Sets whether a connection decides or only observes.
    pub fn decides(&mut self, number: u64, decides: bool) {
        if let Some(connected) = self.connected.get_mut(&number) {
            connected.decides = decides;
        }
    }

    /// Returns whether any connection decides.
    pub fn anybody(&self) -> bool {
        self.connected.values().any(|connected| connected.decides)
    }

    /// Returns whether any client is connected.
    pub fn heard(&self) -> bool {
        !self.connected.is_empty()
    }

    /// Sends an event to all connections, and closes those whose queue is full.
    pub fn tell(&mut self, told: &Told) {
        self.connected.retain(|_, connected| connected.to.try_send(told.clone()).is_ok());
    }

    /// Sends an event to one connection; discarded if its queue is full.
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
                // The limit applies to each line, not to the whole connection.
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

/// Why a line is not a valid order.
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
