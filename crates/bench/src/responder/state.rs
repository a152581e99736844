//! Path state of a user-space responder: the minimum that is equivalent to the kernel's.

use segue_linux::clock::monotonic;
use segue_wire::{Header, PacketType, Probe, ProbeKey};

use crate::protocol::{cookie, key, peer};

/// Weight of a sample in the averages.
const WEIGHT: f64 = 0.125;
/// Number of requests in a loss interval.
const INTERVAL: u32 = 100;

/// Counters and averages of one path.
#[derive(Clone, Debug)]
struct PathState {
    key: ProbeKey,
    last_seq: Option<u32>,
    received: u32,
    sent: u32,
    /// Counters at the start of the loss interval: sent by the client, received here.
    interval: (u32, u32),
    rtt_us: f64,
    loss: f64,
}

/// All paths.
#[derive(Debug)]
pub(super) struct States(Vec<PathState>);

impl States {
    pub(super) fn new(paths: u32) -> States {
        let path = |slot| PathState {
            key: key(slot),
            last_seq: None,
            received: 0,
            sent: 0,
            interval: (0, 0),
            rtt_us: 0.0,
            loss: 0.0,
        };
        States((0..paths).map(path).collect())
    }

    /// Verifies and records a request and returns its sealed response; `None` if it is rejected.
    pub(super) fn answer(&mut self, packet: &[u8]) -> Option<[u8; Probe::PACKET_LEN]> {
        let arrived_us = now_us();
        let header = Header::parse(packet).ok()?;
        let slot = header.index;
        let path = self.0.get_mut(slot as usize)?;
        if header.packet_type != PacketType::Request || header.cookie != cookie(slot) {
            return None;
        }
        let mut probe = Probe::open(packet, &path.key).ok()?;
        if path.last_seq.is_some_and(|last| probe.seq.wrapping_sub(last) as i32 <= 0) {
            return None;
        }
        path.learn(&probe, arrived_us);
        path.sent = path.sent.wrapping_add(1);
        probe.ss = path.sent;
        probe.r = path.received;
        probe.t_ss = now_us();
        probe.dt = probe.t_ss.wrapping_sub(arrived_us);
        let (index, cookie) = peer(slot);
        let header =
            Header { packet_type: PacketType::Response, flags: 0, index, cookie, ..header };
        Some(probe.seal(&header, &path.key))
    }
}

impl PathState {
    fn learn(&mut self, probe: &Probe, arrived_us: u32) {
        self.last_seq = Some(probe.seq);
        self.received = self.received.wrapping_add(1);
        let rtt_us = arrived_us.wrapping_sub(probe.t_ss).wrapping_sub(probe.dt);
        self.rtt_us += (f64::from(rtt_us) - self.rtt_us) * WEIGHT;
        let sent = probe.sc.wrapping_sub(self.interval.0);
        if sent >= INTERVAL {
            let received = self.received.wrapping_sub(self.interval.1);
            let loss = 1.0 - f64::from(received) / f64::from(sent);
            self.loss += (loss - self.loss) * WEIGHT;
            self.interval = (probe.sc, self.received);
        }
    }
}

fn now_us() -> u32 {
    (monotonic().0 / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Format, Macs, Requests};

    #[test]
    fn requests_are_answered_once_and_averaged() {
        let mut requests = Requests::new(Format::Probe, Macs::default(), 1, 1);
        let mut states = States::new(1);
        let mut frame = Vec::new();
        for n in 1..=250 {
            let id = requests.write(now_us(), &mut frame);
            if n % 2 == 0 {
                continue; // lost
            }
            let answer = states.answer(&frame[42..]).unwrap();
            assert_eq!(Format::Probe.answer(&answer), Some(id));
            assert_eq!(states.answer(&frame[42..]), None, "a second time");
        }
        let path = &states.0[0];
        assert_eq!((path.received, path.sent), (125, 125));
        assert!(path.loss > 0.05 && path.loss < 0.5, "{}", path.loss);
        assert!(path.rtt_us >= 50.0, "{}", path.rtt_us);
    }
}
