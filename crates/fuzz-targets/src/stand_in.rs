//! The datagrams that stand in for QUIC in the simulator.

use core::net::SocketAddr;

use segue_clock::Time;
use segue_sim::tunnel::signal::{AnchorSignal, Datagram, Frame, Signalling};

/// Deadlines within which a connection that hears no more has ended: signs of life and repetitions of 10 s.
const DEADLINES: u32 = 100;

/// A datagram reads back from its own bytes, and one that is cut is the same or none. An anchor that takes it behind a
/// host's first one forgets the connection when nothing more comes.
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
