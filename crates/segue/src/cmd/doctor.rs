//! `segue doctor`

mod finding;
mod firewall;
mod gateway;
mod network;
mod portal;
mod system;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::config::{AnchorFile, HostFile, LmaFile, MagFile};
use segue_daemon::control::{self, Any, Status, Tunnels, tunnels};
use segue_daemon::locator::Locator;
use segue_daemon::pmip::{lma, mag};
use segue_daemon::settings::Choice;
use segue_daemon::{anchor, host};
use segue_linux::monitor::Device;
use segue_text::say;
use segue_wire::SIGNAL_PORT;

use super::check::{FileKind, kind_of};
use finding::{Finding, Verdict, ok, todo, told, unknown};

/// Check whether this machine can run a host, an anchor or a gateway, and say what to do if not.
///
/// Each line says ok, what to do, or what could not be determined, which is more without root. Nothing is changed. The
/// exit status is 1 if there is something to do.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration of the host, anchor or gateway (default: the file in /etc/segue whose daemon runs, ran before or
    /// is started by the system, else the only one there, else a host's defaults)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Try to reach this anchor, instead of the one in the host's join line
    #[arg(long, value_name = "ADDR[:PORT]")]
    anchor: Option<String>,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The roles that can be examined, each with the kind of its file. If several have state here, the first is examined.
const ROLES: [(&str, FileKind); 4] = [
    ("host", FileKind::Host),
    ("anchor", FileKind::Anchor),
    ("pmip-lma", FileKind::PmipLma),
    ("pmip-mag", FileKind::PmipMag),
];

/// Whether the system starts the daemon of a role.
fn is_enabled(role: &str) -> bool {
    Path::new(&format!("/etc/systemd/system/multi-user.target.wants/segue-{role}.service")).exists()
}

/// Whether a daemon of a role ran here.
fn has_state(role: &str) -> bool {
    Path::new(&format!("/var/lib/segue/{role}.db")).exists()
}

/// The daemon at a control socket, as far as this user may ask it.
#[derive(Default)]
struct Daemon {
    socket: PathBuf,
    /// Its role; if the socket is closed to this user, the role in the socket's name.
    role: Option<FileKind>,
    /// The status of a host or an anchor.
    status: Option<Status<Tunnels>>,
    /// Why this user may not ask it.
    closed: Option<String>,
}

impl Daemon {
    fn at(path: &Path) -> Daemon {
        let find = |is: &dyn Fn(&str) -> bool| {
            ROLES.into_iter().find(|(role, _)| is(role)).map(|(_, kind)| kind)
        };
        let none = Daemon { socket: path.to_owned(), ..Daemon::default() };
        match control::status::<Any>(path, u64::MAX) {
            Ok(status) => Daemon {
                role: find(&|role| role == status.head.role),
                status: tunnels::status(path, u64::MAX).ok(),
                ..none
            },
            Err(error) if is_denied(&error) => {
                // In a directory that this user may not enter, there may be no such socket.
                let name = path.file_stem().filter(|_| path.symlink_metadata().is_ok());
                let name = name.unwrap_or_default().to_string_lossy();
                let named = |role: &str| name == role || name.starts_with(&format!("{role}-"));
                Daemon { role: find(&named), closed: Some(error.to_string()), ..none }
            }
            Err(_) => none,
        }
    }

    /// The first daemon that answers at a default control socket, else the first whose socket is closed to this user.
    fn usual() -> Daemon {
        let all = ROLES.map(|(role, _)| control::default_path(role, None));
        let mut closed = Daemon::default();
        for path in all.into_iter().chain(control::sockets()) {
            let daemon = Daemon::at(&path);
            match (daemon.role, &daemon.closed) {
                (Some(_), None) => return daemon,
                (Some(_), Some(_)) if closed.role.is_none() => closed = daemon,
                _ => {}
            }
        }
        closed
    }

    /// What its control socket says, for roles of which no other finding does.
    fn finding(&self, role: &Role) -> Option<Finding> {
        const CHECK: &str = "daemon";
        let socket = self.socket.display();
        match (role, &self.closed, self.role) {
            (_, Some(why), _) => Some(unknown(CHECK, why)),
            (Role::Lma(_) | Role::Gateway(_), None, Some(_)) => {
                Some(ok(CHECK, format!("one answers at {socket}")))
            }
            (Role::Lma(_) | Role::Gateway(_), None, None) => {
                Some(ok(CHECK, format!("none answers at {socket}")))
            }
            (Role::Host(..) | Role::Anchor(_) | Role::Unknown, None, _) => None,
        }
    }
}

fn is_denied(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
}

/// The current or planned role of this machine. The settings of a local mobility anchor or a gateway are missing if its
/// daemon runs with a file that is not known.
enum Role {
    Host(Box<HostFile>, Box<host::Settings>),
    Anchor(Box<anchor::Settings>),
    Lma(Option<Box<lma::Settings>>),
    Gateway(Option<Box<mag::Settings>>),
    Unknown,
}

impl Role {
    /// Reads the given configuration, else the one for the running daemon's role, else the one for the role that ran
    /// before. Also returns a finding about the files.
    fn of(
        given: Option<&Path>,
        running: Option<FileKind>,
    ) -> anyhow::Result<(Role, Option<Finding>)> {
        const CHECK: &str = "configuration";
        if let Some(path) = given {
            let text = segue_grammar::text(path)?;
            let kind = kind_of(path, &text).unwrap_or(FileKind::Host);
            return Ok((Role::read(kind, path, &text)?, None));
        }
        let (mut files, mut hidden) = (Vec::new(), None);
        for (role, kind) in ROLES {
            match super::existing(super::default_file(role)) {
                Ok(found) => files.extend(found.map(|path| (kind, path))),
                Err(error) => hidden = Some(unknown(CHECK, told(error))),
            }
        }
        let here = ROLES.into_iter().find(|(role, _)| has_state(role) || is_enabled(role));
        let kind = match (running.or(here.map(|(_, kind)| kind)), &files[..]) {
            (Some(kind), _) => kind,
            (None, [(only, _)]) => *only,
            (None, []) if hidden.is_none() => FileKind::Host,
            (None, _) => {
                let text = "no daemon runs here; segue doctor -c FILE judges a configuration";
                return Ok((Role::Unknown, hidden.or_else(|| Some(unknown(CHECK, text)))));
            }
        };
        let Some((_, path)) = files.iter().find(|(of, _)| *of == kind) else {
            return Ok((Role::without_file(kind)?, hidden));
        };
        match segue_grammar::text(path).and_then(|text| Role::read(kind, path, &text)) {
            Ok(role) => Ok((role, hidden)),
            // The daemon may run with another file.
            Err(error) if running.is_some() => {
                let text = format!("{}; name the running daemon's file with -c FILE", told(error));
                Ok((Role::without_file(kind)?, Some(unknown(CHECK, text))))
            }
            Err(error) => Err(error),
        }
    }

    fn read(kind: FileKind, path: &Path, text: &str) -> anyhow::Result<Role> {
        let name = path.display().to_string();
        match kind {
            FileKind::Host => {
                let file: HostFile = segue_grammar::parse(text, &name)?;
                let settings = file.clone().validate().with_context(|| name)?;
                Ok(Role::Host(Box::new(file), Box::new(settings)))
            }
            FileKind::Anchor => {
                let file: AnchorFile = segue_grammar::parse(text, &name)?;
                Ok(Role::Anchor(Box::new(file.validate().with_context(|| name)?)))
            }
            FileKind::PmipLma => {
                let file: LmaFile = segue_grammar::parse(text, &name)?;
                Ok(Role::Lma(Some(Box::new(file.validate().with_context(|| name)?))))
            }
            FileKind::PmipMag => {
                let file: MagFile = segue_grammar::parse(text, &name)?;
                Ok(Role::Gateway(Some(Box::new(file.validate().with_context(|| name)?))))
            }
            FileKind::MihFunction | FileKind::MihLinkSap | FileKind::Lab | FileKind::Scenario => {
                bail!("{name} describes no host, anchor or gateway: try segue check {name}")
            }
        }
    }

    /// A role of which no file is known, with its defaults if it has some.
    fn without_file(kind: FileKind) -> anyhow::Result<Role> {
        Ok(match kind {
            FileKind::Host => Role::Host(Box::default(), Box::new(HostFile::default().validate()?)),
            FileKind::Anchor => Role::Anchor(Box::new(AnchorFile::default().validate()?)),
            FileKind::PmipLma => Role::Lma(None),
            FileKind::PmipMag => Role::Gateway(None),
            FileKind::MihFunction | FileKind::MihLinkSap | FileKind::Lab | FileKind::Scenario => {
                Role::Unknown
            }
        })
    }

    /// The configured control socket, else the default one of the role.
    fn control(&self) -> Option<PathBuf> {
        let (role, common) = match self {
            Role::Host(_, settings) => ("host", Some(&settings.common)),
            Role::Anchor(settings) => ("anchor", Some(&settings.common)),
            Role::Lma(settings) => ("pmip-lma", settings.as_ref().map(|known| &known.common)),
            Role::Gateway(settings) => ("pmip-mag", settings.as_ref().map(|known| &known.common)),
            Role::Unknown => return None,
        };
        let usual = || control::default_path(role, None);
        Some(common.map_or_else(usual, |common| common.control.clone()))
    }
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let daemon = match (&args.control, &args.config) {
        (Some(socket), _) => Daemon::at(socket),
        (None, None) => Daemon::usual(),
        (None, Some(_)) => Daemon::default(),
    };
    let (role, about_files) = Role::of(args.config.as_deref(), daemon.role)?;
    let asked = args.anchor.as_deref().map(|text| Locator::parse(text, SIGNAL_PORT));
    let asked = asked.transpose().context("--anchor")?;
    if asked.is_some() && matches!(role, Role::Unknown) {
        bail!("--anchor is for a host: name its configuration with -c FILE");
    }
    if asked.is_some() && !matches!(role, Role::Host(..)) {
        bail!("--anchor is for a host, and this is the configuration of an anchor or a gateway");
    }
    let daemon = match (&args.control, role.control()) {
        (None, Some(socket)) if daemon.role.is_none() => Daemon::at(&socket),
        _ => daemon,
    };
    let mut findings = examine(&role, asked, &daemon)?;
    findings.extend(about_files);
    // Findings that require action come first.
    findings.sort_by_key(|finding| finding.verdict != Verdict::Todo);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        findings.iter().for_each(print);
    }
    let left = findings.iter().any(|finding| finding.verdict == Verdict::Todo);
    Ok(ExitCode::from(u8::from(left)))
}

fn print(Finding { check, verdict, text }: &Finding) {
    let mark = match verdict {
        Verdict::Ok => "ok",
        Verdict::Todo => "to do",
        Verdict::Unknown => "?",
    };
    let (text, command) = text.split_once('\n').unwrap_or((text.as_str(), ""));
    say!("{check:<14} {mark:<5}  {text}");
    // A command is to be pasted into a shell, so its line stays whole.
    if !command.is_empty() {
        println!("{command}");
    }
}

fn examine(role: &Role, asked: Option<Locator>, daemon: &Daemon) -> anyhow::Result<Vec<Finding>> {
    let running = daemon.status.as_ref();
    let mut all = vec![system::kernel(), system::capabilities()];
    let interfaces = network::interfaces()?;
    match role {
        Role::Host(file, settings) => {
            all.extend(of_host(file, settings, asked, &interfaces, daemon)?);
        }
        Role::Anchor(settings) => all.extend(of_anchor(settings, &interfaces, daemon)?),
        Role::Lma(settings) => {
            let choice = settings.as_ref().map_or(Choice::Auto, |known| known.relay.datapath);
            all.push(system::datapath(choice, running));
            if let Some(known) = settings {
                all.extend(gateway::anchor_addresses(&known.machine));
            }
        }
        Role::Gateway(settings) => {
            let choice = settings.as_ref().map_or(Choice::Auto, |known| known.relay.datapath);
            all.push(system::datapath(choice, running));
            if let Some(known) = settings {
                all.extend(gateway::accesses(&known.machine));
                all.push(gateway::anchor(&known.machine));
            }
        }
        Role::Unknown => all.push(system::datapath(Choice::Auto, running)),
    }
    all.extend(daemon.finding(role));
    all.extend(running.iter().flat_map(|status| network::filtered(status)));
    all.extend(network::guard(running));
    all.extend(network::clamp(running));
    all.push(system::clock());
    all.push(system::leftovers());
    Ok(all)
}

/// The eBPF programs take tunnel packets before the packet filter sees them.
fn before_filters(running: Option<&Status<Tunnels>>) -> bool {
    running.is_some_and(|status| status.body.datapath.starts_with("ebpf"))
}

fn of_host(
    file: &HostFile,
    settings: &host::Settings,
    asked: Option<Locator>,
    interfaces: &[Device],
    daemon: &Daemon,
) -> anyhow::Result<Vec<Finding>> {
    let running = daemon.status.as_ref();
    let enrolment = system::enrolment(file, settings);
    let enrolled = || enrolment.as_ref().ok().map(|seen| seen.anchor.clone());
    let named = asked.map(|locator| vec![locator]).or_else(enrolled).unwrap_or_default();
    let mut all = vec![
        system::datapath(settings.tunnel.datapath, running),
        network::port("port", settings.tunnel.port, running, daemon.closed.as_deref()),
    ];
    let refused = running.and_then(|status| status.body.trouble.as_ref());
    let refused = refused.filter(|trouble| trouble.rejected);
    all.push(match (refused, &enrolment) {
        (Some(trouble), _) => todo("enrolment", &*trouble.why),
        (None, Ok(seen)) => system::credentials(seen),
        (None, Err(finding)) if running.is_some() => ok("enrolment", finding.running()),
        (None, Err(finding)) => finding.told(),
    });
    let (mut anchor, unresolved) = network::resolve(&named, interfaces, settings)?;
    all.extend(unresolved);
    let translators = network::translators(&anchor, interfaces, settings, running)?;
    all.extend(network::translation(&translators));
    anchor.extend(network::synthesized(&translators, &anchor));
    // The running daemon may know an address that the file does not list.
    let reached = running.and_then(|status| status.body.anchor.as_ref()?.parse().ok());
    anchor.extend(reached.filter(|at| !anchor.contains(at)));
    all.extend(network::reachability(&anchor, running));
    all.extend(running.and_then(network::without_path));
    all.extend(portal::portals(interfaces, &anchor, running)?);
    let known = (settings, &*translators);
    all.extend(network::host_ways(interfaces, &anchor, known, running));
    all.extend(network::others(interfaces, settings));
    let filter = firewall::at_host(settings.tunnel.port);
    all.extend(filter.filter(|_| !before_filters(running)));
    Ok(all)
}

fn of_anchor(
    settings: &anchor::Settings,
    interfaces: &[Device],
    daemon: &Daemon,
) -> anyhow::Result<Vec<Finding>> {
    let (running, closed) = (daemon.status.as_ref(), daemon.closed.as_deref());
    let mut all = vec![
        system::datapath(settings.tunnel.datapath, running),
        network::port("port", settings.tunnel.port, running, closed),
        network::port("signal port", settings.signal_port, running, closed),
    ];
    let ports = [settings.signal_port, settings.tunnel.port];
    let ports = if before_filters(running) { &ports[..1] } else { &ports[..] };
    all.extend(firewall::at_anchor(ports, &settings.tunnel.device));
    all.extend(network::anchor_ways(interfaces, settings, running)?);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_four_roles_are_read_and_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Role::of(Some(&path), None).map(|(role, _)| role)
        };
        assert!(matches!(of("host.toml", ""), Ok(Role::Host(..))));
        assert!(matches!(of("anchor.toml", ""), Ok(Role::Anchor(_))));
        let lma = "address = \"fd00:1::1\"\npool = \"fd00:77::/48\"\ngateways = [\"fd00:2::1\"]\n";
        assert!(matches!(of("pmip-lma.toml", lma), Ok(Role::Lma(Some(_)))));
        for (name, text, part) in [
            ("pmip-lma.toml", "", "address is missing"),
            ("pmip-mag.toml", "", "anchor is missing"),
            ("mih-function.toml", "", "describes no host, anchor or gateway"),
        ] {
            let said = of(name, text).err().map(told).unwrap_or_default();
            assert!(said.contains(part) && said.contains(name), "{said}");
        }
    }

    #[test]
    fn only_an_error_of_permission_closes_a_socket() {
        let error = |kind| anyhow::Error::new(io::Error::from(kind)).context("x");
        assert!(is_denied(&error(ErrorKind::PermissionDenied)));
        assert!(!is_denied(&error(ErrorKind::NotFound)));
        let none = Daemon::at(Path::new("/nonexistent/host.sock"));
        assert!(none.role.is_none() && none.closed.is_none());
        assert!(none.finding(&Role::Unknown).is_none());
        let said = none.finding(&Role::Lma(None)).unwrap();
        assert_eq!(said, ok("daemon", "none answers at /nonexistent/host.sock"));
    }
}
