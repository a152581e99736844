//! The verbs.

pub mod anchor;
pub mod bench;
pub mod clean;
pub mod demo;
pub mod enroll;
pub mod host;
pub mod lab;
pub mod look;
pub mod plan;
pub mod probe;
pub mod reproduce;
pub mod sim;

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context;

/// Runs a daemon on one thread; its log goes to standard error (`SEGUE_LOG` filters it).
fn block_on(daemon: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SEGUE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A log that cannot be written must not end the daemon: the default reports it with a panic.
    tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no event loop")?;
    runtime.block_on(daemon)?;
    Ok(ExitCode::SUCCESS)
}
