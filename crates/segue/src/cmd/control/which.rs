//! Which daemon is asked, and how wide its answer may be.

use std::path::PathBuf;

use segue_daemon::control::{self, Status, Tunnels, tunnels};
use segue_text::terminal::{Colours, Live, Stream};

/// Which daemon.
#[derive(clap::Args)]
pub(super) struct Which {
    /// Control socket (default: the host's, else the anchor's)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Name of the daemon, if several of a role run here (`instance` in its configuration)
    #[arg(long, value_name = "NAME", conflicts_with = "control")]
    instance: Option<String>,
}

impl Which {
    pub(super) fn socket(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| {
            let of = |role| control::default_path(role, self.instance.as_deref());
            if of("host").exists() { of("host") } else { of("anchor") }
        })
    }

    pub(super) fn status(&self, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
        tunnels::status(&self.socket(), events_from)
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
    /// Standard output; a file or pipe has room for any line.
    pub(super) fn output() -> Paper {
        let room = Stream::Output.size().map_or(usize::MAX, |size| size.columns);
        Paper { room, colours: Stream::Output.colours() }
    }

    /// Redrawn lines leave the last column free.
    pub(super) fn live(live: &Live) -> Paper {
        let room = live.size().columns.saturating_sub(1);
        Paper { room, colours: Stream::Output.colours() }
    }
}
