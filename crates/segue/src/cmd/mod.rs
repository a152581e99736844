//! The verbs.

pub mod anchor;
pub mod bench;
pub mod check;
pub mod clean;
pub mod control;
pub mod demo;
pub mod doctor;
pub mod enroll;
pub mod generate;
pub mod host;
pub mod lab;
pub mod mih;
pub mod plan;
pub mod pmip;
pub mod sim;

use std::future::Future;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Runs a daemon on one thread; its log goes to standard error (`SEGUE_LOG` filters it).
pub fn block_on(daemon: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    start_log()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no event loop")?;
    runtime.block_on(daemon)?;
    Ok(ExitCode::SUCCESS)
}

/// Has what the program logs shown on standard error (`SEGUE_LOG` filters it).
pub fn start_log() -> anyhow::Result<()> {
    let filter = log_filter(std::env::var("SEGUE_LOG").ok().as_deref())?;
    // A log that cannot be written must not end the daemon: the default reports it with a panic.
    tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

/// Which log lines are shown. A single word that is not a level is refused: the library would take
/// it for a module's name and show only that module's lines.
fn log_filter(text: Option<&str>) -> anyhow::Result<EnvFilter> {
    let text = text.filter(|text| !text.trim().is_empty()).unwrap_or("info");
    let is_right = |part: &str| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        level.parse::<LevelFilter>().is_ok()
    };
    if let Some(wrong) = text.split(',').find(|part| !is_right(part.trim())) {
        bail!(
            "SEGUE_LOG: {wrong:?} is no level: off, error, warn, info, debug or trace; for a part of the \
             program as in segue=debug"
        );
    }
    EnvFilter::try_new(text).with_context(|| format!("SEGUE_LOG: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_mutes_nothing() {
        for right in ["info", "debug,quinn=info", "segue=trace, warn", "OFF"] {
            assert!(log_filter(Some(right)).is_ok(), "{right}");
        }
        assert_eq!(log_filter(None).unwrap().to_string(), "info");
        assert_eq!(log_filter(Some(" ")).unwrap().to_string(), "info");
        for wrong in ["bogus", "segue", "segue=loud", "info;debug"] {
            let said = log_filter(Some(wrong)).unwrap_err().to_string();
            assert!(said.starts_with("SEGUE_LOG: ") && said.contains("off, error"), "{said}");
        }
    }
}
