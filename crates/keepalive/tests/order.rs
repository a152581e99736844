//! Sequence numbers: newest, late, duplicate, stale, restarted.

use proptest::prelude::*;
use segue_keepalive::seq::{Order, SeqWindow};

fn orders(numbers: &[u32]) -> Vec<Order> {
    let mut window = SeqWindow::new();
    numbers.iter().map(|seq| window.observe(*seq, None)).collect()
}

#[test]
fn late_is_told_from_duplicate_within_the_window() {
    use Order::{Duplicate, Late, Newest};
    assert_eq!(
        orders(&[1, 2, 4, 3, 3, 4, 67, 5, 4, 5]),
        [Newest, Newest, Newest, Late, Duplicate, Duplicate, Newest, Late, Duplicate, Duplicate]
    );
}

#[test]
fn numbers_wrap() {
    use Order::{Duplicate, Late, Newest};
    assert_eq!(
        orders(&[u32::MAX - 1, 1, u32::MAX, 0, u32::MAX]),
        [Newest, Newest, Late, Late, Duplicate]
    );
}

#[test]
fn a_jump_forward_clears_the_window() {
    use Order::{Late, Newest, Stale};
    assert_eq!(orders(&[1, 1_000, 999, 1]), [Newest, Newest, Late, Stale]);
}

#[test]
fn one_old_number_is_stale_and_two_in_succession_are_a_restart() {
    use Order::{Newest, Restart, Stale};
    assert_eq!(orders(&[5_000, 1, 2, 3]), [Newest, Stale, Restart, Newest]);
    assert_eq!(orders(&[5_000, 1, 1, 5_001, 2]), [Newest, Stale, Stale, Newest, Stale]);
}

#[test]
fn an_old_number_with_a_newer_stamp_is_a_restart_at_once() {
    let mut window = SeqWindow::new();
    assert_eq!(window.observe(10, Some(1_000)), Order::Newest);
    assert_eq!(window.observe(11, Some(1_100)), Order::Newest);
    assert_eq!(window.observe(11, Some(1_100)), Order::Duplicate);
    assert_eq!(window.observe(9, Some(900)), Order::Late);
    assert_eq!(window.observe(1, Some(5_000)), Order::Restart);
    assert_eq!(window.observe(1, Some(5_000)), Order::Duplicate);
    assert_eq!(window.observe(2, Some(5_100)), Order::Newest);
}

proptest! {
    #[test]
    fn within_the_window_every_number_counts_once(
        gaps in proptest::collection::vec(0u32..8, 1..200), start in any::<u32>(),
    ) {
        // A random walk that never falls behind by more than the window.
        let mut window = SeqWindow::new();
        let (mut seen, mut newest) = (std::collections::BTreeSet::new(), 1_000_u64);
        for (i, gap) in gaps.into_iter().enumerate() {
            let n = if i % 3 == 0 { newest + u64::from(gap) } else { newest - u64::from(gap) * 7 };
            let order = window.observe(start.wrapping_add(n as u32), None);
            let known = !seen.insert(n);
            prop_assert_eq!(order == Order::Duplicate, known);
            newest = newest.max(n);
        }
    }
}
