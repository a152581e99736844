//! `segue doctor`

pub(crate) mod around;
pub(crate) mod finding;
pub(crate) mod firewall;
pub(crate) mod gateway;
pub(crate) mod network;
pub(crate) mod portal;
pub(crate) mod system;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::control::{self, Any, tunnels};
use segue_daemon::locator::Locator;
use segue_daemon::settings::Choice;
use segue_text::say;
use segue_wire::SIGNAL_PORT;

use super::clean;
use super::roles::{self, Content, Role, kind_of};
use around::Around;
use finding::{Finding, Verdict, ok, todo, told, unknown};

/// Check whether this machine can run a daemon, and say what to do if not.
///
/// Each line says ok, what to do, or what could not be determined, which is more without root. Nothing is changed. The
/// exit status is 1 if there is something to do.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration of the daemon (default: the file in /etc/segue whose daemon runs, ran before or is started by the
    /// system, else the only one there, else a host's defaults)
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

/// The roles that are looked for. Daemons without state of their own accompany others, and are examined if named.
fn usual_roles() -> impl Iterator<Item = &'static Role> {
    roles::daemons().filter(|(_, daemon)| daemon.keeps_state).map(|(role, _)| role)
}

/// Whether the system starts the daemon of a role.
fn is_enabled(role: &Role) -> bool {
    let wants = "/etc/systemd/system/multi-user.target.wants";
    Path::new(&format!("{wants}/segue-{}.service", role.name)).exists()
}

/// Whether a daemon of a role ran here.
fn has_state(role: &Role) -> bool {
    Path::new(&format!("/var/lib/segue/{}.db", role.name)).exists()
}

/// The daemon at a control socket.
fn daemon_at(path: &Path) -> Around {
    let find = |is: &dyn Fn(&str) -> bool| roles::installed().map(|r| r.name).find(|name| is(name));
    let none = Around { socket: path.to_owned(), ..Around::default() };
    match control::status::<Any>(path, u64::MAX) {
        Ok(status) => Around {
            role: find(&|role| role == status.head.role),
            status: tunnels::status(path, u64::MAX).ok(),
            ..none
        },
        Err(error) if is_denied(&error) => {
            // In a directory that this user may not enter, there may be no such socket.
            let name = path.file_stem().filter(|_| path.symlink_metadata().is_ok());
            let name = name.unwrap_or_default().to_string_lossy();
            let named = |role: &str| name == role || name.starts_with(&format!("{role}-"));
            Around { role: find(&named), closed: Some(error.to_string()), ..none }
        }
        Err(_) => none,
    }
}

/// The first daemon that answers at a default control socket, else the first whose socket is closed to this user.
fn usual_daemon() -> Around {
    let all = usual_roles().map(|role| control::default_path(role.name, None));
    let mut closed = Around::default();
    for path in all.chain(control::sockets()) {
        let found = daemon_at(&path);
        let role = found.role.filter(|name| usual_roles().any(|role| role.name == *name));
        match (role, &found.closed) {
            (Some(_), None) => return found,
            (Some(_), Some(_)) if closed.role.is_none() => closed = found,
            _ => {}
        }
    }
    closed
}

fn is_denied(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
}

/// The current or planned role of this machine, if known, and its configuration. That is missing if the daemon runs
/// with a file that is not known.
#[derive(Default)]
struct Subject {
    role: Option<&'static Role>,
    content: Option<Content>,
}

impl Subject {
    /// Reads the given configuration, else the one for the running daemon's role, else the one for the role that ran
    /// before. Also returns a finding about the files.
    fn of(
        given: Option<&Path>,
        running: Option<&str>,
    ) -> anyhow::Result<(Subject, Option<Finding>)> {
        const CHECK: &str = "configuration";
        if let Some(path) = given {
            let text = segue_grammar::text(path)?;
            let role = kind_of(path, &text).unwrap_or_else(roles::guess).0;
            return Ok((Subject::read(role, path, &text)?, None));
        }
        let (mut with_file, mut hidden) = (Vec::new(), None);
        for role in usual_roles() {
            match super::existing(super::default_file(role.name)) {
                Ok(found) => with_file.extend(found.map(|_| role)),
                Err(error) => hidden = Some(unknown(CHECK, told(error))),
            }
        }
        let by_name = |name| roles::installed().find(|role| role.name == name);
        let here = || usual_roles().find(|role| has_state(role) || is_enabled(role));
        let role = match (running.and_then(by_name).or_else(here), &with_file[..]) {
            (Some(role), _) | (None, &[role]) => role,
            (None, []) if hidden.is_none() => roles::guess().0,
            (None, _) => {
                let text = "no daemon runs here; segue doctor -c FILE judges a configuration";
                return Ok((Subject::default(), hidden.or_else(|| Some(unknown(CHECK, text)))));
            }
        };
        let Ok(Some(path)) = super::existing(super::default_file(role.name)) else {
            return Ok((Subject { role: Some(role), content: role.defaults().ok() }, hidden));
        };
        match segue_grammar::text(&path).and_then(|text| Subject::read(role, &path, &text)) {
            Ok(subject) => Ok((subject, hidden)),
            // The daemon may run with another file.
            Err(error) if running.is_some() => {
                let text = format!("{}; name the running daemon's file with -c FILE", told(error));
                let subject = Subject { role: Some(role), content: role.defaults().ok() };
                Ok((subject, Some(unknown(CHECK, text))))
            }
            Err(error) => Err(error),
        }
    }

    fn read(role: &'static Role, path: &Path, text: &str) -> anyhow::Result<Subject> {
        if role.daemon.is_none() {
            let name = path.display();
            bail!("{name} configures no daemon: try segue check {name}");
        }
        Ok(Subject { role: Some(role), content: Some(role.read((path, text))?) })
    }

    /// The configured control socket, else the default one of the role.
    fn control(&self) -> Option<PathBuf> {
        let common = self.content.as_ref().and_then(|content| content.common.as_ref());
        let configured = common.map(|common| common.control.clone());
        configured.or_else(|| Some(control::default_path(self.role?.name, None)))
    }
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let around = match (&args.control, &args.config) {
        (Some(socket), _) => daemon_at(socket),
        (None, None) => usual_daemon(),
        (None, Some(_)) => Around::default(),
    };
    let (subject, about_files) = Subject::of(args.config.as_deref(), around.role)?;
    let anchor = args.anchor.as_deref().map(|text| Locator::parse(text, SIGNAL_PORT));
    let anchor = anchor.transpose().context("--anchor")?;
    if anchor.is_some() && subject.role.is_none_or(|role| role.name != roles::HOST.name) {
        bail!("--anchor is for a host: name its configuration with -c FILE");
    }
    let around = match (&args.control, subject.control()) {
        (None, Some(socket)) if around.role.is_none() => daemon_at(&socket),
        _ => around,
    };
    let around = Around { anchor, interfaces: network::interfaces()?, ..around };
    let mut findings = examine(&subject, &around)?;
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

fn examine(subject: &Subject, around: &Around) -> anyhow::Result<Vec<Finding>> {
    let running = around.status.as_ref();
    let mut all = vec![system::kernel(), system::capabilities()];
    match &subject.content {
        Some(content) => all.extend(content.settings.examine(around)?),
        None => {
            all.push(system::datapath(Choice::Auto, running));
            all.extend(around.answers().filter(|_| subject.role.is_some()));
        }
    }
    all.extend(around.closed.iter().map(|why| unknown("daemon", why)));
    all.extend(running.iter().flat_map(|status| network::filtered(status)));
    all.extend(network::guard(running));
    all.extend(network::clamp(running));
    all.push(system::clock());
    all.push(leftovers());
    Ok(all)
}

/// Reports what `segue clean` would remove.
fn leftovers() -> Finding {
    match clean::leftovers() {
        Ok(found) if found.is_empty() => ok("leftovers", "none"),
        Ok(found) => todo("leftovers", format!("{}: run segue clean", found.join(", "))),
        Err(error) => unknown("leftovers", told(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_roles_are_read_and_those_of_networks_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Subject::of(Some(&path), None).map(|(subject, _)| subject)
        };
        let lma = "address = \"fd00:1::1\"\npool = \"fd00:77::/48\"\ngateways = [\"fd00:2::1\"]\n";
        for (role, text) in [("host", ""), ("anchor", ""), ("pmip-lma", lma), ("mih-function", "")]
        {
            let subject = of(&format!("{role}.toml"), text).unwrap();
            assert_eq!(subject.role.unwrap().name, role);
            assert!(subject.content.is_some(), "{role}");
        }
        for (name, text, part) in [
            ("pmip-lma.toml", "", "address is missing"),
            ("pmip-mag.toml", "", "anchor is missing"),
            ("lab.toml", "", "configures no daemon"),
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
        let none = daemon_at(Path::new("/nonexistent/host.sock"));
        assert!(none.role.is_none() && none.closed.is_none());
        let said = none.answers().unwrap();
        assert_eq!(said, ok("daemon", "none answers at /nonexistent/host.sock"));
    }
}
