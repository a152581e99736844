//! Signalling over QUIC (quinn, rustls): configurations with mutual authentication, sockets bound to
//! an interface, and one stream of messages for each connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime,
    TransportConfig, TransportErrorCode,
};
use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};
use segue_linux::clock::realtime_s;
use segue_text::errors::Told;
use segue_text::units::day;
use segue_wire::enrol;
use segue_wire::signal::{self, ALPN};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::oneshot;

use crate::identity::{Authority, Credentials};

/// A connection without any packet for this long is dead.
const IDLE: Duration = Duration::from_secs(10);
/// Keepalive interval of an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Initial round-trip time of an attempt: its first messages are repeated after 3, 9 and 21 times
/// this. A small value finds a restarted anchor sooner.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Time between two stateless resets. Thousands of hosts may need one when an anchor restarts; none
/// is larger than the packet that it answers.
const RESET_PACE: Duration = Duration::from_micros(100);

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    transport.max_idle_timeout(IDLE.try_into().ok());
    transport.initial_rtt(INITIAL_RTT);
    transport.max_concurrent_bidi_streams(1u8.into());
    transport.max_concurrent_uni_streams(0u8.into());
    transport.datagram_receive_buffer_size(None);
    Arc::new(transport)
}

fn roots(authority: &[u8]) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(authority.to_vec()))
        .context("the authority's certificate is unreadable")?;
    Ok(roots)
}

fn chain(own: &Credentials) -> (Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>) {
    (vec![own.certificate.clone().into()], PrivatePkcs8KeyDer::from(own.key.clone()))
}

mod reset;
mod roster;

use roster::Listed;
pub use roster::Roster;

/// A separate thread for signalling: the cost of TLS must not delay a daemon's timers, nor run at their priority. Start
/// it before the daemon raises its own scheduling.
pub struct Worker {
    handle: tokio::runtime::Handle,
    /// Dropping this ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, with the caller's scheduling and network namespace.
    pub fn start() -> anyhow::Result<Worker> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no event loop for signalling")?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("segue-signal".into())
            .spawn(move || drop(runtime.block_on(stopped)))
            .context("no thread for signalling")?;
        Ok(Worker { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Its runtime; spawn tasks and create sockets there.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The anchor's side: presents the anchor's certificate, and accepts clients whose certificate its authority signed and
/// the roster lists. A client without a certificate may only ask to be enrolled ([`is_enrolment`]).
fn server_config(authority: &Authority, roster: Roster) -> anyhow::Result<quinn::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots(&authority.authority.certificate)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let verifier = Arc::new(Listed { signed: verifier, roster });
    let (chain, key) = chain(&authority.anchor);
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key.into())?;
    tls.alpn_protocols = vec![ALPN.to_vec(), enrol::ALPN.to_vec()];
    tls.max_early_data_size = 0;
    // A resumed session presents no certificate, so a removed host would get in.
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

/// The side of an enrolled host: presents its certificate, and accepts only an anchor whose certificate the join line's
/// authority signed.
///
/// # Errors
/// The certificate is not for the key.
pub fn client_config(authority: &[u8], host: &Credentials) -> anyhow::Result<quinn::ClientConfig> {
    let (chain, key) = chain(host);
    finish(client_builder(authority)?.with_client_auth_cert(chain, key.into())?, ALPN)
}

/// The side of a host that wants to be enrolled: accepts only an anchor whose certificate the join line's authority
/// signed.
pub fn enrolment_config(authority: &[u8]) -> anyhow::Result<quinn::ClientConfig> {
    anonymous_config(authority, enrol::ALPN)
}

/// A client without a certificate.
pub fn anonymous_config(authority: &[u8], alpn: &[u8]) -> anyhow::Result<quinn::ClientConfig> {
    finish(client_builder(authority)?.with_no_client_auth(), alpn)
}

fn client_builder(
    authority: &[u8],
) -> anyhow::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_details(provider, Arc::new(NotBeforeCertificates))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(authority)?))
}

/// The time of day, but never earlier than the validity of an anchor's certificate: a host without a battery-backed
/// clock starts in 1970.
#[derive(Debug)]
struct NotBeforeCertificates;

impl TimeProvider for NotBeforeCertificates {
    fn current_time(&self) -> Option<UnixTime> {
        /// 2020-01-01.
        const FIRST: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_577_836_800));
        Some(UnixTime::now().max(FIRST))
    }
}

fn finish(mut tls: ClientConfig, alpn: &[u8]) -> anyhow::Result<quinn::ClientConfig> {
    tls.alpn_protocols = vec![alpn.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

/// A UDP socket for signalling towards an address of this family, bound to an interface, to a source if one is given,
/// and marked so that the host's own routing rules let it pass outside the tunnel.
pub fn socket(
    v6: bool,
    interface: &str,
    source: Option<IpAddr>,
    mark: u32,
) -> anyhow::Result<UdpSocket> {
    let (domain, any): (_, IpAddr) = if v6 {
        (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into())
    } else {
        (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket
        .bind_device(Some(interface.as_bytes()))
        .with_context(|| format!("signalling cannot be bound to {interface}"))?;
    socket.set_mark(mark).context("signalling cannot be marked for the routing rules")?;
    let source = source.unwrap_or(any);
    socket
        .bind(&SocketAddr::new(source, 0).into())
        .with_context(|| format!("signalling cannot be bound to {source} at {interface}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A host's QUIC endpoint on a socket.
pub fn client_endpoint(socket: UdpSocket) -> anyhow::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
        .context("no signalling endpoint")
}

/// An anchor's QUIC endpoint on a socket. A stateless reset (RFC 9000, section 10.3) informs a host at once that its
/// connection to an earlier run of the anchor is gone.
pub fn server_endpoint(
    socket: UdpSocket,
    authority: &Authority,
    roster: Roster,
) -> anyhow::Result<Endpoint> {
    let mut config = EndpointConfig::new(Arc::new(reset::Key::of(authority)?));
    config.cid_generator(|| Box::new(reset::AnyId));
    config.min_reset_interval(RESET_PACE);
    let server = Some(server_config(authority, roster)?);
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).context("no signalling endpoint")
}

/// Returns whether the client asks to be enrolled.
pub fn is_enrolment(connection: &Connection) -> bool {
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    data.and_then(|data| data.protocol).is_some_and(|protocol| protocol == enrol::ALPN)
}

/// Asks the anchor to enrol the host, over a connection made with [`enrolment_config`]; returns the answer.
pub async fn enrol(
    connection: &Connection,
    asked: &enrol::ToEnrol,
) -> anyhow::Result<enrol::Enrolled> {
    let (mut write, read) = connection.open_bi().await?;
    send(&mut write, asked).await?;
    let answer = Messages::new(read).next().await?;
    connection.close(0u8.into(), b"done");
    answer.context("the anchor says nothing")
}

/// Why a connection ended, in words for the operator of a host.
pub fn why_ended(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => {
            format!("the anchor has been silent for {} s: it is down, or the way to it is", IDLE.as_secs())
        }
        ConnectionError::Reset => "the anchor knows the connection no more: it has restarted".into(),
        ConnectionError::VersionMismatch => {
            "what answers speaks no common version of QUIC: is it an anchor, and of this version?".into()
        }
        ConnectionError::ConnectionClosed(close) if is_alert(close.error_code) => {
            "the anchor does not accept this host's certificate: run segue enroll at the anchor, and start with its line"
                .into()
        }
        ConnectionError::TransportError(error)
            if error.code == alert(AlertDescription::CertificateExpired) =>
        {
            format!(
                "the anchor's certificate is not valid at this host's time, {}: set the clock",
                day(realtime_s())
            )
        }
        ConnectionError::ConnectionClosed(_) | ConnectionError::ApplicationClosed(_) => {
            "the anchor closed the connection: its log says why".into()
        }
        ConnectionError::TransportError(error) if is_alert(error.code) => {
            "the certificate of what answers is not the anchor's: is the address right?".into()
        }
        ConnectionError::TransportError(_) => {
            "what answers does not keep to QUIC: is it an anchor, and of this version?".into()
        }
        ConnectionError::LocallyClosed => "this host has closed the connection".into(),
        ConnectionError::CidsExhausted => "there are too many connections".into(),
    }
}

/// Returns whether the code is a TLS alert (RFC 9001, section 4.8).
fn is_alert(code: TransportErrorCode) -> bool {
    (0x100..0x200).contains(&u64::from(code))
}

/// An error in one line; if a connection ended, the reason for that.
pub fn in_words(error: &anyhow::Error) -> String {
    let ended = error.chain().find_map(|cause| cause.downcast_ref::<ConnectionError>());
    ended.map_or_else(|| Told(error).to_string(), why_ended)
}

/// Why an anchor refuses a host's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unacceptable {
    /// It is not valid at the anchor's time.
    Expired,
    /// The host is no longer enrolled.
    Removed,
}

impl Unacceptable {
    fn of(code: TransportErrorCode) -> Option<Unacceptable> {
        match code {
            code if code == alert(AlertDescription::CertificateExpired) => {
                Some(Unacceptable::Expired)
            }
            code if code == alert(AlertDescription::CertificateRevoked) => {
                Some(Unacceptable::Removed)
            }
            _ => None,
        }
    }
}

/// Why the anchor ended the connection, if it refused the host's certificate.
pub fn refused_by_anchor(connection: &Connection) -> Option<Unacceptable> {
    match connection.close_reason()? {
        ConnectionError::ConnectionClosed(close) => Unacceptable::of(close.error_code),
        _ => None,
    }
}

/// Why this anchor ended a handshake, if it refused the host's certificate.
pub fn refused_here(error: &anyhow::Error) -> Option<Unacceptable> {
    match error.chain().find_map(|cause| cause.downcast_ref::<ConnectionError>())? {
        ConnectionError::TransportError(error) => Unacceptable::of(error.code),
        _ => None,
    }
}

/// The QUIC error code of a TLS alert (RFC 9001, section 4.8).
fn alert(alert: AlertDescription) -> TransportErrorCode {
    TransportErrorCode::crypto(alert.into())
}

/// Writes one message.
pub async fn send<M: Serialize>(stream: &mut SendStream, message: &M) -> anyhow::Result<()> {
    let bytes = signal::encode(message)?;
    stream.write_all(&bytes).await.context("the signalling connection broke")
}

/// Reads messages from a stream.
pub struct Messages {
    stream: RecvStream,
    buffer: Vec<u8>,
}

impl Messages {
    /// The messages of `stream`.
    pub fn new(stream: RecvStream) -> Messages {
        Messages { stream, buffer: Vec::new() }
    }

    /// The next message; `None` when the peer has finished.
    pub async fn next<M: for<'a> Deserialize<'a>>(&mut self) -> anyhow::Result<Option<M>> {
        loop {
            if let Some(message) = signal::decode(&mut self.buffer)? {
                return Ok(Some(message));
            }
            let chunk = self.stream.read_chunk(signal::MAX_MESSAGE, true).await?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.buffer.extend_from_slice(&chunk.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ANCHOR_NAME, new_key, request};

    fn local() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn host(authority: &Authority, name: &str) -> Credentials {
        let key = new_key().unwrap();
        let issued = authority.certify(name, &request(&key).unwrap(), 4_000_000_000).unwrap();
        Credentials { certificate: issued.certificate, key }
    }

    #[tokio::test]
    async fn a_hosts_certificate_makes_no_anchor() {
        let authority = Authority::generate().unwrap();
        let root = &authority.authority.certificate;
        let impostor = Authority { anchor: host(&authority, "mallory"), ..authority.clone() };
        let laptop = host(&authority, "laptop");
        for (anchor, taken) in [(&authority, true), (&impostor, false)] {
            let server = server_endpoint(local(), anchor, Roster::default()).unwrap();
            let at = server.local_addr().unwrap();
            let accepting = tokio::spawn(async move {
                while let Some(incoming) = server.accept().await {
                    tokio::spawn(incoming.into_future());
                }
            });
            let mut client = client_endpoint(local()).unwrap();
            // Refused by an enrolled host, and by one that wants to enrol, which would reveal its token.
            for config in [client_config(root, &laptop).unwrap(), enrolment_config(root).unwrap()] {
                client.set_default_client_config(config);
                let met = client.connect(at, ANCHOR_NAME).unwrap().await;
                assert_eq!(met.is_ok(), taken, "{:?}", met.err());
                // Nor under the name in the certificate.
                let own = client.connect(at, "mallory.host.segue.invalid").unwrap().await;
                assert!(own.is_err());
            }
            accepting.abort();
        }
    }
}
