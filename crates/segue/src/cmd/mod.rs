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
pub mod roles;
pub mod run;
pub mod sim;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_grammar::Config;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// A role's configuration file unless `-c` names another.
pub fn default_file(role: &str) -> PathBuf {
    PathBuf::from(format!("/etc/segue/{role}.toml"))
}

/// Returns the file if it exists. Fails if this user may not look for it.
pub fn existing(file: PathBuf) -> anyhow::Result<Option<PathBuf>> {
    let exists = file.try_exists().with_context(|| {
        let directory = file.parent().unwrap_or(Path::new("/")).display();
        format!(
            "cannot look for {}: run this as root, join the group of {directory}, or name a file with -c",
            file.display()
        )
    })?;
    Ok(exists.then_some(file))
}

/// The given file, else the role's default one if it exists.
fn chosen(given: Option<PathBuf>, role: &str) -> anyhow::Result<Option<PathBuf>> {
    given.map_or_else(|| existing(default_file(role)), |path| Ok(Some(path)))
}

/// Reads a role's configuration from the given file, or from the default one if it exists. Also returns the path of the
/// file.
pub fn configuration<F: Config + Default>(
    given: Option<PathBuf>,
    role: &str,
) -> anyhow::Result<(Option<PathBuf>, F)> {
    let path = chosen(given, role)?;
    let file = path.as_deref().map(segue_grammar::read).transpose()?.unwrap_or_default();
    Ok((path, file))
}

/// Reads the configuration of a role that has required keys.
pub fn required_configuration<F: Config>(given: Option<PathBuf>, role: &str) -> anyhow::Result<F> {
    let Some(path) = chosen(given, role)? else {
        let name = default_file(role);
        bail!("{} does not exist: create it, or name a file with -c", name.display());
    };
    segue_grammar::read(&path)
}

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

/// Shows log messages on standard error (`SEGUE_LOG` filters them).
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

/// Parses the filter for log lines. Refuses a single word that is not a level: the library would take it for a module's
/// name and show only the lines of that module.
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
    // Segue reports the QUIC library's warnings in its own messages.
    let level = text.trim().parse::<LevelFilter>().ok().filter(|level| *level <= LevelFilter::INFO);
    let text = level.map_or_else(|| text.to_owned(), |level| format!("{level},{LIBRARIES}"));
    EnvFilter::try_new(&text).with_context(|| format!("SEGUE_LOG: {text:?}"))
}

const LIBRARIES: &str = "quinn=off,quinn_proto=off,quinn_udp=off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_looked_for_is_not_taken_for_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("host.toml");
        assert_eq!(existing(file.clone()).unwrap(), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(existing(file.clone()).unwrap(), Some(file.clone()));
        // Like a directory that one may not enter, for root too: a file in place of the directory.
        let said = existing(file.join("x").join("host.toml")).unwrap_err().to_string();
        assert!(said.contains("run this as root") && !said.contains('\n'), "{said}");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_mutes_nothing() {
        for right in ["info", "debug,quinn=info", "segue=trace, warn", "OFF"] {
            assert!(log_filter(Some(right)).is_ok(), "{right}");
        }
        for unsaid in [None, Some(" "), Some("info")] {
            let filter = log_filter(unsaid).unwrap().to_string();
            assert!(filter.contains("info") && filter.contains("quinn_udp=off"), "{filter}");
        }
        assert_eq!(log_filter(Some("debug")).unwrap().to_string(), "debug");
        for wrong in ["bogus", "segue", "segue=loud", "info;debug"] {
            let said = log_filter(Some(wrong)).unwrap_err().to_string();
            assert!(said.starts_with("SEGUE_LOG: ") && said.contains("off, error"), "{said}");
        }
    }
}
