//! The event log of a daemon, next to its state file: readable hours later, even after the daemon has ended.
//!
//! The log is two files of JSON lines; the older file is replaced when the newer one is full or too old. A thread
//! writes them, so that a slow disk does not block the daemon. Nothing waits for the disk (no `fsync`): the log
//! survives the death of the daemon, and may lose its last seconds at a power failure. It is not state: no protocol
//! decision depends on it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context;
use segue_clock::Span;
use segue_linux::clock::monotonic;
use serde_json::{Map, Value};
use tracing::warn;

pub use crate::settings::History as Settings;
use crate::trouble::Trouble;

/// Lines that may be queued for the disk; further ones are lost and counted.
const WAITING: usize = 4_096;

/// A line, and the time of day in nanoseconds since 1970.
type Line = (u64, Vec<u8>);

/// The daemon's side of its log. Dropping it writes all queued lines.
pub struct History {
    path: PathBuf,
    lines: Option<SyncSender<Line>>,
    thread: Option<JoinHandle<()>>,
    lost: u64,
}

impl History {
    /// Opens the log and starts the thread that writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(settings: &Settings) -> anyhow::Result<History> {
        let mut log = Log::open(settings)
            .with_context(|| format!("no log of events at {}", settings.path.display()))?;
        let (lines, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("segue-history".into())
            .spawn(move || log.take_all(&waiting))
            .context("no thread for the log of events")?;
        let path = settings.path.clone();
        Ok(History { path, lines: Some(lines), thread: Some(thread), lost: 0 })
    }

    /// Path of the newer file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record with its time of day in nanoseconds since 1970. Never blocks.
    pub fn put(&mut self, wall_ns: u64, record: &impl serde::Serialize) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        let sent = self.lines.as_ref().is_some_and(|to| to.try_send((wall_ns, line)).is_ok());
        if !sent {
            self.lost += 1;
            if self.lost == 1 {
                warn!("the log of events loses lines: the disk is too slow");
            }
        } else if self.lost > 0 {
            warn!("the log of events lacks {}: the disk was too slow", self.lost);
            self.lost = 0;
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The files.
struct Log {
    settings: Settings,
    file: File,
    bytes: u64,
    /// Time of day of the file's first record in nanoseconds since 1970.
    began: Option<u64>,
    /// The last line is incomplete.
    broken: bool,
    trouble: Trouble,
}

impl Log {
    fn open(settings: &Settings) -> std::io::Result<Log> {
        if let Some(directory) = settings.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut file = append(&settings.path)?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            file.rewind()?;
        }
        let began = records(BufReader::new(&file)).next().map(|(at, _)| at);
        let (broken, trouble) = (last != [b'\n'], Trouble::default());
        Ok(Log { settings: settings.clone(), file, bytes, began, broken, trouble })
    }

    /// Returns whether the open file is still the file at the log's path.
    fn is_in_place(&self) -> bool {
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let own = self.file.metadata().map(identity);
        let there = std::fs::symlink_metadata(&self.settings.path).map(identity);
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    fn take_all(&mut self, lines: &Receiver<Line>) {
        while let Ok((at, line)) = lines.recv() {
            if let Err(error) = self.add(at, &line) {
                self.broken = true;
                let told = format!("the log of events, {}", self.settings.path.display());
                self.trouble.tell(monotonic(), &anyhow::Error::new(error).context(told));
            }
        }
    }

    fn add(&mut self, at: u64, line: &[u8]) -> std::io::Result<()> {
        if !self.is_in_place() {
            // The file was moved or removed, or could not be created before.
            *self = Log::open(&self.settings)?;
        }
        let keep = self.settings.keep.0;
        let is_old = self.began.is_some_and(|began| began.saturating_add(keep) < at);
        if self.bytes > 0 && (is_old || self.bytes + line.len() as u64 > self.settings.bytes / 2) {
            std::fs::rename(&self.settings.path, older(&self.settings.path))?;
            *self = Log::open(&self.settings)?;
        }
        if self.broken {
            self.file.write_all(b"\n")?;
            self.broken = false;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        self.began.get_or_insert(at);
        Ok(())
    }
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Path of the older file.
fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The records of a file with their times of day in nanoseconds since 1970. Skips malformed lines, such as one cut by a
/// power failure.
fn records(lines: impl BufRead) -> impl Iterator<Item = (u64, Map<String, Value>)> {
    lines.split(b'\n').map_while(Result::ok).filter_map(|line| {
        let record: Map<String, Value> = serde_json::from_slice(&line).ok()?;
        let at = record.get("unix_s")?.as_f64()?;
        Some(((at * 1e9) as u64, record))
    })
}

/// The records of a log in the order in which they were written, from this time of day on, in nanoseconds since 1970.
///
/// # Errors
/// There is no log at this path, or it is not readable.
pub fn read(path: &Path, since_ns: u64) -> anyhow::Result<Vec<Map<String, Value>>> {
    let newer = File::open(path).map_err(|error| {
        let place = path.display();
        let said = match error.kind() {
            ErrorKind::NotFound => format!("there is no log of events at {place}"),
            ErrorKind::PermissionDenied => format!("the log of events at {place} is root's"),
            _ => format!("the log of events at {place} cannot be read"),
        };
        anyhow::Error::new(error).context(said)
    })?;
    let identity = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    // The daemon may rotate the files between the two calls.
    let before = File::open(older(path)).ok().filter(|old| identity(old) != identity(&newer));
    let all = before.into_iter().chain([newer]);
    let all = all.flat_map(|file| records(BufReader::new(file)));
    Ok(all.filter(|(at, _)| *at >= since_ns).map(|(_, record)| record).collect())
}

/// Default time to keep events.
pub const KEEP: Span = Span::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &Path, bytes: u64) -> Settings {
        Settings { path: path.join("host.events"), keep: Span::from_secs(3_600), bytes }
    }

    fn record(second: u64) -> Value {
        serde_json::json!({ "unix_s": second as f64, "text": "path wifi up" })
    }

    fn put(settings: &Settings, seconds: impl Iterator<Item = u64>) {
        let mut history = History::start(settings).unwrap();
        for second in seconds {
            // The thread keeps up with this loop, so that nothing is lost.
            while {
                let lost = history.lost;
                history.put(second * 1_000_000_000, &record(second));
                history.lost > lost
            } {
                history.lost = 0;
                std::thread::yield_now();
            }
        }
    }

    fn seconds(settings: &Settings, since: u64) -> Vec<u64> {
        let records = read(&settings.path, since * 1_000_000_000).unwrap();
        records.iter().map(|record| record["unix_s"].as_f64().unwrap() as u64).collect()
    }

    #[test]
    fn what_is_written_is_read_from_any_time_on_also_by_another_daemon() {
        let files = tempfile::tempdir().unwrap();
        let settings = settings(files.path(), 1_000_000);
        put(&settings, 1..=3);
        put(&settings, 4..=5);
        assert_eq!(seconds(&settings, 0), [1, 2, 3, 4, 5]);
        assert_eq!(seconds(&settings, 4), [4, 5]);
        let mode = std::fs::metadata(&settings.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_cut_line_costs_itself_alone() {
        let files = tempfile::tempdir().unwrap();
        let settings = settings(files.path(), 1_000_000);
        put(&settings, 1..=2);
        let text = std::fs::read_to_string(&settings.path).unwrap();
        std::fs::write(&settings.path, &text[..text.len() - 9]).unwrap();
        put(&settings, 3..=4);
        assert_eq!(seconds(&settings, 0), [1, 3, 4]);
    }

    #[test]
    fn the_log_is_bounded_in_size_and_loses_its_oldest() {
        let files = tempfile::tempdir().unwrap();
        let settings = settings(files.path(), 4_000);
        put(&settings, 1..=1_000);
        let kept = seconds(&settings, 0);
        let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(bytes(&settings.path) + bytes(&older(&settings.path)) <= 4_000);
        assert!(kept.len() > 40, "{}", kept.len());
        let first = kept[0];
        assert!(kept.iter().copied().eq(first..=1_000), "{kept:?}");
    }

    #[test]
    fn a_log_that_somebody_moves_away_is_made_anew() {
        let files = tempfile::tempdir().unwrap();
        let settings = settings(files.path(), 1_000_000);
        let mut log = Log::open(&settings).unwrap();
        let mut add = |second: u64| {
            let line = serde_json::to_string(&record(second)).unwrap() + "\n";
            log.add(second * 1_000_000_000, line.as_bytes()).unwrap();
        };
        add(1);
        std::fs::rename(&settings.path, files.path().join("elsewhere")).unwrap();
        add(2);
        std::fs::remove_file(&settings.path).unwrap();
        // Old enough to start another file.
        add(9_000);
        assert_eq!(seconds(&settings, 0), [9_000]);
    }

    #[test]
    fn what_is_older_than_twice_its_time_goes() {
        let files = tempfile::tempdir().unwrap();
        let settings = settings(files.path(), 1_000_000);
        put(&settings, [0, 3_000, 4_000, 7_000, 8_000].into_iter());
        assert_eq!(seconds(&settings, 0), [4_000, 7_000, 8_000], "an hour is whole");
    }

    #[test]
    fn a_log_that_is_not_there_is_called_that() {
        let files = tempfile::tempdir().unwrap();
        let error = read(&files.path().join("host.events"), 0).unwrap_err();
        assert!(error.to_string().starts_with("there is no log of events at /"), "{error}");
    }
}
