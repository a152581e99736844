//! The exchange that enrols a host: one request, one answer.

use std::net::SocketAddr;

use anyhow::Context;
use quinn::Connection;
use segue_wire::enrol::{EnrolRefusal, Enrolled, ToEnrol};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{PATIENCE, SignallingEvent};
use crate::signalling::{self, Messages};

/// Passes the client's request to the daemon. Each step of the client has a time limit, and the connection ends with
/// the answer.
pub(super) async fn converse(
    connection: &Connection,
    events: &mpsc::Sender<SignallingEvent>,
) -> anyhow::Result<()> {
    let streams = timeout(PATIENCE, connection.accept_bi()).await.context("no stream in time")?;
    let (mut write, read) = streams?;
    let mut messages = Messages::new(read);
    let asked =
        timeout(PATIENCE, messages.next::<ToEnrol>()).await.context("no message in time")?;
    let asked = asked?.context("no message")?;
    let (back, answer) = oneshot::channel();
    let from = connection.remote_address();
    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
    events.send(SignallingEvent::Enrol { asked, from, back }).await?;
    let later = Enrolled::Refused { reason: EnrolRefusal::Later };
    let answer = answer.await.unwrap_or(later);
    let sent = timeout(PATIENCE, signalling::send(&mut write, &answer)).await;
    sent.context("the client does not read")??;
    let _ = write.finish();
    // The client closes the connection once it has the answer.
    let _ = timeout(PATIENCE, connection.closed()).await;
    Ok(())
}
