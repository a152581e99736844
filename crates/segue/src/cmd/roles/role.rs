//! An entry of the registry, and the parts that entries share.

use std::fmt::Debug;
use std::path::Path;

use anyhow::{Context, bail};
use segue_daemon::run;
use segue_daemon::settings::Common;
use segue_grammar::Config;
use segue_grammar::schema::Key;
use serde_json::Value;

use crate::cmd::check::summary::Row;
use crate::cmd::clean::kinds::Rules;
use crate::cmd::control::flows::Shows;
use crate::cmd::control::which::Paper;
use crate::cmd::default_file;
use crate::cmd::doctor::around::Around;
use crate::cmd::doctor::finding::Finding;

/// A role.
pub struct Role {
    /// Names its files, unit, man page and control socket, and the role in all output.
    pub name: &'static str,
    /// Its configuration file; some daemons have only options.
    pub(crate) file: Option<File>,
    /// Its daemon; networks have none.
    pub(crate) daemon: Option<Daemon>,
}

/// A kind of configuration file.
pub(crate) struct File {
    /// Its subject, with an article.
    pub(crate) what: &'static str,
    /// Its name in a sentence.
    pub(crate) title: &'static str,
    /// Words that mark a file as one of this kind: keys before all tables, `.key` within one, and `[tables]`.
    pub(crate) own: &'static str,
    /// Words that mark it as one of another kind.
    pub(crate) foreign: &'static str,
    /// Its keys.
    pub(crate) keys: fn() -> Vec<Key>,
    /// Reads such a file from its name and text.
    pub(crate) read: fn(Source) -> anyhow::Result<Content>,
}

/// Path and text of a file.
pub(crate) type Source<'a> = (&'a Path, &'a str);

/// A daemon.
pub(crate) struct Daemon {
    /// It stores records and a log of events.
    pub(crate) keeps_state: bool,
    /// Files that no other daemon has: path and purpose.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Lines of its unit that grant access, most of all capabilities.
    pub(crate) may: &'static [&'static str],
    /// System calls in addition to those of all units, each after a space.
    pub(crate) calls: &'static str,
    /// The routing rules that it leaves behind if it crashes.
    pub(crate) rules: Option<&'static Rules>,
    /// Lists the nftables tables, of all its instances, that may be left behind.
    pub(crate) tables: &'static [fn() -> Vec<String>],
    /// Its status page; without one the status is shown key by key.
    pub(crate) page: Option<Page>,
    /// Its part of `segue flows`, if its status holds the flows.
    pub(crate) flows: Option<Shows>,
}

/// Makes the lines of a status page, without the events.
type Page = fn(Value, Paper) -> serde_json::Result<Vec<String>>;

/// A daemon without tunnels and files.
pub(super) const PLAIN: Daemon = Daemon {
    keeps_state: false,
    files: &[],
    may: &[],
    calls: "",
    rules: None,
    tables: &[],
    page: None,
    flows: None,
};

/// A valid file.
pub(crate) struct Content {
    /// The settings in force.
    pub(crate) rows: Vec<Row>,
    /// The settings that every daemon has.
    pub(crate) common: Option<Common>,
    /// The settings, which the role's own checks judge.
    pub(crate) settings: Box<dyn Checks>,
}

/// Checks that are specific to a role.
pub(crate) trait Checks: Debug {
    /// Fails if the settings do not fit this machine.
    fn check_here(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Fails if the daemon will not be able to read its secrets.
    fn check_secrets(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// The findings of `segue doctor`.
    fn examine(&self, around: &Around) -> anyhow::Result<Vec<Finding>> {
        Ok(around.answers().into_iter().collect())
    }
}

/// The settings of networks.
impl Checks for () {}

/// Reads and validates the file `F` of a daemon `D`.
pub(super) fn read<D: run::Role<Settings: Checks + 'static>, F: Config + Clone>(
    source: Source,
    validate: fn(F) -> anyhow::Result<D::Settings>,
    rows: fn(&str, &F, &D::Settings) -> Vec<Row>,
) -> anyhow::Result<Content> {
    read_with::<D, F>(source, validate, rows, |_, settings| Box::new(settings))
}

/// Does the same for a role whose checks use more than its settings.
pub(super) fn read_with<D: run::Role, F: Config + Clone>(
    (path, text): Source,
    validate: fn(F) -> anyhow::Result<D::Settings>,
    rows: fn(&str, &F, &D::Settings) -> Vec<Row>,
    settings: fn(F, D::Settings) -> Box<dyn Checks>,
) -> anyhow::Result<Content> {
    let name = path.display().to_string();
    let file: F = segue_grammar::parse(text, &name)?;
    let valid = validate(file.clone()).context(name)?;
    let (rows, common) = (rows(text, &file, &valid), Some(D::common(&valid)));
    Ok(Content { rows, common, settings: settings(file, valid) })
}

/// The key of a line, or its table with brackets.
pub(crate) fn key_of(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    if line.starts_with('[') {
        return Some(line.split('#').next().unwrap_or_default().trim());
    }
    line.split_once('=').map(|(key, _)| key.trim())
}

/// The template of all units.
const UNIT: &str = include_str!("../../../../../packaging/segue-role.service");
/// The directories of a daemon that stores records.
const STATE: &str = "StateDirectory=segue\nStateDirectoryMode=0700\n";
/// Lines of a unit that grant access to tunnels.
pub(super) const TUNNELS: &str = "\
# eBPF needs the last two; without them packets go through user space. ProtectKernelTunables must stay off, since the
# daemon sets sysctls.
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_PERFMON
DeviceAllow=/dev/net/tun rw";
pub(super) const PRIVATE_TMP: &str = "PrivateTmp=yes";

impl Role {
    /// The verb that starts its daemon, in words.
    pub fn verb(&self) -> String {
        self.name.replacen('-', " ", 1)
    }

    /// The settings that a text of its file puts in force.
    pub fn settings(&self, path: &Path, text: &str) -> anyhow::Result<Box<dyn Debug>> {
        Ok(self.read((path, text))?.settings)
    }

    /// Its settings without a file. Fails if it has none, or one with required keys.
    pub(crate) fn defaults(&self) -> anyhow::Result<Content> {
        self.read((&default_file(self.name), ""))
    }

    /// Reads its file.
    pub(crate) fn read(&self, source: Source) -> anyhow::Result<Content> {
        let Some(file) = &self.file else { bail!("{} has no file", self.name) };
        (file.read)(source)
    }

    /// Its unit of systemd, if it is installed. `make install` replaces `@PREFIX@` and `@SYSCONFDIR@`.
    pub fn unit(&self) -> Option<String> {
        let (file, daemon) = (self.file.as_ref()?, self.daemon.as_ref()?);
        let (_article, what) = file.what.split_once(' ')?;
        let unit = UNIT.replace("@WHAT@", what).replace("@ROLE@", self.name);
        let unit = unit.replace("@VERB@", &self.verb()).replace("@CALLS@", daemon.calls);
        let unit = unit.replace("@STATE@\n", if daemon.keeps_state { STATE } else { "" });
        Some(unit.replace("@MAY@", &daemon.may.join("\n")))
    }

    /// Help for the options that every daemon has, with the role's default files.
    pub(crate) fn help(&self, arg: clap::Arg) -> clap::Arg {
        let name = self.name;
        match arg.get_id().as_str() {
            "config" => {
                let there = if self.defaults().is_ok() { ", if there is one" } else { "" };
                let file = default_file(name);
                arg.help(format!("Configuration file (TOML) [default: {}{there}]", file.display()))
            }
            "state" => arg.help(format!("File for the state [default: /var/lib/segue/{name}.db]")),
            "control" => arg.help(format!("Control socket [default: /run/segue/{name}.sock]")),
            _ => arg,
        }
    }
}
