//! Access links: one for each interface of a host, each direction by itself.

use std::net::{IpAddr, Ipv4Addr};

use segue_clock::{Rng, Span, Time};
use segue_ip::Interface;

/// Which directions of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    Both,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub delay: Span,
    pub jitter: Span,
    pub loss: f64,
    pub alive: bool,
    /// The largest packet that it takes.
    pub mtu: u32,
    last_arrival: Time,
}

impl Direction {
    fn new(delay: Span) -> Direction {
        let (jitter, last_arrival) = (Span::ZERO, Time::ZERO);
        Direction { delay, jitter, loss: 0.0, alive: true, mtu: 1_500, last_arrival }
    }

    /// When a packet sent now arrives, in the order of sending; `None` if it is lost.
    pub(crate) fn transmit(&mut self, now: Time, bytes: u32, rng: &mut Rng) -> Option<Time> {
        let lost = rng.chance(self.loss);
        let jitter = Span(rng.below(self.jitter.0.saturating_add(1)));
        if lost || !self.alive || bytes > self.mtu {
            return None;
        }
        self.last_arrival = self.last_arrival.max(now + self.delay + jitter);
        Some(self.last_arrival)
    }
}

/// An interface of a host and the network behind it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub name: String,
    pub ifindex: u32,
    pub address: IpAddr,
    pub gateway: Option<IpAddr>,
    /// What the interface says that it takes.
    pub mtu: u32,
    /// The interface exists.
    pub present: bool,
    pub up: Direction,
    pub down: Direction,
}

impl Link {
    pub(crate) fn new(name: &str, ifindex: u32, address: IpAddr, one_way: Span) -> Link {
        Link {
            name: name.into(),
            ifindex,
            address,
            gateway: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            mtu: 1_500,
            present: true,
            up: Direction::new(one_way),
            down: Direction::new(one_way),
        }
    }

    pub(crate) fn works(&self) -> bool {
        self.present && self.up.alive && self.down.alive
    }

    pub(crate) fn interface(&self) -> Interface {
        Interface {
            name: self.name.clone(),
            index: self.ifindex,
            addresses: vec![self.address],
            gateways: self.gateway.into_iter().collect(),
            mtu_bytes: self.mtu,
        }
    }
}
