//! All experiments, in the order of the papers, and how they are found by name.

use anyhow::bail;

use super::experiment::Experiment;
use super::{
    active_pb, alves, detection, false_positives, levels, loss_levels, netem, planning, processor,
    round_trip_loss, step,
};

/// Most suggestions for an unknown name.
const NEAREST: usize = 3;

/// All experiments.
pub(crate) fn all() -> Vec<Experiment> {
    let mut all = planning::experiments();
    all.extend(step::experiments());
    all.extend(levels::experiments());
    all.extend(loss_levels::experiments());
    all.extend(netem::experiments());
    all.extend(round_trip_loss::experiments());
    all.extend(active_pb::experiments());
    all.extend(processor::experiments());
    all.extend(alves::experiments());
    all.extend(false_positives::experiments());
    all.extend(detection::experiments());
    all
}

/// The experiments with these names, each once, in the catalogue's order.
///
/// # Errors
/// An unknown name, in one line with the nearest ones.
pub(crate) fn find(ids: &[String]) -> anyhow::Result<Vec<Experiment>> {
    let all = all();
    if let Some(unknown) = ids.iter().find(|id| all.iter().all(|e| e.id != id.as_str())) {
        let mut near: Vec<&str> = all.iter().map(|e| e.id).collect();
        let far = |id: &str| -strsim::jaro_winkler(id, unknown);
        near.sort_by(|a, b| far(a).total_cmp(&far(b)));
        near.truncate(NEAREST);
        bail!(
            "there is no experiment {unknown:?}; the nearest are {} (segue reproduce --list shows all)",
            near.join(", ")
        );
    }
    Ok(all.into_iter().filter(|e| ids.iter().any(|id| id == e.id)).collect())
}
