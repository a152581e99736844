//! `segue sim run`.

use std::process::ExitCode;

/// Run a scenario
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the verb.
///
/// # Errors
/// Bad input.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
