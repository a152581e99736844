//! Data lost on a path that died is sent again over another path: requirements for either datapath.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use segue_clock::Time;
use segue_datapath::{LinuxDatapath, Reinjection};
use segue_linux::clock::monotonic;
use segue_linux::netns::Netns;

pub(crate) const APART: Duration = Duration::from_millis(40);

/// A host and an anchor with two paths between them, both with detection that follows use. New flows take the
/// first path.
pub(crate) struct Tunnel<'a> {
    pub host: End<'a>,
    pub anchor: End<'a>,
    /// Makes the first path lose everything in the direction from the host (or to it), or stop losing it.
    pub cut: &'a dyn Fn(bool, bool),
}

pub(crate) struct End<'a> {
    pub ns: &'a Netns,
    pub datapath: &'a Mutex<dyn LinuxDatapath>,
    pub slots: [u32; 2],
    pub inner: IpAddr,
}

impl End<'_> {
    fn datapath(&self) -> MutexGuard<'_, dyn LinuxDatapath + 'static> {
        self.datapath.lock().unwrap()
    }

    fn reinject(&self, since: Time) -> usize {
        let [slot, over] = self.slots;
        self.datapath().reinject(Reinjection { slot, over, since })
    }

    fn socket(&self) -> UdpSocket {
        let socket = self.ns.run(|| UdpSocket::bind((self.inner, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }
}

impl Tunnel<'_> {
    /// One socket at the host and one at the anchor, connected to each other.
    pub(crate) fn sockets(&self) -> [UdpSocket; 2] {
        let [near, far] = [&self.host, &self.anchor].map(End::socket);
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        [near, far]
    }

    /// Runs `body` while everything that the host (or the anchor) sends over the first path is lost.
    pub(crate) fn while_dead<T>(&self, from_host: bool, body: impl FnOnce() -> T) -> T {
        (self.cut)(from_host, true);
        let result = body();
        (self.cut)(from_host, false);
        result
    }

    /// Counters of both ends, for messages.
    fn counts(&self) -> String {
        let of = |end: &End<'_>| {
            let mut datapath = end.datapath();
            (end.slots.map(|slot| datapath.counters(slot)), datapath.drops(), datapath.flows())
        };
        format!("host {:?}, anchor {:?}", of(&self.host), of(&self.anchor))
    }

    /// Datagrams one by one in both directions.
    pub(crate) fn seldom(&self) {
        let [near, far] = self.sockets();
        for (from, to, sender, from_host) in
            [(&near, &far, &self.host, true), (&far, &near, &self.anchor, false)]
        {
            from.send(b"there").unwrap();
            let there = to.recv(&mut [0; 8]);
            assert!(
                there.is_ok_and(|bytes| bytes == 5),
                "from the host: {from_host}; {}",
                self.counts()
            );
            self.while_dead(from_host, || {
                from.send(b"known to be lost").unwrap();
                std::thread::sleep(APART);
                let sent = || sender.datapath().counters(sender.slots[0]).tx_packets;
                let (since, before) = (monotonic(), sent());
                for n in 0..3u8 {
                    std::thread::sleep(APART);
                    from.send(&[n; 100]).unwrap();
                }
                wait_for("three packets", || sent() == before + 3);
                assert_eq!(sender.reinject(since), 3);
                for n in 0..3u8 {
                    let mut bytes = [0; 200];
                    assert_eq!(to.recv(&mut bytes).unwrap(), 100);
                    assert_eq!(bytes[..100], [n; 100], "each once, and in order");
                }
                assert_eq!(sender.reinject(since), 0, "each once");
            });
            // The flow itself has not moved, at either end.
            let port = near.local_addr().unwrap().port();
            let flows = self.anchor.datapath().flows();
            let flow = flows.iter().find(|flow| flow.key.dport == port && flow.key.protocol == 17);
            assert_eq!(flow.unwrap().slot, self.anchor.slots[0]);
            from.send(b"after").unwrap();
            assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
        }
    }

    /// Super-packets: the first segment arrives, and its content is correct.
    pub(crate) fn stream(&self) {
        let (host, anchor) = (&self.host, &self.anchor);
        let listener = anchor.ns.run(|| TcpListener::bind((anchor.inner, 0))).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        let mut from = host.ns.run(|| TcpStream::connect(to)).unwrap().unwrap();
        let mut at = listener.accept().unwrap().0;
        at.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sent: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        let mut got = vec![0; sent.len()];
        let first = self.while_dead(true, || {
            let since = monotonic();
            std::thread::sleep(APART);
            from.write_all(&sent).unwrap();
            // The datapath has it soon; packets that the kernel retransmits are copied too.
            wait_for("a copy", || host.reinject(since) > 0);
            at.read(&mut got).unwrap()
        });
        assert!(first > 1_000, "{first} bytes");
        at.read_exact(&mut got[first..]).unwrap();
        assert!(got == sent, "bytes differ");
        let snmp = anchor.ns.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let snmp = snmp.unwrap().unwrap();
        let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
        assert_eq!(values.split(' ').nth(place), Some("0"));
    }
}

/// Waits until a condition holds, for at most ten seconds because the machine may be busy.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
