//! Which daemon is asked, and how wide its answer may be.

use std::path::PathBuf;

use anyhow::bail;
use segue_daemon::config::instance_name;
use segue_daemon::control::{self, Status, Tunnels, tunnels};
use segue_text::terminal::{Colours, Live, Stream};

/// Which daemon.
#[derive(clap::Args)]
pub(super) struct Which {
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
            // As good a name as any for the message that nothing answers there.
            [] => Ok(usual[1].clone()),
            [only] if instance.is_none() => Ok(only.clone()),
            all => {
                let all: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
                bail!("which daemon? Name one with --control: {}", all.join(", "))
            }
        }
    }

    /// The daemon of this role, unless its socket is named.
    pub(super) fn of_role(&mut self, role: &str) {
        let usual = || control::default_path(role, self.instance.as_deref());
        self.control = self.control.take().or_else(|| Some(usual()));
    }

    /// The status of a host or an anchor.
    pub(super) fn status(&self, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
        tunnels::status(&self.socket()?, events_from)
    }
}

/// Where output goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    /// Characters in a line.
    pub(super) room: usize,
    pub(super) colours: Colours,
}

impl Paper {
    /// Standard output.
    pub(super) fn output() -> Paper {
        Paper { room: Stream::Output.room(), colours: Stream::Output.colours() }
    }

    /// Redrawn lines leave the last column free.
    pub(super) fn live(live: &Live) -> Paper {
        let room = live.size().columns.saturating_sub(1);
        Paper { room, colours: Stream::Output.colours() }
    }
}
