//! Mean stay of each host, which determines the lifetime to request.

use alloc::collections::BTreeMap;

use segue_clock::Span;

use super::config::Lifetimes;
use crate::NodeId;

/// Mean stays of hosts at this gateway.
#[derive(Clone, Debug)]
pub(super) struct Stays {
    most: usize,
    mean: BTreeMap<NodeId, Span>,
}

impl Stays {
    pub(super) fn new(most: usize) -> Stays {
        Stays { most, mean: BTreeMap::new() }
    }

    /// Records a finished stay of a host.
    pub(super) fn add(&mut self, node: &NodeId, stay: Span) {
        if let Some(mean) = self.mean.get_mut(node) {
            *mean = Span(mean.0 - mean.0 / 4 + stay.0 / 4);
        } else {
            if self.mean.len() >= self.most {
                self.mean.pop_first();
            }
            self.mean.insert(node.clone(), stay);
        }
    }

    /// The lifetime to request for a host.
    pub(super) fn lifetime(&self, node: &NodeId, bounds: &Lifetimes) -> Span {
        let mean = self.mean.get(node).copied().unwrap_or(bounds.first);
        mean.max(bounds.shortest).min(bounds.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_the_mean_stay_between_bounds_and_the_table_is_bounded() {
        let mut stays = Stays::new(2);
        let bounds = Lifetimes::default();
        let node = |n: &str| NodeId::nai(n);
        let lifetime = |stays: &Stays, n: &str| stays.lifetime(&node(n), &bounds);
        assert_eq!(lifetime(&stays, "a"), Span::from_secs(600));
        stays.add(&node("a"), Span::from_secs(1_000));
        assert_eq!(lifetime(&stays, "a"), Span::from_secs(1_000));
        stays.add(&node("a"), Span::from_secs(200));
        assert_eq!(lifetime(&stays, "a"), Span::from_secs(800));
        stays.add(&node("b"), Span::from_secs(1));
        assert_eq!(lifetime(&stays, "b"), Span::from_secs(60));
        stays.add(&node("c"), Span::from_secs(100_000));
        assert_eq!(lifetime(&stays, "c"), Span::from_secs(3_600));
        assert_eq!(lifetime(&stays, "a"), Span::from_secs(600), "the first in order went");
    }
}
