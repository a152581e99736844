//! All experiments, in the order of the papers, and the lookup by name.

use anyhow::bail;

use super::experiment::Experiment;
use super::{
    active_pb, alves, detection, false_positives, footprint, levels, loss_levels, netem, planning,
    processor, round_trip_loss, step,
};

/// Maximum number of suggestions for an unknown name.
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
    all.extend(footprint::experiments());
    all.extend(alves::experiments());
    all.extend(false_positives::experiments());
    all.extend(detection::experiments());
    all
}

/// Finds the experiments with these names, each once, in the catalogue's order.
///
/// # Errors
/// One line: a name is unknown, with the most similar names.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    /// The paper's text states no numbers for these.
    const UNJUDGED: [&str; 3] = ["salsano-fig9", "salsano-fig10", "salsano-fig11"];

    fn ten_times_off() -> Vec<TenTimesOff> {
        let mut all = planning::tests::ten_times_off();
        all.extend(step::tests::ten_times_off());
        all.extend(levels::tests::ten_times_off());
        all.extend(loss_levels::tests::ten_times_off());
        all.extend(netem::tests::ten_times_off());
        all.extend(round_trip_loss::tests::ten_times_off());
        all.extend(active_pb::tests::ten_times_off());
        all.extend(processor::tests::ten_times_off());
        all.extend(footprint::tests::ten_times_off());
        all.extend(alves::ten_times_off());
        all.extend(false_positives::tests::ten_times_off());
        all.extend(detection::tests::ten_times_off());
        all
    }

    #[test]
    fn every_verdict_of_every_experiment_fails_for_a_value_ten_times_off() {
        let tried = ten_times_off();
        let mut wrong = Vec::new();
        for Experiment { id, .. } in all() {
            let own = tried.iter().find(|own| own.id == id);
            let own = own.unwrap_or_else(|| panic!("{id} has no values that are ten times off"));
            let judged = own.right.iter().any(|line| line.agrees.is_some());
            assert_eq!(judged, !UNJUDGED.contains(&id), "{id}: {:?}", own.right);
            wrong.extend(own.wrong_verdicts());
        }
        assert!(wrong.is_empty(), "these cannot fail, or never agree:\n{}", wrong.join("\n"));
    }
}
