//! `segue doctor`

mod finding;
mod firewall;
mod gateway;
mod network;
mod portal;
mod system;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::config::{self, AnchorFile, HostFile, MagFile};
use segue_daemon::control::{self, Status, Tunnels, tunnels};
use segue_daemon::locator::Locator;
use segue_daemon::pmip::mag;
use segue_daemon::{anchor, host};
use segue_text::say;
use segue_wire::SIGNAL_PORT;

use super::check::{FileKind, kind_of};
use finding::{Finding, Verdict, ok, todo};

/// Check whether this machine can run a host, an anchor or a gateway, and say what to do if not.
///
/// Each line says ok, what to do, or what could not be determined, which is more without root. Nothing is changed. The
/// exit status is 1 if there is something to do.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration of the host, anchor or gateway (default: the file in /etc/segue whose daemon runs or has state here, else a
    /// host's defaults)
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

/// Whether the system starts the daemon of a role.
fn is_enabled(of_host: bool) -> bool {
    let role = if of_host { "host" } else { "anchor" };
    Path::new(&format!("/etc/systemd/system/multi-user.target.wants/segue-{role}.service")).exists()
}

/// The current or planned role of this machine.
enum Role {
    Host(Box<HostFile>, Box<host::Settings>),
    Anchor(Box<anchor::Settings>),
    Gateway(Box<mag::Settings>),
}

impl Role {
    /// Reads the given configuration, else the one for the running daemon's role, else the one for the role that ran
    /// before.
    fn of(given: Option<&Path>, running: Option<&Status<Tunnels>>) -> anyhow::Result<Role> {
        let state = |of_host: bool| match of_host {
            true => config::default_host_state(None),
            false => config::default_state(None),
        };
        let here = |of_host: bool| match running {
            Some(status) => (status.head.role == "host") == of_host,
            None => state(of_host).exists() || is_enabled(of_host),
        };
        let file = |of_host: bool| {
            let name = if of_host { "/etc/segue/host.toml" } else { "/etc/segue/anchor.toml" };
            Some(PathBuf::from(name)).filter(|file| file.exists())
        };
        // On a fresh machine, the only file present decides.
        let usual = |of_host: bool| {
            let fresh = !here(true) && !here(false) && file(!of_host).is_none();
            file(of_host).filter(|_| here(of_host) || fresh)
        };
        let found = given.map(Path::to_owned).or_else(|| usual(true)).or_else(|| usual(false));
        let Some(path) = found else {
            return if here(false) && !here(true) {
                Ok(Role::Anchor(Box::new(AnchorFile::default().validate()?)))
            } else {
                Ok(Role::Host(Box::default(), Box::new(HostFile::default().validate()?)))
            };
        };
        let text = segue_grammar::text(&path)?;
        let name = path.display().to_string();
        match kind_of(&path, &text).unwrap_or(FileKind::Host) {
            FileKind::Host => {
                let file: HostFile = segue_grammar::parse(&text, &name)?;
                let settings = file.clone().validate().with_context(|| name)?;
                Ok(Role::Host(Box::new(file), Box::new(settings)))
            }
            FileKind::Anchor => {
                let file: AnchorFile = segue_grammar::parse(&text, &name)?;
                Ok(Role::Anchor(Box::new(file.validate().with_context(|| name)?)))
            }
            FileKind::PmipMag => {
                let file: MagFile = segue_grammar::parse(&text, &name)?;
                Ok(Role::Gateway(Box::new(file.validate().with_context(|| name)?)))
            }
            FileKind::PmipLma
            | FileKind::MihFunction
            | FileKind::MihLinkSap
            | FileKind::Lab
            | FileKind::Scenario => {
                bail!("{name} describes no host, anchor or gateway: try segue check {name}")
            }
        }
    }

    fn control(&self) -> &Path {
        match self {
            Role::Host(_, settings) => &settings.common.control,
            Role::Anchor(settings) => &settings.common.control,
            Role::Gateway(settings) => &settings.common.control,
        }
    }
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let all = ["host", "anchor"].map(|role| control::default_path(role, None));
    let usual = || all.into_iter().chain(control::sockets()).find_map(|path| daemon(&path));
    let running = match (&args.control, &args.config) {
        (Some(socket), _) => daemon(socket),
        (None, None) => usual(),
        (None, Some(_)) => None,
    };
    let role = Role::of(args.config.as_deref(), running.as_ref())?;
    let asked = args.anchor.as_deref().map(|text| Locator::parse(text, SIGNAL_PORT));
    let asked = asked.transpose().context("--anchor")?;
    if asked.is_some() && !matches!(role, Role::Host(..)) {
        bail!("--anchor is for a host, and this is the configuration of an anchor or a gateway");
    }
    let running = match &args.control {
        Some(_) => running,
        None => running.or_else(|| daemon(role.control())),
    };
    let findings = examine(&role, asked, running.as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        for Finding { check, verdict, text } in &findings {
            let mark = match verdict {
                Verdict::Ok => "ok",
                Verdict::Todo => "to do",
                Verdict::Unknown => "?",
            };
            say!("{check:<14} {mark:<5}  {text}");
        }
    }
    let left = findings.iter().any(|finding| finding.verdict == Verdict::Todo);
    Ok(ExitCode::from(u8::from(left)))
}

/// The daemon that runs here, if one answers.
fn daemon(socket: &Path) -> Option<Status<Tunnels>> {
    tunnels::status(socket, u64::MAX).ok()
}

fn examine(
    role: &Role,
    asked: Option<Locator>,
    running: Option<&Status<Tunnels>>,
) -> anyhow::Result<Vec<Finding>> {
    let mut all = vec![system::kernel(), system::capabilities()];
    let interfaces = network::interfaces()?;
    // The eBPF programs take tunnel packets before the packet filter sees them.
    let before_filters = running.is_some_and(|status| status.body.datapath.starts_with("ebpf"));
    match role {
        Role::Host(file, settings) => {
            let enrolment = system::enrolment(file, settings);
            let enrolled = || enrolment.as_ref().ok().map(|seen| seen.anchor.clone());
            let named = asked.map(|locator| vec![locator]).or_else(enrolled).unwrap_or_default();
            all.push(system::datapath(settings.tunnel.datapath, running));
            all.push(network::port("port", settings.tunnel.port, running));
            let refused = running.and_then(|status| status.body.trouble.as_ref());
            let refused = refused.filter(|trouble| trouble.rejected);
            all.push(match (refused, &enrolment) {
                (Some(trouble), _) => todo("enrolment", &*trouble.why),
                (None, Ok(seen)) => system::credentials(seen),
                (None, Err(finding)) if running.is_some() => ok("enrolment", finding.running()),
                (None, Err(finding)) => finding.told(),
            });
            let (mut anchor, unknown) = network::resolve(&named, &interfaces, settings)?;
            all.extend(unknown);
            let translators = network::translators(&anchor, &interfaces, settings, running)?;
            all.extend(network::translation(&translators));
            anchor.extend(network::synthesized(&translators, &anchor));
            // The running daemon may know an address that the file does not list.
            let reached = running.and_then(|status| status.body.anchor.as_ref()?.parse().ok());
            anchor.extend(reached.filter(|at| !anchor.contains(at)));
            all.extend(network::reachability(&anchor, running));
            all.extend(running.and_then(network::without_path));
            all.extend(portal::portals(&interfaces, &anchor, running)?);
            let known = (&**settings, &*translators);
            all.extend(network::host_ways(&interfaces, &anchor, known, running));
            all.extend(network::others(&interfaces, settings));
            all.extend(firewall::at_host(settings.tunnel.port).filter(|_| !before_filters));
        }
        Role::Anchor(settings) => {
            all.push(system::datapath(settings.tunnel.datapath, running));
            all.push(network::port("port", settings.tunnel.port, running));
            all.push(network::port("signal port", settings.signal_port, running));
            let ports = [settings.signal_port, settings.tunnel.port];
            let ports = if before_filters { &ports[..1] } else { &ports[..] };
            all.extend(firewall::at_anchor(ports, &settings.tunnel.device));
            all.extend(network::anchor_ways(&interfaces, settings, running)?);
        }
        Role::Gateway(settings) => {
            all.push(system::datapath(settings.relay.datapath, running));
            all.extend(gateway::accesses(&settings.machine));
            all.push(gateway::anchor(&settings.machine));
        }
    }
    all.extend(running.iter().flat_map(|status| network::filtered(status)));
    all.extend(network::guard(running));
    all.extend(network::clamp(running));
    all.push(system::clock());
    all.push(system::leftovers());
    // Findings that require action come first.
    all.sort_by_key(|finding| finding.verdict != Verdict::Todo);
    Ok(all)
}
