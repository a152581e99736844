//! `segue sim sweep` and `segue sim merge`.

use std::process::ExitCode;

/// Run a scenario over a grid of parameters and seeds
#[derive(clap::Args, Debug)]
pub struct SweepArgs {}

/// Put the results of a sweep's shards together
#[derive(clap::Args, Debug)]
pub struct MergeArgs {}

/// Runs a sweep.
///
/// # Errors
/// Bad input, or a file that cannot be read or written.
pub fn sweep(_args: SweepArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}

/// Merges shards.
///
/// # Errors
/// Bad input, or a file that cannot be read or written.
pub fn merge(_args: MergeArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
