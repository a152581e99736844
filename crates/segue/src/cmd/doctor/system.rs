//! Checks the machine itself: kernel, capabilities, packet path, credentials, clock, and leftovers
//! of a crash.

use std::path::Path;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use segue_daemon::control::{Status, Tunnels};
use segue_daemon::host::{self, Membership};
use segue_daemon::identity::Join;
use segue_daemon::packets::MARK;
use segue_daemon::settings::Choice;
use segue_datapath::ebpf::Ebpf;
use segue_datapath::{Role, Setup};
use segue_linux::clock;

use super::finding::{Finding, ok, todo, told, unknown};

/// The capabilities that a daemon needs: number, name, and whether only eBPF needs it.
const CAPABILITIES: [(u32, &str, bool); 4] = [
    (12, "CAP_NET_ADMIN", false),
    (13, "CAP_NET_RAW", false),
    (38, "CAP_PERFMON", true),
    (39, "CAP_BPF", true),
];

/// Checks the kernel's version.
pub(crate) fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 1) => {
            todo("kernel", format!("Linux {release} is too old: install 6.1 or newer"))
        }
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 3) => ok(
            "kernel",
            format!("Linux {release}; before 6.3 eBPF cannot carry IPv6 over IPv4 or the reverse"),
        ),
        (Some(Ok(_)), Some(Ok(_))) => ok("kernel", format!("Linux {release}")),
        _ => unknown("kernel", format!("version {release:?} makes no sense")),
    }
}

fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Checks that the user has the capabilities to run a daemon.
pub(crate) fn capabilities() -> Finding {
    let mask = effective();
    let missing: Vec<_> = CAPABILITIES.iter().filter(|(n, ..)| mask & 1 << n == 0).collect();
    let names = missing.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ");
    match missing.iter().all(|(.., only_ebpf)| *only_ebpf) {
        _ if missing.is_empty() => ok("capabilities", "all four"),
        true => ok("capabilities", format!("{names} missing: user space is left, eBPF is not")),
        false if nix::unistd::geteuid().is_root() => todo(
            "capabilities",
            format!("root lacks {names}: give them to this container or service"),
        ),
        false => unknown(
            "capabilities",
            "not root here; a daemon needs root, or its service's capabilities",
        ),
    }
}

/// The datapath that a daemon would choose, tried in a separate network namespace.
pub(crate) fn datapath(choice: Choice, running: Option<&Status<Tunnels>>) -> Finding {
    if let Some(status) = running {
        return ok("datapath", format!("the running daemon has {}", status.body.datapath));
    }
    if !Path::new("/dev/net/tun").exists() {
        return todo(
            "datapath",
            "/dev/net/tun is missing: run modprobe tun, or give it to this container",
        );
    }
    if choice == Choice::User {
        return ok("datapath", "user space, as configured");
    }
    match (try_ebpf(), choice) {
        (Ok(()), _) => ok("datapath", "eBPF"),
        (Err(Refused::Untried(why)), _) => {
            unknown("datapath", format!("only root can try eBPF here ({why})"))
        }
        (Err(Refused::Kernel(why)), Choice::Ebpf) => {
            todo("datapath", format!("no eBPF ({why}): mend that, or set datapath = \"auto\""))
        }
        (Err(Refused::Kernel(why)), _) => {
            ok("datapath", format!("user space, for eBPF fails: {why}"))
        }
    }
}

enum Refused {
    Untried(String),
    Kernel(String),
}

/// Tries to load the eBPF programs in a private namespace.
fn try_ebpf() -> Result<(), Refused> {
    let attempt = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| Refused::Untried(error.to_string()))?;
        let setup = Setup {
            tun_name: "segue0".into(),
            tun_mtu: 1_436,
            port: segue_wire::TUNNEL_PORT,
            role: Role::Host,
            max_paths: segue_wire::MAX_PATHS as u32,
            max_flows: 65_536,
            mark: MARK,
        };
        let opened = Ebpf::new(&setup, Arc::new(|_| ()));
        opened.map(drop).map_err(|error| Refused::Kernel(told(error)))
    });
    attempt.join().unwrap_or_else(|_| Err(Refused::Untried("the attempt failed".into())))
}

/// Why a host's enrolment is unknown.
pub(crate) struct NoEnrolment {
    text: String,
    readable: bool,
}

impl NoEnrolment {
    /// The finding for a host whose daemon does not run.
    pub(crate) fn told(&self) -> Finding {
        if self.readable { todo("enrolment", &self.text) } else { unknown("enrolment", &self.text) }
    }
}

/// Reads the anchor from the host's state or its join line.
pub(crate) fn enrolment(
    join_file: Option<&Path>,
    settings: &host::Settings,
) -> Result<Membership, NoEnrolment> {
    let state = settings.state.display();
    if let Err(error) = settings.state.try_exists() {
        let text = format!("only root can read {state}: {}", told(error));
        return Err(NoEnrolment { text, readable: false });
    }
    match host::membership(&settings.state) {
        Ok(Some(found)) => return Ok(found),
        Err(error) => {
            let readable = nix::unistd::geteuid().is_root();
            return Err(NoEnrolment { text: told(error), readable });
        }
        Ok(None) => {}
    }
    let Some(path) = join_file else {
        let text = format!(
            "none in {state}: run segue enroll NAME at the anchor, and segue host --join-file FILE here"
        );
        return Err(NoEnrolment { text, readable: true });
    };
    let line = std::fs::read_to_string(path).map_err(anyhow::Error::from);
    match line.and_then(|line| line.trim().parse::<Join>()) {
        Ok(join) => Ok(Membership { anchor: join.anchor, expires_s: None, rejected: None }),
        Err(error) => Err(NoEnrolment {
            text: format!(
                "none in {state}, and the join line in {}: {}",
                path.display(),
                told(error)
            ),
            readable: true,
        }),
    }
}

/// Checks that the host's certificate is valid.
pub(crate) fn credentials(seen: &Membership) -> Finding {
    let anchors: Vec<String> = seen.anchor.iter().map(ToString::to_string).collect();
    let anchors = anchors.join(", ");
    if let Some(advice) = &seen.rejected {
        return todo("enrolment", advice);
    }
    match seen
        .expires_s
        .map(|end| (end.saturating_sub(clock::realtime_s()) / 86_400, end <= clock::realtime_s()))
    {
        None => ok("enrolment", format!("a join line for {anchors}")),
        Some((_, true)) => todo(
            "enrolment",
            "the certificate has expired: run segue enroll NAME at the anchor, and start with its line; \
             or the clock is wrong",
        ),
        Some((days, false)) => {
            ok("enrolment", format!("at {anchors}; the certificate is good for {days} days"))
        }
    }
}

/// The finding for an anchor that has a pool of a family but no route for it.
pub(crate) fn no_way_out(v6: bool) -> Finding {
    const IPV6_OFF: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
    // The file is missing if the kernel has no IPv6.
    let is_off = || std::fs::read_to_string(IPV6_OFF).map_or(true, |off| off.trim() != "0");
    if v6 && is_off() {
        return todo(
            "way out",
            "IPv6 is switched off on this machine, so that hosts reach nothing over it: sysctl \
             net.ipv6.conf.all.disable_ipv6=0, or set pool_v6 = \"\"",
        );
    }
    let (family, key) = if v6 { ("IPv6", "pool_v6") } else { ("IPv4", "pool_v4") };
    todo(
        "way out",
        format!("{family}: this machine has no default route: add one, or set {key} = \"\""),
    )
}

/// Checks that the system's date is plausible.
pub(crate) fn clock() -> Finding {
    // From 2026, since no version of the program is older, to 2100.
    const PLAUSIBLE: std::ops::Range<u64> = 1_767_225_600..4_102_444_800;
    let year = 1970 + clock::realtime_s() / 31_556_952;
    if !PLAUSIBLE.contains(&clock::realtime_s()) {
        return todo("clock", format!("it says {year}: set it, certificates are dated by it"));
    }
    match clock::realtime_quality().synchronised {
        true => ok("clock", format!("synchronised, {year}")),
        false => {
            ok("clock", format!("plausible ({year}), though nothing says that it is synchronised"))
        }
    }
}
