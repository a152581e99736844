//! Limits how many flows each of an anchor's hosts may begin.

use std::net::IpAddr;

use segue_clock::{Span, Time};

use crate::paid::Paid;
use crate::{FLOW_PACE, FLOWS_AT_ONCE};

/// Flow quotas by inner address; a host has one address per family.
#[derive(Default)]
pub(super) struct Shares {
    /// Virtual time of the last flow of each address, if flows were paced.
    paid: Paid,
}

impl Shares {
    /// True if another flow from this address is within its quota; the flow is then counted.
    pub(super) fn take(&mut self, from: IpAddr, now: Time) -> bool {
        const AHEAD: Span = Span(FLOW_PACE.0 * FLOWS_AT_ONCE as u64);
        let paid = self.paid.of(from, now);
        if paid.since(now) > AHEAD {
            return false;
        }
        *paid = (*paid).max(now) + FLOW_PACE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::SocketAddr;

    use segue_keepalive::Probing;
    use segue_wire::{Header, PacketType, ProbeKey};

    use super::super::dry_run::DryRun;
    use crate::sync::lock;
    use crate::{PathSetup, Role};

    #[test]
    fn a_share_is_used_up_at_once_or_at_its_pace_and_is_of_one_address() {
        let mut shares = Shares::default();
        let [own, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let begin = |shares: &mut Shares, from, tries: u32, now: Time| {
            (0..tries).filter(|_| shares.take(from, now)).count() as u32
        };
        let now = Time(5_000_000_000);
        assert_eq!(begin(&mut shares, own, 100_000, now), FLOWS_AT_ONCE + 1);
        assert_eq!(begin(&mut shares, other, 1_000, now), 1_000);
        let later = now + Span::from_secs(2);
        let at_its_pace = begin(&mut shares, own, 100_000, later);
        assert!((2_047..=2_049).contains(&at_its_pace), "{at_its_pace}");
    }

    /// Two hosts have the address 10.8.0.1 one after the other.
    #[test]
    fn an_address_that_goes_and_comes_back_has_no_new_share_whoever_has_it() {
        let (address, owners) = (IpAddr::from([10, 8, 0, 1]), [7, 8]);
        let path = |owner: u32| PathSetup {
            tx_index: 0,
            tx_cookie: 1,
            rx_cookie: u64::from(owner),
            key: ProbeKey([0; 16]),
            local: None,
            remote: None,
            ifindex: 0,
            gateway: None,
            owner,
            probing: Probing::default(),
        };
        let lab =
            DryRun::new(Role::Anchor, &owners.map(|owner| (owner, path(owner))), &[]).unwrap();
        let far = SocketAddr::from(([192, 0, 2, 1], 5005));
        // Returns how many of these flows begin.
        let begin = |owner: u32, flows: std::ops::Range<u32>| {
            let head = Header::new(PacketType::Data, 0, owner, owner.into());
            let begins = |n: &u32| {
                let mut packet = head.emit().to_vec();
                packet.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 8, 0, 1, 192, 0]);
                packet.extend(((n >> 16) as u16).to_be_bytes());
                packet.extend(4_000u16.to_be_bytes());
                packet.extend((*n as u16).to_be_bytes());
                packet.extend([0, 8, 0, 0]);
                !lab.receive(far, &packet, None).packets.is_empty()
            };
            flows.filter(begins).count() as u32
        };
        let set = |owner| lock(&lab.shared.core).set_inner(address, owner).unwrap();
        set(7);
        assert_eq!(begin(7, 0..70_000), FLOWS_AT_ONCE + 1);
        lock(&lab.shared.core).remove_inner(address);
        assert_eq!(begin(7, 0..1), 0, "nobody has the address");
        set(8);
        assert_eq!(begin(8, 70_000..80_000), 0, "removed and set");
        set(7);
        assert_eq!(begin(7, 80_000..90_000), 0, "another's at once");
    }
}
