//! `segue clean`

pub(crate) mod kinds;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use segue_daemon::control::{self, Place};
use segue_daemon::number::Number;
use segue_daemon::pmip::{leading, macs};
use segue_daemon::{check_permission, forwarding};
use segue_linux::link::mac_text;
use segue_linux::link::{self, Link};
use segue_linux::nft;
use segue_text::say;

use self::kinds::Rules;
use super::roles;
use super::run::abandoned_groups;

/// Remove what a crashed daemon or test network left behind.
///
/// This covers the current network namespace (devices, routing rules, packet filters, link-layer addresses of
/// accesses), stale control sockets, control groups of segue run, and test networks whose process is gone. What belongs
/// to a running daemon is left alone.
#[derive(clap::Args)]
pub struct Args {
    /// Check this control socket too
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Look into this state of a gateway too, for the link-layer addresses that its accesses had
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    check_permission("clean up")?;
    let mut removed = Vec::new();
    let links = link::links()?;
    let ours = links.iter().filter(|link| is_tunnel(link));
    // A tunnel device has a carrier while a process holds it.
    let (living, dead): (Vec<_>, Vec<_>) = ours.partition(|link| link.running);
    for link in dead {
        link::delete(&link.name)?;
        removed.push(format!("tunnel device {}", link.name));
    }
    for link in &living {
        say!("{} belongs to a running daemon and is left alone", link.name);
    }
    for link in forsaken(&links, &living) {
        let Some(mac) = macs::remembered(link, args.state.as_ref()) else {
            say!("{}", macs::kept(&link.name));
            continue;
        };
        link::set_mac(&link.name, mac)?;
        let (name, mac) = (&link.name, mac_text(mac));
        removed.push(format!(
            "the link-layer address of all gateways from {name}: it has {mac} again"
        ));
    }
    let (mut rules, mut routes) = (0, 0);
    for kind in kinds_of_rules() {
        for number in without(&living, (kind.numbers)()) {
            let (gone, opened) = (kind.remove)(number);
            (rules, routes) = (rules + gone, routes + opened);
        }
    }
    if living.is_empty() {
        rules += forwarding::clean();
    }
    let gone = tables(&living).filter(|name| nft::remove_table(name));
    let counted = [(rules, "routing rules"), (routes, "unreachable routes")].into_iter();
    removed.extend(counted.filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    removed.extend(gone.map(|name| format!("nftables table {name}")));
    if living.is_empty() {
        for link in &links {
            let filters = segue_datapath::ebpf::remove_stale_filters(link.index);
            removed.extend(filters.iter().map(|name| format!("filter {name} on {}", link.name)));
        }
    }
    for socket in stale_sockets(args.control) {
        std::fs::remove_file(&socket)?;
        removed.push(format!("control socket {}", socket.display()));
    }
    for group in abandoned_groups() {
        if std::fs::remove_dir(&group).is_ok() {
            removed.push(format!("control group {}", group.display()));
        }
    }
    let labs = segue_lab::clean();
    removed.extend(labs.iter().map(|name| format!("network namespace {name}")));
    for what in &removed {
        say!("removed {what}");
    }
    if removed.is_empty() {
        say!("nothing to clean");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what [`run`] would remove from this network namespace, except filters of old kernels. Changes nothing and
/// needs no permission, but only root sees the names of nftables tables.
pub fn leftovers() -> anyhow::Result<Vec<String>> {
    let links = link::links()?;
    let (living, dead): (Vec<_>, Vec<_>) =
        links.iter().filter(|link| is_tunnel(link)).partition(|link| link.running);
    let mut found: Vec<String> =
        dead.iter().map(|link| format!("tunnel device {}", link.name)).collect();
    let count = |kind: &Rules| without(&living, (kind.numbers)()).map(kind.count).sum::<usize>();
    let mut rules: usize = kinds_of_rules().into_iter().map(count).sum();
    if living.is_empty() {
        rules += forwarding::count_rules();
    }
    if rules > 0 {
        found.push(format!("{rules} routing rules"));
    }
    found.extend(tables(&living).map(|name| format!("nftables table {name}")));
    let forsaken = forsaken(&links, &living).into_iter();
    found.extend(forsaken.map(|link| format!("the address of all gateways on {}", link.name)));
    found.extend(
        stale_sockets(None).iter().map(|path| format!("control socket {}", path.display())),
    );
    found.extend(abandoned_groups().iter().map(|path| format!("control group {}", path.display())));
    Ok(found)
}

/// Interfaces that have the gateways' shared link-layer address but are no access of a running gateway.
fn forsaken<'a>(links: &'a [Link], living: &[&Link]) -> Vec<&'a Link> {
    let numbers = living.iter().map(|link| Number::of(&link.name));
    let served: Vec<String> = numbers.flat_map(leading::accesses).collect();
    let mut all = macs::fixed(links);
    all.retain(|link| !served.contains(&link.name));
    all
}

/// The routing rules that daemons install, of each kind once.
fn kinds_of_rules() -> Vec<&'static Rules> {
    let mut all: Vec<&Rules> = Vec::new();
    for kind in roles::daemons().filter_map(|(_, daemon)| daemon.rules) {
        if !all.iter().any(|known| std::ptr::eq(*known, kind)) {
            all.push(kind);
        }
    }
    all
}

/// The nftables tables of daemons that no longer run.
fn tables(living: &[&Link]) -> impl Iterator<Item = String> {
    let present: Vec<String> = living.iter().map(|link| nft::table_name("_", &link.name)).collect();
    let kinds = roles::daemons().flat_map(|(_, daemon)| daemon.tables);
    let all: BTreeSet<String> = kinds.flat_map(|tables| tables()).collect();
    all.into_iter().filter(move |table| !present.iter().any(|device| table.ends_with(device)))
}

/// Sockets of daemons that no longer run, in the usual places and at `more`.
fn stale_sockets(more: Option<PathBuf>) -> Vec<PathBuf> {
    let all = control::sockets().into_iter().chain(more);
    all.filter(|path| Place::of(path).is_ok_and(|place| place == Place::Stale)).collect()
}

/// Keeps the numbers of daemons that left something behind and no longer run.
fn without(living: &[&Link], left: Vec<Number>) -> impl Iterator<Item = Number> {
    let present: Vec<Number> = living.iter().map(|link| Number::of(&link.name)).collect();
    left.into_iter().filter(move |number| !present.contains(number))
}

/// Whether the device has no link layer and has a name that only our daemons use.
pub(super) fn is_tunnel(link: &Link) -> bool {
    link.name.starts_with("segue") && !link.loopback && link.mac == [0; 6]
}
