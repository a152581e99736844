//! Invariants of flow bindings after arbitrary updates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};

use segue_clock::Rng;
use segue_mobility::{Action, FlowBinding, FlowBindings, FlowUpdate};
use segue_wire::mobility::option::FlowStatus;
use segue_wire::mobility::{Family, Span, TrafficSelector};

const RUNS: u64 = 100;
const STEPS: u64 = 1_000;
const MOST: usize = 5;

type Flows = BTreeMap<u16, FlowBinding>;

fn by_fid(bindings: &FlowBindings) -> Flows {
    let all: Vec<FlowBinding> = bindings.iter().cloned().collect();
    assert!(all.windows(2).all(|two| two[0].priority < two[1].priority), "{all:?}");
    assert!(all.len() <= MOST, "{all:?}");
    let flows: Flows = all.iter().map(|flow| (flow.fid, flow.clone())).collect();
    assert_eq!(flows.len(), all.len(), "a FID twice: {all:?}");
    flows
}

/// Uses few FIDs and priorities, so that they collide; some updates lack a selector or an action.
fn draw(rng: &mut Rng) -> FlowUpdate {
    let port = Span::one(rng.below(3) as u16);
    let selector =
        TrafficSelector { destination_port: Some(port), ..TrafficSelector::any(Family::Ipv6) };
    let bids: BTreeSet<u16> = (0..rng.below(3)).map(|_| 1 + rng.below(4) as u16).collect();
    let action = if rng.chance(0.2) { Action::Drop } else { Action::Forward(bids) };
    FlowUpdate {
        fid: rng.below(8) as u16,
        priority: rng.below(8) as u16,
        selector: rng.chance(0.7).then_some(selector),
        action: rng.chance(0.7).then_some(action),
    }
}

/// Checks the effect of one update.
fn check(update: &FlowUpdate, status: FlowStatus, before: &Flows, after: &Flows) {
    let was = before.get(&update.fid);
    let is = after.get(&update.fid);
    if status == FlowStatus::SUCCESS {
        let is = is.unwrap();
        let was = || was.unwrap();
        assert_eq!(is.priority, update.priority);
        assert_eq!(is.selector, *update.selector.as_ref().unwrap_or_else(|| &was().selector));
        assert_eq!(is.action, *update.action.as_ref().unwrap_or_else(|| &was().action));
        return;
    }
    assert!(status != FlowStatus::FID_NOT_FOUND || was.is_none(), "{update:?}");
    if is != was {
        let was = was.unwrap();
        assert!(is.is_none(), "{update:?}");
        assert!(after.values().any(|other| other.priority == was.priority), "{update:?}");
    }
}

#[test]
fn a_status_says_what_became_of_each_and_the_others_stay_as_they_were_or_go_if_they_are_not_named()
{
    let mut statuses: BTreeMap<u8, u64> = BTreeMap::new();
    for run in 0..RUNS {
        let mut rng = Rng::new(run);
        let mut bindings = FlowBindings::new(MOST);
        for _ in 0..STEPS {
            match rng.below(10) {
                0 => drop(bindings.set_bid(1 + rng.below(4) as u16, rng.below(3) as u8)),
                1 => bindings.remove_bid(1 + rng.below(4) as u16),
                _ => {}
            }
            let before = by_fid(&bindings);
            let updates: Vec<FlowUpdate> = (0..rng.below(4)).map(|_| draw(&mut rng)).collect();
            let kept: Vec<u16> = (0..rng.below(8)).map(|_| rng.below(8) as u16).collect();
            let (told, named) = match rng.chance(0.2) {
                true => (bindings.replace(&updates, &kept), kept.clone()),
                false => (bindings.update(&updates), (0..8).collect()),
            };
            let after = by_fid(&bindings);
            let told = &told[told.len() - updates.len()..];
            let mut seen = BTreeSet::new();
            for (update, (fid, status)) in updates.iter().zip(told) {
                assert_eq!(update.fid, *fid);
                *statuses.entry(status.0).or_default() += 1;
                let is_only = updates.iter().filter(|other| other.fid == *fid).count() == 1;
                if is_only || *status == FlowStatus::SUCCESS {
                    check(update, *status, &before, &after);
                }
                assert!(*status != FlowStatus::SUCCESS || seen.insert(*fid), "{updates:?}");
            }
            for fid in (0..8).filter(|fid| updates.iter().all(|update| update.fid != *fid)) {
                let expected = before.get(&fid).filter(|_| named.contains(&fid));
                assert_eq!(after.get(&fid), expected, "{fid} is not in {updates:?}");
            }
        }
    }
    let all = [0, 129, 130, 131, 132];
    assert!(all.iter().all(|status| statuses[status] > 1_000), "{statuses:?}");
    assert_eq!(statuses.len(), all.len());
}
