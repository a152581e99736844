//! Well-behaved and hostile hosts at an anchor's signalling, over loopback.

use super::handshakes::{MOST_OF_NETWORK, UNASKED};
use super::pace::{BURST, PACE, REGISTRATION_PACE, REGISTRATIONS};
use super::*;
use crate::identity::{ANCHOR_NAME, Credentials, new_key, request};
use segue_store::Embedded;
use segue_wire::enrol::{self as wire, ENROL_VERSION, EnrolRefusal, TOKEN_LEN, Token};
use segue_wire::signal::{self, Refusal, SIGNAL_VERSION};

/// Seconds since 1970, and a lifetime from then on that covers the real time, which TLS checks.
const NOW: (u64, Duration) = (2_000_000_000, Duration::from_secs(1_000_000_000));

struct Listening {
    signalling: Signalling,
    events: mpsc::Receiver<SignallingEvent>,
    join: Member,
    anchor: SocketAddr,
    enrolment: Enrolment,
    store: Embedded,
}

/// The credentials of an enrolled host.
struct Member {
    authority: Vec<u8>,
    host: Credentials,
}

/// An anchor's signalling on a free port, with one enrolled host.
fn listening() -> Listening {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(&directory.path().join("anchor.db")).unwrap();
    let mut enrolment = Enrolment::load(&store).unwrap();
    let (sender, events) = mpsc::channel(1_024);
    let signalling = Signalling::listen(0, &enrolment, sender).unwrap();
    let port = signalling.endpoint.local_addr().unwrap().port();
    let anchor = SocketAddr::from(([127, 0, 0, 1], port));
    let join = enrolment.invite(&store, "mallory", vec![anchor.into()], NOW).unwrap();
    let key = new_key().unwrap();
    let asked = ToEnrol::Enrol {
        version: ENROL_VERSION,
        name: "mallory".into(),
        token: join.token,
        request: request(&key).unwrap(),
    };
    let (certificate, _) = enrolment.enrol(&store, &asked, NOW).unwrap();
    let join = Member { authority: join.authority, host: Credentials { certificate, key } };
    Listening { signalling, events, join, anchor, enrolment, store }
}

fn client(join: &Member) -> Endpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut endpoint = signalling::client_endpoint(socket).unwrap();
    endpoint
        .set_default_client_config(signalling::client_config(&join.authority, &join.host).unwrap());
    endpoint
}

async fn connect(endpoint: &Endpoint, anchor: SocketAddr) -> Connection {
    endpoint.connect(anchor, ANCHOR_NAME).unwrap().await.unwrap()
}

#[tokio::test]
async fn a_host_holds_no_more_than_its_share_of_connections() {
    let Listening { mut signalling, mut events, join, anchor, .. } = listening();
    let endpoint = client(&join);
    let mut held = Vec::new();
    for epoch in 0..CONNECTIONS as u64 + 3 {
        let connection = connect(&endpoint, anchor).await;
        let (mut write, _read) = connection.open_bi().await.unwrap();
        let register = FromHost::Register { version: SIGNAL_VERSION, epoch };
        signalling::send(&mut write, &register).await.unwrap();
        held.push((connection, write, _read));
        loop {
            let event = events.recv().await.unwrap();
            if let SignallingEvent::Connected { conn, established, .. } = event {
                signalling.admit(conn, "mallory", established);
                break;
            }
        }
    }
    for (connection, ..) in &held[..3] {
        let why = connection.closed().await.to_string();
        assert!(why.contains("too many"), "{why}");
    }
    assert_eq!(signalling.connections.len(), CONNECTIONS);
    assert!(held[3..].iter().all(|(connection, ..)| connection.close_reason().is_none()));
}

#[tokio::test]
async fn a_host_that_floods_is_heard_at_a_steady_pace() {
    let Listening { signalling: _signalling, mut events, join, anchor, .. } = listening();
    let endpoint = client(&join);
    let connection = connect(&endpoint, anchor).await;
    let (mut write, _read) = connection.open_bi().await.unwrap();
    let flood = tokio::spawn(async move {
        while signalling::send(&mut write, &FromHost::RemovePath { path: 1 }).await.is_ok() {}
    });
    let mut admitted = Vec::new();
    let start = Instant::now();
    let mut heard = 0u32;
    while heard < BURST + 20 {
        match events.recv().await.unwrap() {
            SignallingEvent::Connected { established, .. } => admitted.push(established),
            SignallingEvent::Message { .. } => heard += 1,
            SignallingEvent::Closed { .. }
            | SignallingEvent::Unacceptable { .. }
            | SignallingEvent::Enrol { .. } => {
                panic!("the connection was to be slowed, not ended")
            }
        }
    }
    assert!(start.elapsed() >= PACE * 19, "{:?}", start.elapsed());
    flood.abort();
}

/// The number of messages that the anchor takes from a host that floods every connection it may have, and the seconds
/// that this took.
async fn heard(message: fn(u64) -> FromHost) -> (u32, f64) {
    let Listening { mut signalling, mut events, join, anchor, .. } = listening();
    let endpoint = client(&join);
    let flood = tokio::spawn(async move {
        let mut held = Vec::new();
        for n in 0..CONNECTIONS {
            let connection = connect(&endpoint, anchor).await;
            let (mut write, read) = connection.open_bi().await.unwrap();
            held.push(tokio::spawn(async move {
                let _read = read;
                let mut epoch = n as u64;
                while signalling::send(&mut write, &message(epoch)).await.is_ok() {
                    epoch += CONNECTIONS as u64;
                    // Let the other tasks of this thread run.
                    tokio::task::yield_now().await;
                }
                connection
            }));
        }
        std::future::pending::<()>().await;
    });
    let (mut count, start) = (0, Instant::now());
    let _ = tokio::time::timeout(Duration::from_secs(2), async {
        while let Some(event) = events.recv().await {
            match event {
                SignallingEvent::Connected { conn, established, .. } => {
                    signalling.admit(conn, "mallory", established);
                }
                SignallingEvent::Message { .. } => count += 1,
                SignallingEvent::Closed { .. }
                | SignallingEvent::Unacceptable { .. }
                | SignallingEvent::Enrol { .. } => {}
            }
        }
    })
    .await;
    flood.abort();
    (count, start.elapsed().as_secs_f64())
}

#[tokio::test]
async fn several_connections_are_heard_at_the_pace_of_one() {
    let (count, seconds) = heard(|epoch| FromHost::RemovePath { path: epoch as u8 }).await;
    let most = BURST + (seconds / PACE.as_secs_f64()) as u32 + 1;
    assert!((BURST..=most).contains(&count), "{count} of {most}");
}

#[tokio::test]
async fn a_host_registers_a_few_times_at_once_and_then_at_a_pace() {
    let register = |epoch| FromHost::Register { version: SIGNAL_VERSION, epoch };
    let (count, seconds) = heard(register).await;
    let most = REGISTRATIONS + (seconds / REGISTRATION_PACE.as_secs_f64()) as u32 + 1;
    assert!((REGISTRATIONS..=most).contains(&count), "{count} of {most}");
}

#[tokio::test]
async fn a_host_that_was_removed_is_refused_by_tls() {
    let Listening { signalling: _signalling, mut events, join, anchor, mut enrolment, store } =
        listening();
    let endpoint = client(&join);
    let attempt = || async {
        let connection = connect(&endpoint, anchor).await;
        if let Ok((mut write, read)) = connection.open_bi().await {
            let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
            let _ = signalling::send(&mut write, &register).await;
            return (connection, Some((write, read)));
        }
        (connection, None)
    };
    let _good = attempt().await;
    assert!(matches!(events.recv().await, Some(SignallingEvent::Connected { .. })));
    enrolment.remove(&store, "mallory", NOW.0).unwrap();
    let (connection, _streams) = attempt().await;
    let why = connection.closed().await;
    let revoked = u8::from(rustls::AlertDescription::CertificateRevoked);
    let quinn::ConnectionError::ConnectionClosed(close) = &why else { panic!("{why}") };
    assert_eq!(close.error_code, quinn::TransportErrorCode::crypto(revoked), "{why}");
    let told = loop {
        match events.recv().await.unwrap() {
            SignallingEvent::Connected { .. } => panic!("it is not let in"),
            SignallingEvent::Unacceptable { why, .. } => break why,
            // From the accepted connection.
            SignallingEvent::Closed { .. }
            | SignallingEvent::Message { .. }
            | SignallingEvent::Enrol { .. } => {}
        }
    };
    assert_eq!(told, Unacceptable::Removed, "so that the daemon logs why");
}

#[tokio::test]
async fn a_network_that_fills_its_share_of_handshakes_keeps_no_other_out() {
    let Listening { signalling: _signalling, events: _events, join, anchor, .. } = listening();
    let from = |ip: [u8; 4]| {
        let socket = UdpSocket::bind(SocketAddr::from((ip, 0))).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut endpoint = signalling::client_endpoint(socket).unwrap();
        endpoint.set_default_client_config(
            signalling::client_config(&join.authority, &join.host).unwrap(),
        );
        endpoint
    };
    // These stand for silent clients.
    let crowd: Vec<Endpoint> = (1..=8).map(|n| from([127, 0, 3, n])).collect();
    let mut held = Vec::new();
    for n in 0..MOST_OF_NETWORK {
        held.push(connect(&crowd[n % crowd.len()], anchor).await);
    }
    let late = from([127, 0, 3, 99]);
    let wait = Duration::from_millis(500);
    let attempt = tokio::time::timeout(wait, late.connect(anchor, ANCHOR_NAME).unwrap()).await;
    assert!(attempt.is_err(), "one more of this network is not answered");
    let other = from([127, 0, 4, 1]);
    tokio::time::timeout(PATIENCE, connect(&other, anchor)).await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_can_ask_to_be_enrolled_and_nothing_else() {
    let Listening { signalling: _signalling, mut events, join, anchor, .. } = listening();
    let mut endpoint = client(&join);
    let ask = ToEnrol::Enrol {
        version: ENROL_VERSION,
        name: "mallory".into(),
        token: Token([0; TOKEN_LEN]),
        request: vec![],
    };
    for alpn in [signal::ALPN, wire::ALPN] {
        let config = signalling::anonymous_config(&join.authority, alpn).unwrap();
        endpoint.set_default_client_config(config);
        // The wrong message for the protocol ends the connection, if the anchor has not ended it before.
        let connection = connect(&endpoint, anchor).await;
        if let Ok((mut write, _read)) = connection.open_bi().await {
            let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 << 60 };
            let _ = signalling::send(&mut write, &register).await;
        }
        connection.closed().await;
        let event = events.recv().await.unwrap();
        assert!(matches!(event, SignallingEvent::Closed { .. }), "{alpn:?}");
    }
    let connection = connect(&endpoint, anchor).await;
    let (mut write, read) = connection.open_bi().await.unwrap();
    signalling::send(&mut write, &ask).await.unwrap();
    let Some(SignallingEvent::Enrol { asked, back, .. }) = events.recv().await else {
        panic!("the daemon is asked");
    };
    assert_eq!(asked, ask);
    let refused = Enrolled::Refused { reason: EnrolRefusal::Unknown };
    back.send(refused.clone()).unwrap();
    assert_eq!(Messages::new(read).next::<Enrolled>().await.unwrap(), Some(refused));
    // The client can do nothing else on this connection.
    let _ = signalling::send(&mut write, &FromHost::Leave).await;
    connection.close(0u8.into(), b"done");
    assert!(matches!(events.recv().await, Some(SignallingEvent::Closed { .. })));
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends() {
    let Listening { signalling: _signalling, mut events, join, anchor, .. } = listening();
    let endpoint = client(&join);
    let silent = connect(&endpoint, anchor).await;
    let half = connect(&endpoint, anchor).await;
    // A stream with an incomplete message is treated alike.
    let (mut write, _read) = half.open_bi().await.unwrap();
    write.write_all(&[0]).await.unwrap();
    let start = Instant::now();
    silent.closed().await;
    half.closed().await;
    assert!(start.elapsed() < PATIENCE + Duration::from_secs(20), "{:?}", start.elapsed());
    for _ in 0..2 {
        let event = events.recv().await.unwrap();
        assert!(matches!(event, SignallingEvent::Closed { .. }), "nobody heard of it before");
    }
}

#[tokio::test]
async fn a_host_that_does_not_read_is_cut_off() {
    let Listening { mut signalling, mut events, join, anchor, .. } = listening();
    let endpoint = client(&join);
    let connection = connect(&endpoint, anchor).await;
    let (mut write, _unread) = connection.open_bi().await.unwrap();
    signalling::send(&mut write, &FromHost::Leave).await.unwrap();
    let Some(SignallingEvent::Connected { conn, established, .. }) = events.recv().await else {
        panic!("the connection stands");
    };
    signalling.admit(conn, "mallory", established);
    // More than can be sent meanwhile or fit into the connection.
    for path in 0..OUTBOX * 10_000 {
        if signalling.connections[&conn].1.connection.close_reason().is_some() {
            break;
        }
        signalling
            .send(conn, FromAnchor::PathRefused { path: path as u8, reason: Refusal::NoPath });
    }
    let why = connection.closed().await.to_string();
    assert!(why.contains("outbox full"), "{why}");
}

/// A client that stays alive but accepts no data on any of its streams.
fn closed_client(mut config: quinn::ClientConfig) -> quinn::ClientConfig {
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(0u8.into());
    transport.keep_alive_interval(Some(Duration::from_secs(1)));
    config.transport_config(std::sync::Arc::new(transport));
    config
}

#[tokio::test]
async fn a_host_that_lets_nothing_leave_holds_neither_a_connection_nor_more_than_its_share() {
    let Listening { mut signalling, mut events, join, anchor, .. } = listening();
    let mut endpoint = client(&join);
    let config = signalling::client_config(&join.authority, &join.host).unwrap();
    endpoint.set_default_client_config(closed_client(config));
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS + 3 {
        let connection = connect(&endpoint, anchor).await;
        let (mut write, read) = connection.open_bi().await.unwrap();
        signalling::send(&mut write, &FromHost::RemovePath { path: 1 }).await.unwrap();
        held.push((connection, write, read));
        let conn = loop {
            if let SignallingEvent::Connected { conn, established, .. } =
                events.recv().await.unwrap()
            {
                signalling.admit(conn, "mallory", established);
                break conn;
            }
        };
        // As after any message out of turn.
        let refused = FromAnchor::Refused { reason: Refusal::Protocol };
        signalling.send(conn, refused);
        signalling.close_after(conn);
        assert_eq!(signalling.host_of(conn), None);
    }
    let whole = async {
        for (n, (connection, ..)) in held.iter().enumerate() {
            let why = connection.closed().await.to_string();
            let expected = if n < 3 { "too many" } else { "nothing is read" };
            assert!(why.contains(expected), "{n}: {why}");
        }
    };
    tokio::time::timeout(PATIENCE * 3, whole).await.expect("they end");
    while !signalling.connections.is_empty() {
        if let SignallingEvent::Closed { conn } = events.recv().await.unwrap() {
            signalling.forget(conn);
        }
    }
}

#[tokio::test]
async fn who_asks_to_be_enrolled_and_lets_no_answer_leave_holds_no_place() {
    let Listening { signalling: _signalling, mut events, join, anchor, .. } = listening();
    let mut endpoint = client(&join);
    let config = signalling::enrolment_config(&join.authority).unwrap();
    endpoint.set_default_client_config(closed_client(config));
    let connection = connect(&endpoint, anchor).await;
    let (mut write, _read) = connection.open_bi().await.unwrap();
    let (name, token) = ("mallory".into(), Token([0; TOKEN_LEN]));
    let ask = ToEnrol::Enrol { version: ENROL_VERSION, name, token, request: vec![] };
    signalling::send(&mut write, &ask).await.unwrap();
    let Some(SignallingEvent::Enrol { back, .. }) = events.recv().await else {
        panic!("the daemon is asked");
    };
    back.send(Enrolled::Refused { reason: EnrolRefusal::Unknown }).unwrap();
    let closed = tokio::time::timeout(PATIENCE * 3, connection.closed()).await;
    closed.expect("it ends");
    assert!(matches!(events.recv().await, Some(SignallingEvent::Closed { .. })));
}

/// The first datagram of a connection attempt.
async fn initial(join: &Member) -> Vec<u8> {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let endpoint = client(join);
    let _attempt = endpoint.connect(nobody.local_addr().unwrap(), ANCHOR_NAME).unwrap();
    nobody.set_nonblocking(true).unwrap();
    let nobody = tokio::net::UdpSocket::from_std(nobody).unwrap();
    let mut bytes = vec![0; 2_048];
    let n = nobody.recv(&mut bytes).await.unwrap();
    bytes.truncate(n);
    bytes
}

#[tokio::test]
async fn when_many_handshakes_hang_a_new_source_must_show_that_it_receives() {
    /// Long header, fixed bit, type Retry (RFC 9000, section 17.2.5).
    const RETRY: u8 = 0xf0;
    let Listening { signalling: _signalling, events: _events, join, anchor, .. } = listening();
    let mut retries = Vec::new();
    for _ in 0..UNASKED + 4 {
        let first = initial(&join).await;
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&first, anchor).await.unwrap();
        let mut answer = [0; 2_048];
        let n = socket.recv(&mut answer).await.unwrap();
        assert!(n <= 3 * first.len());
        retries.push(answer[0] & 0xf0 == RETRY);
    }
    assert!(!retries[0]);
    assert!(retries[UNASKED..].iter().all(|retry| *retry), "{retries:?}");
    // A client that does receive is still let in.
    connect(&client(&join), anchor).await;
}
