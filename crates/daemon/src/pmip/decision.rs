//! The local socket for a decision entity (paper 3): a separate program that decides which way each flow goes. The
//! daemon reports bindings and flows as lines of JSON, and the program answers with orders (docs/decision.md). What it
//! learns and how orders are carried out is part of the anchor's node ([`segue_node::Node`]).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use segue_node::{Event, Order};
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::control::Place;

/// Events that may be queued for one connection; a connection that falls further behind is closed. Large enough for the
/// default maximum of flows, because losing a gateway moves all its flows at once.
const WAITING: usize = 262_144;
/// Most simultaneous connections.
const CONNECTIONS: usize = 16;
/// Longest line in bytes.
const LONGEST: u64 = 64 * 1024;

/// An event of the connections, for the daemon.
pub enum Happened {
    /// A client has connected; the sender carries the events for it.
    Connected(u64, Connection),
    /// A client has sent an order, or a line that does not parse as one.
    Said(u64, Result<Order, String>),
    /// A client has disconnected.
    Gone(u64),
}

/// A connection of a program. Dropping this closes it.
pub struct Connection {
    to: mpsc::Sender<Event>,
    _open: oneshot::Sender<()>,
}

/// The socket. Dropping this removes it.
pub struct Decisions {
    path: PathBuf,
    connected: BTreeMap<u64, Connection>,
    task: tokio::task::AbortHandle,
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

    /// Adds a connection.
    pub fn connected(&mut self, number: u64, connection: Connection) {
        info!("decisions: a program has connected");
        self.connected.insert(number, connection);
    }

    /// Removes a closed connection.
    pub fn gone(&mut self, number: u64) {
        self.connected.remove(&number);
    }

    /// Sends an event to one connection or to all. Closes those that are too far behind, and returns their numbers.
    pub fn tell(&mut self, to: Option<u64>, event: &Event) -> Vec<u64> {
        let mut closed = Vec::new();
        self.connected.retain(|number, connection| {
            let is_asked = to.is_none_or(|to| to == *number);
            let is_behind = is_asked && connection.to.try_send(event.clone()).is_err();
            closed.extend(is_behind.then_some(*number));
            !is_behind
        });
        for _ in &closed {
            warn!("decisions: a connection is closed, more events wait for it than may");
        }
        closed
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
    let (to, mut tell) = mpsc::channel::<Event>(WAITING);
    let (open, mut closed) = oneshot::channel();
    let connection = Connection { to, _open: open };
    if sink.send(Happened::Connected(number, connection)).await.is_err() {
        return;
    }
    let mut lines = BufReader::new(read.take(LONGEST)).lines();
    loop {
        tokio::select! {
            event = tell.recv() => {
                let Some(event) = event else { return };
                let Ok(mut bytes) = serde_json::to_vec(&event) else { return };
                bytes.push(b'\n');
                tokio::select! {
                    written = write.write_all(&bytes) => {
                        if written.is_err() {
                            return;
                        }
                    }
                    // It does not read, and was closed for that.
                    _ = &mut closed => return,
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
