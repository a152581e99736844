//! Decisions that do not flap.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use segue_clock::Time;

use crate::flap::Flaps;
use crate::{Class, Config, Decision, PathId, PathView, Reason, Score, score};

/// Chooses a path for each class, one [`Steering`] per direction of traffic, and remembers what it
/// needs for hysteresis.
///
/// Call [`choose`](Steering::choose) for every class in use whenever a path changes and whenever
/// [`deadline`](Steering::deadline) has come; more often does no harm, and the same calls give the
/// same decisions. `now` never goes backwards.
#[derive(Clone, Debug)]
pub struct Steering {
    config: Config,
    classes: BTreeMap<Class, State>,
    flaps: Flaps,
}

#[derive(Clone, Debug, Default)]
struct State {
    current: Option<PathId>,
    /// The last move by choice.
    moved: Option<Time>,
    /// Paths better by the margin, without a break.
    better: BTreeMap<PathId, Lead>,
    pin: Option<Pin>,
    /// When a pinned path that had failed may be used again.
    pin_due: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Lead {
    since: Time,
    due: Time,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    path: PathId,
    /// Not yet carried out: then it is at once, even if the path has failed lately.
    fresh: bool,
}

impl Steering {
    /// No path chosen for any class yet.
    #[must_use]
    pub fn new(config: Config) -> Steering {
        Steering { config, classes: BTreeMap::new(), flaps: Flaps::default() }
    }

    /// The path that `class` should use; `None` if none is usable, and then the path in use is
    /// remembered for [`current`](Steering::current).
    pub fn choose(&mut self, now: Time, class: Class, paths: &[PathView]) -> Option<Decision> {
        let Steering { config, classes, flaps } = self;
        flaps.observe(now, paths, config);
        let ranking = Ranking::new(now, class, paths, flaps, config);
        let state = classes.entry(class).or_default();
        state.update_leads(now, paths, &ranking, flaps, config);
        let (path, reason) = state.pick(now, paths, &ranking, flaps, config)?;
        let previous = state.current.replace(path);
        if previous != Some(path) {
            state.better.clear();
            state.moved = matches!(reason, Reason::Better { .. }).then_some(now);
        }
        Some(Decision { path, previous, reason, scores: ranking.scores })
    }

    /// The path chosen last for `class`.
    #[must_use]
    pub fn current(&self, class: Class) -> Option<PathId> {
        self.classes.get(&class)?.current
    }

    /// When a path that is better by now will have been so for long enough.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.classes.values().filter_map(|state| state.deadline(&self.config)).min()
    }

    /// Binds a class, or all of them, to a path; `None` as path ends that. A pinned path is used
    /// whenever it is usable; while it is not, the class is steered as if it were not pinned. Takes
    /// effect with the next [`choose`](Steering::choose).
    pub fn pin(&mut self, class: Option<Class>, path: Option<PathId>) {
        for each in Class::ALL.into_iter().filter(|each| class.is_none_or(|class| class == *each)) {
            let state = self.classes.entry(each).or_default();
            state.pin = path.map(|path| Pin { path, fresh: true });
            state.pin_due = None;
        }
    }

    /// The path to which `class` is pinned.
    #[must_use]
    pub fn pinned(&self, class: Class) -> Option<PathId> {
        Some(self.classes.get(&class)?.pin?.path)
    }
}

/// The usable paths, the best first.
struct Ranking {
    scores: Vec<(PathId, Score)>,
    /// The best one that is not in doubt; the best one if all are.
    best: Option<PathId>,
}

impl Ranking {
    fn new(now: Time, class: Class, paths: &[PathView], flaps: &Flaps, config: &Config) -> Ranking {
        let usable = || paths.iter().filter(|path| path.usable);
        let mut scores: Vec<_> = usable().map(|path| (path.id, score(class, path))).collect();
        // Among equals the lowest number, so that the order of the input does not matter.
        scores.sort_by(|(a, x), (b, y)| y.value.total_cmp(&x.value).then(a.cmp(b)));
        let in_doubt =
            |id: PathId| usable().any(|path| path.id == id && flaps.is_suspect(now, path, config));
        let mut ids = scores.iter().map(|(id, _)| *id);
        let best = ids.clone().find(|id| !in_doubt(*id)).or_else(|| ids.next());
        Ranking { scores, best }
    }

    fn value(&self, id: PathId) -> Option<f64> {
        self.scores.iter().find(|(each, _)| *each == id).map(|(_, score)| score.value)
    }
}

impl State {
    /// Notes which paths lead the one in use by more than the margin, and until when they must.
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
        self.better.retain(|id, _| leads(*id));
        for (id, _) in ranking.scores.iter().filter(|(id, _)| leads(*id)) {
            let lead = self.better.entry(*id).or_insert(Lead { since: now, due: now });
            let hold = flaps.hold(now, *id, config);
            lead.due = lead.since + if is_newcomer(*id) { hold } else { hold.max(config.settle) };
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
        let may_move = self.may_move(config).is_none_or(|from| now >= from);
        let held = |id: &PathId| self.better.get(id).filter(|lead| may_move && now >= lead.due);
        let better = ranking.scores.iter().find_map(|(id, score)| {
            let held = now.since(held(id)?.since);
            Some((*id, Reason::Better { by: score.value - bar, held }))
        });
        Some(better.unwrap_or((current, Reason::Unchanged)))
    }

    /// The pinned path if it can be used: at once after the request and while it works, after its
    /// hold when it comes back.
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

    /// Before this instant a move by choice would follow the last one too soon. A move because a
    /// path went down starts no such wait, so that a path that comes back is not kept waiting.
    fn may_move(&self, config: &Config) -> Option<Time> {
        self.moved.map(|moved| moved + config.min_stay)
    }

    fn deadline(&self, config: &Config) -> Option<Time> {
        let earliest = self.may_move(config).unwrap_or(Time::ZERO);
        let better = self.better.values().map(|lead| lead.due.max(earliest)).min();
        self.pin_due.into_iter().chain(better).min()
    }
}
