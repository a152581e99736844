//! Measures the delay with which this machine wakes a thread that waits for an instant.

use std::sync::{Mutex, OnceLock, PoisonError};

use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;

/// Interval between the awaited instants.
const STEP: Span = Span::from_millis(2);

static SEEN: OnceLock<Mutex<Vec<(Time, Span)>>> = OnceLock::new();

/// Starts watching, unless already started.
pub(crate) fn watch() {
    SEEN.get_or_init(|| {
        std::thread::spawn(|| {
            let mut next = monotonic() + STEP;
            loop {
                std::thread::sleep(std::time::Duration::from_nanos(next.since(monotonic()).0));
                let now = monotonic();
                if let Some(seen) = SEEN.get() {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.push((now, now.since(next)));
                }
                next = now + STEP;
            }
        });
        Mutex::default()
    });
}

/// Number of attempts at a bar that was missed while the machine stalled.
const ATTEMPTS: usize = 3;

/// Measures until a bar holds. A miss counts only if no thread was delayed by more than `still`
/// during the measurement; otherwise the measurement is repeated, and finally reported as not
/// judged.
pub(crate) fn fairly(what: &str, still: Span, measure: impl Fn() -> Result<(), String>) {
    watch();
    for _ in 0..ATTEMPTS {
        let from = monotonic();
        let Err(missed) = measure() else { return };
        let late = worst(from, monotonic());
        assert!(late > still, "{what}: {missed}\n(no thread waited for longer than {late:?})");
        println!("{what}: again, a thread was {late:?} late meanwhile: {missed}");
    }
    println!("{what}: not judged, this machine stands still all the time");
}

/// The largest delay between two instants.
pub(crate) fn worst(from: Time, to: Time) -> Span {
    let seen = SEEN.get().expect("watch comes first").lock().unwrap();
    let within = seen.iter().rev().take_while(|(at, _)| *at >= from);
    within.filter(|(at, _)| *at <= to).map(|(_, late)| *late).max().unwrap_or(Span::ZERO)
}
