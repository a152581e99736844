//! Sockets over the loopback device.

use super::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn wait(socket: &TimestampedSocket, flags: PollFlags) {
    let mut fds = [PollFd::new(socket.as_fd(), flags)];
    let ready = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
    assert_eq!(ready, 1, "nothing came within ten seconds");
}

fn receive(socket: &TimestampedSocket) -> (Datagram, Vec<u8>) {
    wait(socket, PollFlags::POLLIN);
    let mut buffer = [0; 100];
    let datagram = socket.recv(&mut buffer).unwrap().unwrap();
    (datagram, buffer[..datagram.len].to_vec())
}

fn transmitted(socket: &TimestampedSocket) -> TxStamp {
    wait(socket, PollFlags::empty());
    socket.tx_stamp().unwrap().unwrap()
}

/// Sends a request, answers from the address that received it, and checks the order of the stamps of both ends.
fn exchange(listen: &str, ask: &str) {
    let mut server = TimestampedSocket::bind(listen.parse().unwrap(), None).unwrap();
    let asked: IpAddr = ask.parse().unwrap();
    let any = if asked.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut client = TimestampedSocket::bind(any.parse().unwrap(), None).unwrap();
    let to = SocketAddr::new(asked, server.local_addr().unwrap().port());
    for n in 0..3 {
        let before = clock::monotonic();
        assert_eq!(client.send(b"question", to, Leave::default()).unwrap(), n);
        let (question, bytes) = receive(&server);
        assert_eq!((bytes.as_slice(), question.local), (&b"question"[..], Some(asked)));
        let sent = transmitted(&client);
        assert_eq!(sent.id, n);
        server
            .send(b"answer", question.source, Leave { from: question.local, ..Leave::default() })
            .unwrap();
        let (answer, bytes) = receive(&client);
        assert_eq!((bytes.as_slice(), answer.source), (&b"answer"[..], to));
        // The kernel enables receive stamps asynchronously, so the first datagram may lack one.
        if n > 0 && question.kernel_stamp {
            assert!(before <= sent.at && sent.at <= question.at, "{sent:?} {question:?}");
        }
        assert!(question.at <= answer.at && answer.at <= clock::monotonic());
    }
    assert_eq!(client.recv(&mut [0; 9]).unwrap(), None);
    assert_eq!(client.tx_stamp().unwrap(), None);
}

#[test]
fn ipv4_answers_come_from_the_address_that_was_asked_with_stamps_in_order() {
    exchange("0.0.0.0:0", "127.0.0.3");
}

#[test]
fn ipv6_answers_come_from_the_address_that_was_asked_with_stamps_in_order() {
    exchange("[::]:0", "::1");
}

#[test]
fn an_ipv6_socket_on_the_unspecified_address_serves_ipv4_clients() {
    exchange("[::]:0", "127.0.0.3");
}

#[test]
fn ids_stay_in_step_after_a_datagram_that_could_not_be_sent() {
    let mut socket = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let to = socket.local_addr().unwrap();
    assert_eq!(socket.send(b"a", to, Leave::default()).unwrap(), 0);
    assert_eq!(transmitted(&socket).id, 0);
    socket.send(&[0; 70_000], to, Leave::default()).unwrap_err();
    assert_eq!(socket.send(b"b", to, Leave::default()).unwrap(), 1);
    assert_eq!(transmitted(&socket).id, 1);
}

#[test]
fn a_datagram_longer_than_the_buffer_is_marked() {
    let mut socket = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    socket.send(b"12345", socket.local_addr().unwrap(), Leave::default()).unwrap();
    wait(&socket, PollFlags::POLLIN);
    let datagram = socket.recv(&mut [0; 3]).unwrap().unwrap();
    assert_eq!((datagram.len, datagram.truncated), (3, true));
}

#[test]
fn errors_name_what_was_asked_for() {
    let any = "127.0.0.1:0".parse().unwrap();
    let missing = TimestampedSocket::bind(any, Some("segue-none")).unwrap_err();
    assert!(matches!(missing, UdpError::NoInterface { name } if name == "segue-none"));
    let first = TimestampedSocket::bind(any, None).unwrap();
    let taken = TimestampedSocket::bind(first.local_addr().unwrap(), None).unwrap_err();
    assert!(matches!(taken, UdpError::InUse { .. }));
}

#[test]
fn the_traffic_class_arrives_and_an_answer_may_have_one_of_its_own() {
    for (listen, ask) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1"), ("[::]:0", "127.0.0.1")] {
        let mut server = TimestampedSocket::bind(listen.parse().unwrap(), None).unwrap();
        server.receive_traffic_class().unwrap();
        let asked: IpAddr = ask.parse().unwrap();
        let any = if asked.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let mut client = TimestampedSocket::bind(any.parse().unwrap(), None).unwrap();
        client.receive_traffic_class().unwrap();
        client.set_traffic_class(46 << 2).unwrap();
        let to = SocketAddr::new(asked, server.local_addr().unwrap().port());
        client.send(b"a", to, Leave::default()).unwrap();
        let (question, _) = receive(&server);
        assert_eq!(question.class, Some(46 << 2), "{listen} {ask}");
        let class = Some(8 << 2);
        let how = Leave { from: question.local, class, ..Leave::default() };
        server.send(b"b", question.source, how).unwrap();
        assert_eq!(receive(&client).0.class, Some(8 << 2), "{listen} {ask}");
    }
}

#[test]
fn a_datagram_longer_than_the_path_takes_is_refused_when_it_must_not_be_fragmented() {
    for (any, to) in
        [("127.0.0.1:0", "127.0.0.1:9"), ("[::]:0", "127.0.0.1:9"), ("[::1]:0", "[::1]:9")]
    {
        let mut socket = TimestampedSocket::bind(any.parse().unwrap(), None).unwrap();
        socket.never_fragment().unwrap();
        let to = to.parse().unwrap();
        let mtu = path_mtu(to).unwrap();
        assert!((65_535..=65_536).contains(&mtu), "the loopback device takes that: {mtu}");
        let error = socket.send(&vec![0; 65_520], to, Leave::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "{any}");
    }
}

#[test]
fn without_a_kernel_stamp_the_bound_reaches_back_to_when_the_socket_was_empty() {
    let socket = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    // With the option off, only the program's clock is left.
    setsockopt(&socket.socket, Timestamping, &TimestampingFlag::empty()).unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap(), None);
    let empty = socket.empty.get();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"a", socket.local_addr().unwrap()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (late, _) = receive(&socket);
    assert!(!late.kernel_stamp && late.seen == late.at, "{late:?}");
    assert_eq!(late.error, late.at.since(empty));
    assert!(late.error >= Span::from_millis(20), "{late:?}");
}

#[test]
fn a_closed_port_is_told_with_what_was_sent_there_and_by_whom() {
    for (any, there) in [
        ("0.0.0.0:0", "127.0.0.3"),
        ("[::]:0", "::1"),
        // An IPv6 socket that sends to an IPv4 address.
        ("[::]:0", "127.0.0.3"),
    ] {
        let mut socket = TimestampedSocket::bind(any.parse().unwrap(), None).unwrap();
        socket.receive_icmp().unwrap();
        let ip: IpAddr = there.parse().unwrap();
        let closed = {
            let taken = TimestampedSocket::bind(SocketAddr::new(ip, 0), None).unwrap();
            taken.local_addr().unwrap()
        };
        let open = TimestampedSocket::bind(SocketAddr::new(ip, 0), None).unwrap();
        // ICMP errors neither stop datagrams from leaving nor disturb their numbers.
        for n in 0..3 {
            socket.send(b"anybody there?", closed, Leave::default()).unwrap();
            let id = socket.send(b"hello", open.local_addr().unwrap(), Leave::default()).unwrap();
            assert_eq!(id, 3 * n + 1);
            socket.send(b"anybody there?", closed, Leave::default()).unwrap();
            assert_eq!(
                socket.recv(&mut [0; 9]).unwrap(),
                None,
                "an error of the way is none of the socket"
            );
            assert_eq!(receive(&open).1, b"hello");
            let mut left = Vec::new();
            while let Some(stamp) = socket.tx_stamp().unwrap() {
                left.push(stamp.id);
            }
            assert!(left.contains(&id), "{left:?}");
            for _ in 0..2 {
                let error = socket.icmp_error().unwrap();
                assert_eq!((error.to, error.reason), (closed, IcmpReason::PortUnreachable));
                assert_eq!(
                    (error.from, error.quote.as_slice()),
                    (Some(ip), &b"anybody there?"[..])
                );
            }
            assert_eq!(socket.icmp_error(), None);
        }
        assert_eq!(socket.recv(&mut [0; 9]).unwrap(), None);
    }
}

#[test]
fn nobody_who_has_not_asked_hears_of_icmp() {
    let mut socket = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let closed = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let to = closed.local_addr().unwrap();
    drop(closed);
    socket.send(b"anybody there?", to, Leave::default()).unwrap();
    while socket.tx_stamp().unwrap().is_some() {}
    assert_eq!(socket.icmp_error(), None);
    socket.send(b"still?", to, Leave::default()).unwrap();
}
