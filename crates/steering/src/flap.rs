//! Remembers failures, so that a path that keeps failing has to wait longer before it is used again.

use alloc::vec::Vec;

use segue_clock::{Span, Time};

use crate::{Config, PathId, PathView};

/// Maximum number of failures counted per path; more would only lengthen the time to forgive them.
const MAX_FAILURES: u64 = 16;

/// The history of each path. A path that is removed is remembered until its failures are forgiven, so that an interface
/// that comes and goes counts as failing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flaps(Vec<Flap>);

#[derive(Clone, Copy, Debug)]
struct Flap {
    id: PathId,
    usable: bool,
    failures: u64,
    last: Time,
    lossy: bool,
    /// Number of unforgiven periods of packet loss, and the time when loss was last seen.
    losses: u64,
    lost: Time,
}

impl Flaps {
    /// Counts the paths that have become unusable or lossy since the last call. Idempotent for unchanged paths.
    pub(crate) fn observe(&mut self, now: Time, paths: &[PathView], config: &Config) {
        for flap in &mut self.0 {
            let usable = paths.iter().any(|path| path.id == flap.id && path.usable);
            if flap.usable && !usable {
                flap.failures = (flap.unforgiven(now, config) + 1).min(MAX_FAILURES);
                flap.last = now;
            }
            flap.usable = usable;
            let lossy = paths.iter().any(|path| path.id == flap.id && path.lossy);
            if lossy && !flap.lossy {
                flap.losses = (flap.unforgiven_losses(now, config) + 1).min(MAX_FAILURES);
            }
            if lossy {
                flap.lost = now;
            }
            flap.lossy = lossy;
        }
        for path in paths.iter().filter(|path| path.usable) {
            if self.get(path.id).is_none() {
                let (lossy, losses) = (path.lossy, u64::from(path.lossy));
                let (id, usable, failures) = (path.id, true, 0);
                self.0.push(Flap { id, usable, failures, last: now, lossy, losses, lost: now });
            }
        }
        self.0.retain(|flap| {
            flap.usable || flap.unforgiven(now, config) + flap.unforgiven_losses(now, config) > 0
        });
    }

    /// True if all of these paths are usable, and exactly these were usable at the last observation.
    pub(crate) fn are_usable(&self, paths: &[PathView]) -> bool {
        let known = |path: &PathView| self.get(path.id).is_some_and(|flap| flap.usable);
        paths.iter().all(|path| path.usable && known(path))
            && self.0.iter().filter(|flap| flap.usable).count() == paths.len()
    }

    fn get(&self, id: PathId) -> Option<&Flap> {
        self.0.iter().find(|flap| flap.id == id)
    }

    /// How long this path must stay better before flows move to it.
    pub(crate) fn hold(&self, now: Time, id: PathId, config: &Config) -> Span {
        let Some(flap) = self.get(id) else { return config.hold };
        let doubled = |span: Span, times: u64| {
            Span(span.0.saturating_mul(1 << times.saturating_sub(1).min(MAX_FAILURES)))
        };
        let longest = config.max_hold.max(config.hold);
        let hold = doubled(config.hold, flap.unforgiven(now, config)).min(longest);
        match flap.unforgiven_losses(now, config) {
            0 => hold,
            losses => hold.max(doubled(config.loss_hold, losses).min(config.loss_hold * 10)),
        }
    }

    /// True for a path that failed repeatedly and has not yet been usable for its hold time.
    pub(crate) fn is_suspect(&self, now: Time, path: &PathView, config: &Config) -> bool {
        let repeated = self.get(path.id).is_some_and(|flap| flap.unforgiven(now, config) > 1);
        repeated && now.since(path.since) < self.hold(now, path.id, config)
    }

    /// Whether this path has an unforgiven failure.
    pub(crate) fn has_failed(&self, now: Time, id: PathId, config: &Config) -> bool {
        self.get(id).is_some_and(|flap| flap.unforgiven(now, config) > 0)
    }
}

impl Flap {
    fn unforgiven(&self, now: Time, config: &Config) -> u64 {
        self.failures.saturating_sub(now.since(self.last).0 / config.forgive.0.max(1))
    }

    fn unforgiven_losses(&self, now: Time, config: &Config) -> u64 {
        self.losses.saturating_sub(now.since(self.lost).0 / config.loss_forgive.0.max(1))
    }
}
