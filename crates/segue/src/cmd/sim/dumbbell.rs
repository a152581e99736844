//! `segue sim dumbbell`.

use std::process::ExitCode;

/// One TCP sender over a dumbbell network, for comparison with other simulators
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the verb.
///
/// # Errors
/// Bad input.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
