//! Chooses the daemon to query, and the width of the output.

use std::path::{Path, PathBuf};

use anyhow::bail;
use segue_daemon::config::instance_name;
use segue_daemon::control::{self, Status, Tunnels, tunnels};
use segue_text::terminal::{Colours, Live, Stream};

/// Which daemon.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// Control socket (default: the host's, else the anchor's, else the only one here)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Name of the daemon, if several of a role run here (`instance` in its configuration)
    #[arg(long, value_name = "NAME", conflicts_with = "control", value_parser = instance_name)]
    instance: Option<String>,
}

impl Which {
    pub(super) fn socket(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.control {
            return Ok(path.clone());
        }
        let instance = self.instance.as_deref();
        let usual = ["host", "anchor"].map(|role| control::default_path(role, instance));
        if let Some(path) = usual.iter().find(|path| path.exists()) {
            return Ok(path.clone());
        }
        match &control::sockets()[..] {
            // Any of the names will do: the message only says that nothing answers there.
            [] => Ok(usual[1].clone()),
            [only] if instance.is_none() => Ok(only.clone()),
            all => {
                let all: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
                bail!("which daemon? Name one with --control: {}", all.join(", "))
            }
        }
    }

    /// Chooses the daemon of this role unless a socket was named: the unnamed instance, else the only named one.
    pub(super) fn of_role(&mut self, role: &str) -> anyhow::Result<()> {
        if self.control.is_some() {
            return Ok(());
        }
        let usual = control::default_path(role, self.instance.as_deref());
        let mut named = Vec::new();
        if self.instance.is_none() && !usual.exists() {
            let is_named = |path: &PathBuf| instance_of(role, path).is_some();
            named = control::sockets().into_iter().filter(is_named).collect();
        }
        self.control = match &named[..] {
            [] => Some(usual),
            [only] => Some(only.clone()),
            all => {
                let names: Vec<_> = all.iter().filter_map(|path| instance_of(role, path)).collect();
                bail!("which {role}? Name one with --instance: {}", names.join(", "))
            }
        };
        Ok(())
    }

    /// The status of a host or an anchor.
    pub(super) fn status(&self, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
        tunnels::status(&self.socket()?, events_from)
    }
}

/// The instance name in the socket's file name, if the socket belongs to this role and has one.
fn instance_of<'a>(role: &str, socket: &'a Path) -> Option<&'a str> {
    socket.file_stem()?.to_str()?.strip_prefix(role)?.strip_prefix('-')
}

/// Width and colours of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    /// Characters per line.
    pub(super) room: usize,
    pub(super) colours: Colours,
}

impl Paper {
    /// The paper for standard output.
    pub(super) fn output() -> Paper {
        Paper { room: Stream::Output.room(), colours: Stream::Output.colours() }
    }

    /// Redrawn lines leave the last column free.
    pub(super) fn live(live: &Live) -> Paper {
        let room = live.size().columns.saturating_sub(1);
        Paper { room, colours: Stream::Output.colours() }
    }
}
