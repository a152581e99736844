//! The anchor's signalling: one QUIC endpoint, and one stream of messages per host.
//!
//! Anyone who can send to the port causes work for the anchor, so this work is bounded: the handshakes of each network,
//! the connections of each host, and each host's messages and registrations over all its connections.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use quinn::{Connection, Endpoint};
use rustls::pki_types::CertificateDer;
use segue_text::errors::Told;
use segue_tunnel::ConnId;
use segue_wire::enrol::{Enrolled, ToEnrol};
use segue_wire::signal::{FromAnchor, FromHost};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::debug;

use super::Enrolment;
use crate::signalling::{self, Messages, Roster, Unacceptable, Worker};

mod handshakes;
mod pace;

use self::handshakes::{Handshakes, Place, Verdict};
use self::pace::Allowances;

mod enrol;

/// Messages that may be queued for one host.
const OUTBOX: usize = 64;
/// A host must send its first message, and read each of the anchor's, within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Silence after which a connection is closed when its host opens another.
const SILENT: Duration = Duration::from_secs(3);
/// Most connections of one host; a further one ends its oldest. A host needs one, and a second
/// while it moves.
const CONNECTIONS: usize = 4;
/// Events of the connections.
pub enum SignallingEvent {
    /// A host has authenticated itself with this certificate.
    Connected { conn: ConnId, certificate: Vec<u8>, established: Established },
    /// A message arrived.
    Message { conn: ConnId, message: FromHost },
    /// The connection ended.
    Closed { conn: ConnId },
    /// The certificate that a host presents is not accepted.
    Unacceptable { from: SocketAddr, why: Unacceptable },
    /// A client without a certificate asks to be enrolled.
    Enrol { asked: ToEnrol, from: SocketAddr, back: oneshot::Sender<Enrolled> },
}

/// An established connection.
pub struct Established {
    connection: Connection,
    /// `None` once nothing more will be sent.
    outbox: Option<mpsc::Sender<FromAnchor>>,
    /// The number of datagrams at the last check that found new ones, and the time of that check.
    heard: (u64, Instant),
}

impl Established {
    /// Returns whether nothing has arrived since a check [`SILENT`] ago: a live host sends something every second.
    fn is_silent(&mut self, now: Instant) -> bool {
        let datagrams = self.connection.stats().udp_rx.datagrams;
        if datagrams != self.heard.0 {
            self.heard = (datagrams, now);
        }
        now.duration_since(self.heard.1) >= SILENT
    }

    /// Closes the connection because the host is not enrolled.
    pub fn refuse(self) {
        self.connection.close(2u8.into(), b"not enrolled");
    }
}

/// The anchor's side of signalling.
pub(super) struct Signalling {
    endpoint: Endpoint,
    /// Each with the name of its host, from the first message until the connection has ended; closing connections
    /// count.
    connections: BTreeMap<ConnId, (String, Established)>,
    _worker: Worker,
}

impl Signalling {
    /// Listens on `port`, in both families if the system has IPv6.
    pub(super) fn listen(
        port: u16,
        enrolment: &Enrolment,
        events: mpsc::Sender<SignallingEvent>,
    ) -> anyhow::Result<Signalling> {
        let worker = Worker::start()?;
        let endpoint = {
            let _there = worker.handle().enter();
            signalling::server_endpoint(listener(port)?, enrolment.authority(), enrolment.roster())?
        };
        let gate = Gate { roster: enrolment.roster(), allowances: Allowances::default() };
        worker.handle().spawn(accept(endpoint.clone(), gate, events));
        Ok(Signalling { endpoint, connections: BTreeMap::new(), _worker: worker })
    }

    /// Accepts a connection of an enrolled host.
    pub(super) fn admit(&mut self, conn: ConnId, host: &str, established: Established) {
        // A crashed host falls silent long before its connection times out.
        let now = Instant::now();
        for (name, before) in self.connections.values_mut() {
            if name == host && before.is_silent(now) {
                before.connection.close(6u8.into(), b"nothing comes any more");
            }
        }
        let own = self.connections.iter().filter(|(_, (name, _))| name == host);
        let own: Vec<ConnId> = own.map(|(conn, _)| *conn).collect();
        for surplus in &own[..(own.len() + 1).saturating_sub(CONNECTIONS)] {
            if let Some((_, oldest)) = self.connections.remove(surplus) {
                oldest.connection.close(3u8.into(), b"too many connections");
            }
        }
        self.connections.insert(conn, (host.to_owned(), established));
    }

    /// Queues a message for a host.
    pub(super) fn send(&mut self, conn: ConnId, message: FromAnchor) {
        if let Some((_, established)) = self.connections.get(&conn)
            && let Some(outbox) = &established.outbox
            && outbox.try_send(message).is_err()
        {
            established.connection.close(1u8.into(), b"outbox full");
        }
    }

    /// The host at the other end, while messages may be sent to it.
    pub(super) fn host_of(&self, conn: ConnId) -> Option<&str> {
        let open = self.connections.get(&conn).filter(|(_, known)| known.outbox.is_some());
        open.map(|(host, _)| host.as_str())
    }

    /// Ends a connection at once; queued messages are lost.
    pub(super) fn end(&mut self, conn: ConnId, why: &[u8]) {
        if let Some((_, established)) = self.connections.remove(&conn) {
            established.connection.close(4u8.into(), why);
        }
    }

    /// Ends a connection once its messages have left.
    pub(super) fn close_after(&mut self, conn: ConnId) {
        if let Some((_, established)) = self.connections.get_mut(&conn) {
            established.outbox = None;
        }
    }

    /// Removes a connection that has ended.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
    }

    /// Closes all connections, because the anchor shuts down.
    pub(super) async fn close(&mut self) {
        self.connections.clear();
        self.endpoint.close(0u8.into(), b"the anchor stops");
        let _ = tokio::time::timeout(Duration::from_millis(500), self.endpoint.wait_idle()).await;
    }
}

fn listener(port: u16) -> anyhow::Result<UdpSocket> {
    let context = || {
        format!("cannot listen for signalling on UDP port {port}; is it in use, or set signal_port")
    };
    let v6 = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP));
    let (socket, any): (Socket, SocketAddr) = match v6 {
        Ok(socket) => {
            socket.set_only_v6(false).with_context(context)?;
            (socket, (Ipv6Addr::UNSPECIFIED, port).into())
        }
        Err(_) => (
            Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).with_context(context)?,
            (std::net::Ipv4Addr::UNSPECIFIED, port).into(),
        ),
    };
    socket.bind(&any.into()).with_context(context)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

async fn accept(endpoint: Endpoint, gate: Gate, events: mpsc::Sender<SignallingEvent>) {
    let handshakes = Handshakes::default();
    let mut next = 0;
    while let Some(incoming) = endpoint.accept().await {
        let (source, validated) = (incoming.remote_address(), incoming.remote_address_validated());
        let place = match handshakes.begin(source.ip(), validated, Instant::now()) {
            Verdict::Serve(place) => place,
            Verdict::Retry => {
                // Fails only if a retry is not allowed here.
                let _ = incoming.retry();
                continue;
            }
            Verdict::Ignore => {
                incoming.ignore();
                continue;
            }
        };
        let conn = ConnId(next);
        next += 1;
        let (gate, events) = (gate.clone(), events.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(conn, incoming, place, &gate, &events).await {
                debug!("signalling connection {} of {source}: {}", conn.0, Told(&error));
                if let Some(why) = signalling::refused_here(&error) {
                    let _ = events.send(SignallingEvent::Unacceptable { from: source, why }).await;
                }
            }
            let _ = events.send(SignallingEvent::Closed { conn }).await;
        });
    }
}

/// The hosts that are let in, and their allowances.
#[derive(Clone)]
struct Gate {
    roster: Roster,
    allowances: Allowances,
}

async fn serve(
    conn: ConnId,
    incoming: quinn::Incoming,
    handshake: Place,
    gate: &Gate,
    events: &mpsc::Sender<SignallingEvent>,
) -> anyhow::Result<()> {
    let connection = tokio::time::timeout(PATIENCE, incoming).await.context("no handshake")??;
    if signalling::is_enrolment(&connection) {
        // The permit bounds enrolments too: each counts as a handshake in progress.
        let done = enrol::converse(&connection, events).await;
        drop(handshake);
        return done;
    }
    let identity = connection.peer_identity().context("no certificate")?;
    let chain = identity
        .downcast::<Vec<CertificateDer<'static>>>()
        .map_err(|_| anyhow::anyhow!("an identity that is no certificate"))?;
    let certificate = chain.first().context("an empty chain")?.to_vec();
    let host = gate.roster.get(&certificate).context("no longer enrolled")?;
    let (mut write, read) = tokio::time::timeout(PATIENCE, connection.accept_bi())
        .await
        .context("no stream in time")??;
    let mut messages = Messages::new(read);
    let first = tokio::time::timeout(PATIENCE, messages.next::<FromHost>())
        .await
        .context("no message in time")??
        .context("no message")?;
    drop(handshake);
    let (outbox, mut queued) = mpsc::channel::<FromAnchor>(OUTBOX);
    let established = Established {
        connection: connection.clone(),
        outbox: Some(outbox),
        heard: (0, Instant::now()),
    };
    events.send(SignallingEvent::Connected { conn, certificate, established }).await?;
    let writer = async {
        while let Some(message) = queued.recv().await {
            let sent = tokio::time::timeout(PATIENCE, signalling::send(&mut write, &message)).await;
            if sent.is_err() {
                connection.close(5u8.into(), b"nothing is read");
            }
            sent.context("the host does not read")??;
        }
        let _ = write.finish();
        let _ = tokio::time::timeout(Duration::from_secs(1), write.stopped()).await;
        connection.close(0u8.into(), b"closed");
        anyhow::Ok(())
    };
    let reader = async {
        let mut next = Some(first);
        while let Some(message) = next {
            let hosts = gate.roster.count();
            let wait = gate.allowances.take(&host, &message, hosts, Instant::now());
            tokio::time::sleep(wait).await;
            events.send(SignallingEvent::Message { conn, message }).await?;
            next = messages.next::<FromHost>().await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        result = writer => result,
        result = reader => result,
    }
}

#[cfg(test)]
mod tests;
