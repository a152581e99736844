//! Path selection with hysteresis.

use alloc::sync::Arc;
use alloc::vec::Vec;

use segue_clock::Time;

use crate::flap::Flaps;
use crate::score::Quality;
use crate::{Class, Config, Decision, PathId, PathView, Reason, score};

/// Chooses a path for each class, and keeps the state for hysteresis. Use one [`Steering`] per direction of traffic.
///
/// Call [`choose`](Steering::choose) for every class in use whenever a path changes, and at
/// [`deadline`](Steering::deadline). Additional calls are harmless, and the same calls give the same decisions. `now`
/// must not go backwards.
#[derive(Clone, Debug)]
pub struct Steering {
    config: Arc<Config>,
    /// Indexed by class, in the order of [`Class::ALL`].
    classes: [State; Class::ALL.len()],
    flaps: Flaps,
    /// See [`deadline`](Steering::deadline).
    due: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct State {
    current: Option<PathId>,
    /// Time of the last voluntary move.
    moved: Option<Time>,
    /// Paths that have led by more than the margin without a break.
    better: Vec<Lead>,
    pin: Option<Pin>,
    /// When a pinned path that had failed may be used again.
    pin_due: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Lead {
    id: PathId,
    since: Time,
    due: Time,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    path: PathId,
    /// The pin has not taken effect yet: it does so at once, even if the path failed recently.
    fresh: bool,
}

impl Steering {
    /// No path is chosen yet. Many instances may share one configuration.
    #[must_use]
    pub fn new(config: impl Into<Arc<Config>>) -> Steering {
        let config = config.into();
        Steering { config, classes: Default::default(), flaps: Flaps::default(), due: None }
    }

    /// Chooses the path for `class`; `None` if no path is usable. The path in use then stays in
    /// [`current`](Steering::current).
    pub fn choose(&mut self, now: Time, class: Class, paths: &[PathView]) -> Option<Decision> {
        self.flaps.observe(now, paths, &self.config);
        let mut ranking = Ranking::new(now, paths, &self.flaps, &self.config);
        let chosen = self.choose_one(now, class, paths, &mut ranking);
        self.review();
        let (path, previous, reason) = chosen?;
        Some(Decision { path, previous, reason, scores: ranking.scores(class, paths) })
    }

    /// Like [`choose`](Steering::choose) for every class in order, but computes the shared part once. Calls `moved`
    /// with the decisions that move flows, and only these are explained.
    pub fn choose_all(
        &mut self,
        now: Time,
        paths: &[PathView],
        mut moved: impl FnMut(Class, Decision),
    ) {
        if self.is_settled(paths) {
            return;
        }
        self.flaps.observe(now, paths, &self.config);
        let mut ranking = Ranking::new(now, paths, &self.flaps, &self.config);
        for class in Class::ALL {
            let chosen = self.choose_one(now, class, paths, &mut ranking);
            let Some((path, previous, reason)) = chosen else { continue };
            if previous != Some(path) {
                let scores = ranking.scores(class, paths);
                moved(class, Decision { path, previous, reason, scores });
            }
        }
        self.review();
    }

    /// True if all classes use the same path and will stay there: every other path is equal or worse in each
    /// measurement, so its score cannot be higher for any class.
    fn is_settled(&self, paths: &[PathView]) -> bool {
        let first = self.classes[0].current;
        let rests = |state: &State| {
            state.current == first && state.pin.is_none() && state.better.is_empty()
        };
        let Some(used) = paths.iter().find(|path| Some(path.id) == first && path.usable) else {
            return false;
        };
        self.config.margin >= LEAST_MARGIN
            && !used.lossy
            && self.classes.iter().all(rests)
            && self.flaps.are_usable(paths)
            && paths.iter().all(|path| path.id == used.id || !better_anywhere(path, used))
    }

    fn choose_one(
        &mut self,
        now: Time,
        class: Class,
        paths: &[PathView],
        ranking: &mut Ranking,
    ) -> Option<(PathId, Option<PathId>, Reason)> {
        let Steering { config, classes, flaps, .. } = self;
        ranking.rank(class, paths);
        let state = &mut classes[class as usize];
        state.update_leads(now, paths, ranking, flaps, config);
        let (path, reason) = state.pick(now, paths, ranking, flaps, config)?;
        let previous = state.current.replace(path);
        if previous != Some(path) {
            state.better.clear();
            state.moved = matches!(reason, Reason::Better { .. }).then_some(now);
        }
        Some((path, previous, reason))
    }

    /// The path last chosen for `class`.
    #[must_use]
    pub fn current(&self, class: Class) -> Option<PathId> {
        self.classes[class as usize].current
    }

    /// The best usable path for `class` other than `but`, for duplicating packets while `but` is in doubt. `None` if
    /// there is no other.
    #[must_use]
    pub fn beside(class: Class, paths: &[PathView], but: PathId) -> Option<PathId> {
        let others = paths.iter().filter(|path| path.usable && path.id != but);
        // Ties go to the lowest number, as in a ranking.
        let best = others.max_by(|a, b| {
            let (of_a, of_b) = (score(class, a).value, score(class, b).value);
            of_a.total_cmp(&of_b).then(b.id.cmp(&a.id))
        });
        best.map(|path| path.id)
    }

    /// When to choose again: when a path has led for long enough, or a pinned path may be used again.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Pins a class, or all classes, to a path; a `path` of `None` removes the pin. A pinned path is used whenever it
    /// is usable; otherwise the class is steered as if it were not pinned. Takes effect with the next
    /// [`choose`](Steering::choose).
    pub fn pin(&mut self, class: Option<Class>, path: Option<PathId>) {
        for each in Class::ALL.into_iter().filter(|each| class.is_none_or(|class| class == *each)) {
            let state = &mut self.classes[each as usize];
            state.pin = path.map(|path| Pin { path, fresh: true });
            state.pin_due = None;
        }
        self.review();
    }

    fn review(&mut self) {
        let config = &self.config;
        self.due = self.classes.iter().filter_map(|state| state.deadline(config)).min();
    }

    /// The path to which `class` is pinned.
    #[must_use]
    pub fn pinned(&self, class: Class) -> Option<PathId> {
        Some(self.classes[class as usize].pin?.path)
    }
}

/// Margin below which rounding errors of equal scores could matter.
const LEAST_MARGIN: f64 = 1e-3;

/// True if `path` may score higher than `other` for any class.
fn better_anywhere(path: &PathView, other: &PathView) -> bool {
    let (Some(rtt), Some(other_rtt)) = (path.rtt_s, other.rtt_s) else { return true };
    let worse = [
        (rtt, other_rtt),
        (path.loss_up, other.loss_up),
        (path.loss_down, other.loss_down),
        (path.jitter_s, other.jitter_s),
        (path.price, other.price),
        (other.preference, path.preference),
    ];
    // A lower rate is no better. An unknown rate counts as unlimited.
    let most = |view: &PathView| view.rate_bps.filter(|rate| rate.is_finite()).unwrap_or(f64::MAX);
    if most(path) > most(other) {
        return true;
    }
    // Values that are not finite cannot be compared; such a path counts as possibly better.
    !worse.iter().all(|(more, less)| more.is_finite() && more >= less && less.is_finite())
}

/// The usable paths, best first for a class.
struct Ranking {
    ranked: Vec<Ranked>,
    /// The best path that is not in doubt, or the best of all if every path is.
    best: Option<PathId>,
    /// The class of the latest ranking.
    class: Class,
}

struct Ranked {
    /// Its index in the list of paths.
    place: usize,
    id: PathId,
    quality: Quality,
    in_doubt: bool,
    value: f64,
}

impl Ranking {
    /// A ranking without an order yet.
    fn new(now: Time, paths: &[PathView], flaps: &Flaps, config: &Config) -> Ranking {
        let mut ranked = Vec::with_capacity(paths.len());
        for (place, path) in paths.iter().enumerate().filter(|(_, path)| path.usable) {
            ranked.push(Ranked {
                place,
                id: path.id,
                quality: Quality::of(path),
                in_doubt: flaps.is_suspect(now, path, config),
                value: 0.0,
            });
        }
        Ranking { ranked, best: None, class: Class::Default }
    }

    fn rank(&mut self, class: Class, paths: &[PathView]) {
        self.class = class;
        for each in &mut self.ranked {
            each.value = each.quality.value(class, &paths[each.place]);
        }
        // Ties go to the lowest number, so that the order of the input does not matter.
        self.ranked.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.id.cmp(&b.id)));
        let certain = self.ranked.iter().find(|each| !each.in_doubt);
        self.best = certain.or(self.ranked.first()).map(|each| each.id);
    }

    fn value(&self, id: PathId) -> Option<f64> {
        self.ranked.iter().find(|each| each.id == id).map(|each| each.value)
    }

    /// The scores, in the order of the latest ranking.
    fn scores(&self, class: Class, paths: &[PathView]) -> Vec<(PathId, crate::Score)> {
        self.ranked.iter().map(|each| (each.id, score(class, &paths[each.place]))).collect()
    }
}

impl State {
    /// Updates the paths that lead by more than the margin, and when each may be taken.
    fn update_leads(
        &mut self,
        now: Time,
        paths: &[PathView],
        ranking: &Ranking,
        flaps: &Flaps,
        config: &Config,
    ) {
        let since = |id: PathId| paths.iter().find(|path| path.id == id).map(|path| path.since);
        let Some((bar, current_since)) =
            self.current.and_then(|id| Some((ranking.value(id)?, since(id)?)))
        else {
            self.better.clear();
            return;
        };
        let is_newcomer = |id: PathId| {
            since(id).is_some_and(|since| {
                since >= current_since + config.hold && now.since(since) < config.settle
            })
        };
        let leads = |id: PathId| ranking.value(id).is_some_and(|x| x > bar + config.margin);
        self.better.retain(|lead| leads(lead.id));
        for id in ranking.ranked.iter().map(|each| each.id).filter(|id| leads(*id)) {
            let known = self.better.iter().position(|lead| lead.id == id);
            let place = known.unwrap_or_else(|| {
                self.better.push(Lead { id, since: now, due: now });
                self.better.len() - 1
            });
            let hold = flaps.hold(now, id, config);
            let lead = &mut self.better[place];
            lead.due = lead.since + if is_newcomer(id) { hold } else { hold.max(config.settle) };
        }
    }

    fn pick(
        &mut self,
        now: Time,
        paths: &[PathView],
        ranking: &Ranking,
        flaps: &Flaps,
        config: &Config,
    ) -> Option<(PathId, Reason)> {
        self.pin_due = None;
        let best = ranking.best?;
        if let Some(pinned) = self.pick_pinned(now, paths, flaps, config) {
            self.better.clear();
            let kept = self.current == Some(pinned);
            return Some((pinned, if kept { Reason::Unchanged } else { Reason::Requested }));
        }
        let Some(current) = self.current else { return Some((best, Reason::First)) };
        let Some(bar) = ranking.value(current) else {
            let known = paths.iter().any(|path| path.id == current);
            return Some((best, if known { Reason::Down } else { Reason::Removed }));
        };
        if let Some(other) = self.better_than_lossy(paths, ranking, (current, bar)) {
            return Some((other, Reason::Lossy));
        }
        let may_move = self.may_move(config).is_none_or(|from| now >= from);
        let lead_of = |id: PathId| self.better.iter().find(|lead| lead.id == id);
        let held = |id: PathId| lead_of(id).filter(|lead| may_move && now >= lead.due);
        let better = ranking.ranked.iter().find_map(|each| {
            let held = now.since(held(each.id)?.since);
            Some((each.id, Reason::Better { by: each.value - bar, held }))
        });
        Some(better.unwrap_or((current, Reason::Unchanged)))
    }

    /// The new path for the flows of a lossy one: the best that is neither lossy nor in doubt, scored with the upper
    /// bound of its loss. No margin applies: flapping would need the way back, which takes [`Config::loss_hold`].
    fn better_than_lossy(
        &self,
        paths: &[PathView],
        ranking: &Ranking,
        (current, bar): (PathId, f64),
    ) -> Option<PathId> {
        if !paths.iter().any(|path| path.id == current && path.lossy) {
            return None;
        }
        let candidates = ranking.ranked.iter().filter(|each| !each.in_doubt);
        let cautious = candidates.filter_map(|each| {
            let path = paths.get(each.place).filter(|path| !path.lossy)?;
            let loss_up = path.loss_up.max(path.bound_up);
            let loss_down = path.loss_down.max(path.bound_down);
            let view = PathView { loss_up, loss_down, ..*path };
            Some((each.id, Quality::of(&view).value(ranking.class, &view)))
        });
        let best = cautious.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 > bar).then_some(best.0)
    }

    /// The pinned path, if it can be used: at once after the request and while it works, and after its hold when it
    /// returns.
    fn pick_pinned(
        &mut self,
        now: Time,
        paths: &[PathView],
        flaps: &Flaps,
        config: &Config,
    ) -> Option<PathId> {
        let pin = self.pin.as_mut()?;
        let path = paths.iter().find(|path| path.id == pin.path && path.usable)?;
        let at_once =
            pin.fresh || self.current == Some(pin.path) || !flaps.has_failed(now, pin.path, config);
        let due = path.since + flaps.hold(now, pin.path, config);
        if !at_once && now < due {
            self.pin_due = Some(due);
            return None;
        }
        pin.fresh = false;
        Some(pin.path)
    }

    /// The earliest time of the next voluntary move. A move from a path that went down does not delay it, so that a
    /// returning path need not wait.
    fn may_move(&self, config: &Config) -> Option<Time> {
        self.moved.map(|moved| moved + config.min_stay)
    }

    fn deadline(&self, config: &Config) -> Option<Time> {
        let earliest = self.may_move(config).unwrap_or(Time::ZERO);
        let better = self.better.iter().map(|lead| lead.due.max(earliest)).min();
        self.pin_due.into_iter().chain(better).min()
    }
}
