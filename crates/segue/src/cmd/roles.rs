//! The registry of roles. A module here declares each role once: its name, configuration file, unit, status page, checks
//! and leftovers. `check`, `status`, `flows`, `clean`, `doctor`, `generate` and, through it, `make install` read the
//! declarations.

mod echo;
mod mih;
mod networks;
mod pmip;
mod role;
mod tunnels;

use std::path::Path;

pub(crate) use mih::{FUNCTION, LINK_SAP};
pub(crate) use pmip::{LMA, MAG};
pub use role::Role;
pub(crate) use role::{Content, Daemon, File, key_of};
pub(crate) use tunnels::HOST;

/// All roles, in the order of help.
static ROLES: [&Role; 9] = [
    &HOST,
    &tunnels::ANCHOR,
    &LMA,
    &MAG,
    &FUNCTION,
    &LINK_SAP,
    &echo::ECHO,
    &networks::LAB,
    &networks::SCENARIO,
];

/// A role with its kind of file.
pub(crate) type Kind = (&'static Role, &'static File);

/// The kinds of files.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    ROLES.into_iter().filter_map(|role| Some((role, role.file.as_ref()?)))
}

/// The only kind that keys and tables of a file fit, else the one whose name its own contains. The text is read line by line,
/// so that a file with mistakes is recognised too.
pub(crate) fn kind_of(path: &Path, text: &str) -> Option<Kind> {
    let all: Vec<&str> = text.lines().filter_map(key_of).collect();
    let until_table = text.lines().take_while(|line| !line.trim_start().starts_with('['));
    let top: Vec<&str> = until_table.filter_map(key_of).collect();
    let has = |sign: &str| match sign.strip_prefix('.') {
        Some(within) => all.contains(&within),
        None => top.contains(&sign) || sign.starts_with('[') && all.contains(&sign),
    };
    let has_any = |signs: &str| signs.split_whitespace().any(has);
    let fits = |(_, file): &Kind| has_any(file.own) && !has_any(file.foreign);
    if let [only] = kinds().filter(fits).collect::<Vec<_>>()[..] {
        return Some(only);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A family's name may be missing. A host comes last, since names of machines contain "host".
    let is_named = |role: &str| name.contains(role.split_once('-').map_or(role, |(_, own)| own));
    kinds().skip(1).chain(kinds().take(1)).find(|(role, _)| is_named(role.name))
}

/// The kind of a file of which nothing tells it: a host's.
pub(crate) fn guess() -> Kind {
    kinds().next().expect("a host has a file")
}

/// The roles with a daemon.
pub(crate) fn daemons() -> impl Iterator<Item = (&'static Role, &'static Daemon)> {
    ROLES.into_iter().filter_map(|role| Some((role, role.daemon.as_ref()?)))
}

/// The daemon of the role with this name.
pub(crate) fn daemon(name: &str) -> Option<&'static Daemon> {
    daemons().find_map(|(role, daemon)| (role.name == name).then_some(daemon))
}

/// The roles that `make install` installs: each has a unit, a man page and a configuration made from its example.
pub fn installed() -> impl Iterator<Item = &'static Role> {
    daemons().map(|(role, _)| role).filter(|role| role.file.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_what_only_its_kind_has() {
        let known = |name: &str, text: &str| Some(kind_of(Path::new(name), text)?.0.name);
        let of = |name: &str, text: &str| known(name, text).unwrap();
        assert_eq!(of("x.toml", "nat = true\n"), "anchor");
        assert_eq!(of("x.toml", "[steering]\nmargin = 1.0\n"), "host");
        assert_eq!(of("my-anchor.toml", "port = 1\n"), "anchor");
        assert_eq!(of("my-host.toml", "port = 1\n"), "host");
        // Keys of both: one of them is a mistake.
        assert_eq!(of("my-host.toml", "nat = true\n[steering]\n"), "host");
        assert_eq!(known("x.toml", "nat = true\n[steering]\n"), None);
        assert_eq!(of("x.toml", "[[access]]\n[[node]]\n"), "pmip-mag");
        assert_eq!(of("x.toml", "gateways = []\n"), "pmip-lma");
        assert_eq!(of("x.toml", "pool = \"fd00::/48\"\n[[access]]\n[steering]\n"), "pmip-lma");
        assert_eq!(of("x.toml", "[[link]]\ninterface = \"a\"\n"), "mih-link-sap");
        assert_eq!(of("x.toml", "[[link]]\ninterfce = \"a\"\n"), "mih-link-sap");
        assert_eq!(of("x.toml", "[[link]]\nname = \"l\"\nends = []\n"), "lab");
        assert_eq!(known("x.toml", "#nat = true\nport = 1\n"), None);
        assert_eq!(of("x.toml", "[[node]]\nname = \"a\"\n"), "lab");
        assert_eq!(of("x.toml", "seed = 1\nduration = \"1s\"\n[[node]]\n"), "scenario");
        // A scenario's node table may share keys with an anchor.
        assert_eq!(of("x.toml", "duration = \"1s\"\n[[node]]\naddresses = []\n"), "scenario");
    }
}
