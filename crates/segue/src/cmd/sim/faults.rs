//! `segue sim faults`.

use std::process::ExitCode;

/// Host and anchor under seeded faults, with invariants checked after every event
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the verb.
///
/// # Errors
/// Bad input.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
