//! The simulator's substitute for QUIC datagrams.

use core::net::SocketAddr;

use segue_clock::Time;
use segue_sim::tunnel::signal::{AnchorSignal, Datagram, Frame, Signalling};

/// Number of deadlines after which a silent connection must have ended: keepalives and retransmissions of 10 s.
const DEADLINES: u32 = 100;

/// A datagram parses to itself from its own bytes, and a truncated one gives the same datagram or none. An anchor that
/// accepts it after a host's first datagram ends the connection if no more arrive.
pub(crate) fn stand_in(data: &[u8]) {
    let Some(datagram) = Datagram::decode(data) else { return };
    assert_eq!(Datagram::decode(&datagram.encode()).as_ref(), Some(&datagram));
    for n in 0..data.len() {
        assert!(Datagram::decode(&data[..n]).is_none_or(|cut| cut == datagram), "{n} bytes");
    }
    let ends = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 5006)));
    let mut anchor = AnchorSignal::new();
    let (conn, number, ack) = (datagram.conn, 0, None);
    let hello = Datagram { conn, number, ack, frame: Frame::Hello { name: "alice".into() } };
    for came in [hello, datagram] {
        anchor.receive(Time::ZERO, ends[0], ends[1], came);
    }
    let mut deadlines = 0;
    while let Some(at) = anchor.deadline() {
        anchor.tick(at);
        while anchor.poll().is_some() {}
        deadlines += 1;
        assert!(deadlines < DEADLINES, "it never comes to rest");
    }
    assert!(anchor.is_empty());
}
