//! Addresses from two pools.

use alloc::format;
use core::net::IpAddr;

use segue_clock::{Machine, Span, Time};
use segue_ip::Prefix;
use segue_wire::signal::{FromAnchor, FromHost, SIGNAL_VERSION};

use super::super::Anchor;
use super::config;
use crate::{AnchorConfig, AnchorInput, AnchorOutput, ConnId, Ending, Output, Pool};

/// Registers a host and disconnects it. Returns its IPv4 address, if it got one.
fn register(anchor: &mut Anchor, now: Time, host: &str) -> Option<IpAddr> {
    let conn = ConnId(now.0);
    let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
    let connected = AnchorInput::Connected { conn, host: host.into() };
    let mut granted = None;
    for input in [connected, AnchorInput::Signal { conn, message }] {
        anchor.handle(now, input.into());
        while let Some(output) = anchor.poll() {
            if let Output::Driver(segue_ip::Output::Own(AnchorOutput::Signal(_, message))) = output
                && let FromAnchor::Registered { inner, .. } = message
            {
                granted = inner.first().copied();
            }
        }
    }
    anchor.handle(now, AnchorInput::Disconnected { conn }.into());
    granted
}

#[test]
fn a_host_for_which_the_second_pool_has_no_room_takes_nothing_from_the_first() {
    let pool_v4 = Pool::new(Prefix::new([10, 0, 0, 0], 29));
    let pool_v6 = Pool::new("fd00::/126".parse().unwrap());
    let mut anchor = Anchor::new(AnchorConfig { pool_v4, pool_v6, ..config(1) }, [3; 32]);
    let own = |n| Some(IpAddr::from([10, 0, 0, n]));
    assert_eq!(register(&mut anchor, Time(1), "a"), own(2));
    assert_eq!(register(&mut anchor, Time(2), "b"), own(3));
    for late in 0..20 {
        assert_eq!(register(&mut anchor, Time(3 + late), &format!("late{late}")), None);
    }
    assert_eq!(register(&mut anchor, Time(30), "b"), own(3));
    let end = AnchorInput::End { host: "a".into(), why: Ending::Removed };
    anchor.handle(Time(31), end.into());
    while anchor.poll().is_some() {}
    let rested = Time(31) + Span::from_secs(60);
    assert_eq!(register(&mut anchor, Time(rested.0 - 1), "c"), None);
    assert!(register(&mut anchor, rested, "c").is_some());
}
