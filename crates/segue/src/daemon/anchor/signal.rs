//! The anchor's signalling: one QUIC endpoint, one stream of messages for each host.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use quinn::{Connection, Endpoint};
use rustls::pki_types::CertificateDer;
use segue_tunnel::ConnId;
use segue_wire::signal::{FromAnchor, FromHost};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;
use tracing::debug;

use super::Enrolment;
use crate::signalling::{self, Messages};

/// Messages that wait to be written to one host.
const OUTBOX: usize = 64;
/// A host must send its first message within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// What connections tell.
pub enum SignalEvent {
    /// A host has authenticated itself with this certificate.
    Connected { conn: ConnId, certificate: Vec<u8>, established: Established },
    /// A message came.
    Message { conn: ConnId, message: FromHost },
    /// The connection ended.
    Closed { conn: ConnId },
}

/// A connection that stands.
pub struct Established {
    connection: Connection,
    outbox: mpsc::Sender<FromAnchor>,
}

impl Established {
    /// Ends it for want of an enrolment.
    pub fn refuse(self) {
        self.connection.close(2u8.into(), b"not enrolled");
    }
}

/// The anchor's side of signalling.
pub struct Signal {
    endpoint: Endpoint,
    connections: BTreeMap<ConnId, Established>,
}

impl Signal {
    /// Listens on `port`, both families where the system has IPv6.
    pub fn listen(
        port: u16,
        enrolment: &Enrolment,
        events: mpsc::Sender<SignalEvent>,
    ) -> anyhow::Result<Signal> {
        let endpoint = signalling::server_endpoint(listener(port)?, enrolment.authority())?;
        tokio::spawn(accept(endpoint.clone(), events));
        Ok(Signal { endpoint, connections: BTreeMap::new() })
    }

    /// Takes a connection whose host is enrolled.
    pub fn admit(&mut self, conn: ConnId, established: Established) {
        self.connections.insert(conn, established);
    }

    /// Queues a message.
    pub fn send(&mut self, conn: ConnId, message: FromAnchor) {
        if let Some(established) = self.connections.get(&conn)
            && established.outbox.try_send(message).is_err()
        {
            established.connection.close(1u8.into(), b"outbox full");
        }
    }

    /// Ends a connection once its messages have left.
    pub fn close_conn(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
    }

    /// A connection has ended.
    pub fn forget(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
    }

    /// Tells every host that the anchor goes away.
    pub async fn close(&mut self) {
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

async fn accept(endpoint: Endpoint, events: mpsc::Sender<SignalEvent>) {
    let mut next = 0;
    while let Some(incoming) = endpoint.accept().await {
        let conn = ConnId(next);
        next += 1;
        let events = events.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(conn, incoming, &events).await {
                debug!("signalling connection {}: {error:#}", conn.0);
            }
            let _ = events.send(SignalEvent::Closed { conn }).await;
        });
    }
}

async fn serve(
    conn: ConnId,
    incoming: quinn::Incoming,
    events: &mpsc::Sender<SignalEvent>,
) -> anyhow::Result<()> {
    let connection = incoming.await?;
    let identity = connection.peer_identity().context("no certificate")?;
    let chain = identity
        .downcast::<Vec<CertificateDer<'static>>>()
        .map_err(|_| anyhow::anyhow!("an identity that is no certificate"))?;
    let certificate = chain.first().context("an empty chain")?.to_vec();
    let (mut write, read) = tokio::time::timeout(PATIENCE, connection.accept_bi())
        .await
        .context("no stream in time")??;
    let (outbox, mut queued) = mpsc::channel::<FromAnchor>(OUTBOX);
    let established = Established { connection: connection.clone(), outbox };
    events.send(SignalEvent::Connected { conn, certificate, established }).await?;
    let writer = async {
        while let Some(message) = queued.recv().await {
            signalling::send(&mut write, &message).await?;
        }
        let _ = write.finish();
        let _ = tokio::time::timeout(Duration::from_secs(1), write.stopped()).await;
        connection.close(0u8.into(), b"closed");
        anyhow::Ok(())
    };
    let reader = async {
        let mut messages = Messages::new(read);
        while let Some(message) = messages.next::<FromHost>().await? {
            events.send(SignalEvent::Message { conn, message }).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        result = writer => result,
        result = reader => result,
    }
}
