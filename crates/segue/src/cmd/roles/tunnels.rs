//! Tunnels of a host itself: the mobile host and its anchor.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use segue_daemon::config::{AnchorFile, HostFile};
use segue_daemon::control::Tunnels;
use segue_daemon::{anchor, clamp, host, nat, past, run};
use segue_grammar::Part;

use super::role::{Checks, Daemon, File, PLAIN, PRIVATE_TMP, Role, TUNNELS, read, read_with};
use crate::cmd::check::summary;
use crate::cmd::clean::kinds;
use crate::cmd::control::status::page::typed;
use crate::cmd::control::status::tunnels;
use crate::cmd::doctor::around::Around;
use crate::cmd::doctor::finding::{Finding, ok, todo};
use crate::cmd::doctor::{firewall, network, portal, system};
use crate::cmd::host::check_private;

/// A mobile host.
pub(crate) static HOST: Role = Role {
    name: <host::Daemon as run::Role>::NAME,
    file: Some(File {
        what: "A mobile host",
        title: "a host's configuration",
        own: "[keepalive] [steering] join_file routes fail_closed",
        foreign: "gateways pool [[node]] [[link]] [population]",
        keys: HostFile::described,
        read: |source| {
            read_with::<host::Daemon, _>(
                source,
                HostFile::validate,
                summary::host,
                |file, settings| Box::new(OfHost { join_file: file.own.join_file, settings }),
            )
        },
    }),
    daemon: Some(Daemon {
        files: &[("/etc/segue/join", "The line with which the host joins its anchor, once.")],
        rules: Some(&kinds::OF_HOSTS),
        tables: &[clamp::tables, past::tables],
        ..DAEMON
    }),
};

/// An anchor.
pub(super) static ANCHOR: Role = Role {
    name: <anchor::Daemon as run::Role>::NAME,
    file: Some(File {
        what: "An anchor",
        title: "an anchor's configuration",
        own: "pool_v4 pool_v6 signal_port addresses max_paths nat expiry stamp certificate_lifetime \
              reach_hosts reach_anchor reach_routed allow_upmt",
        foreign: "gateways pool [[node]] [[link]] [population]",
        keys: AnchorFile::described,
        read: |source| read::<anchor::Daemon, _>(source, AnchorFile::validate, summary::anchor),
    }),
    daemon: Some(Daemon { tables: &[clamp::tables, nat::tables, past::tables], ..DAEMON }),
};

const DAEMON: Daemon = Daemon {
    keeps_state: true,
    may: &[TUNNELS, REALTIME, PRIVATE_TMP],
    calls: " bpf",
    page: Some(|status, paper| typed::<Tunnels>(status, paper, tunnels::lines)),
    ..PLAIN
};

/// Lines of a unit that allow the key `realtime`.
const REALTIME: &str = "\
# Lets the daemon run before ordinary threads (realtime) without a further capability.
LimitRTPRIO=10
LimitNICE=-10";

/// A host's settings, and where its join line is until it is enrolled.
#[derive(Debug)]
struct OfHost {
    join_file: Option<PathBuf>,
    settings: host::Settings,
}

impl Checks for OfHost {
    fn check_here(&self) -> anyhow::Result<()> {
        let found = self.join_file.as_ref().and_then(|at| Some((at, at.metadata().ok()?)));
        found.map_or(Ok(()), |(at, found)| check_private(at, found.permissions().mode()))
    }

    fn examine(&self, around: &Around) -> anyhow::Result<Vec<Finding>> {
        let OfHost { join_file, settings } = self;
        let (running, interfaces) = (around.status.as_ref(), &around.interfaces);
        let enrolment = system::enrolment(join_file.as_deref(), settings);
        let enrolled = || enrolment.as_ref().ok().map(|seen| seen.anchor.clone());
        let asked = around.anchor.clone().map(|locator| vec![locator]);
        let named = asked.or_else(enrolled).unwrap_or_default();
        let mut all = vec![
            system::datapath(settings.tunnel.datapath, running),
            network::port("port", settings.tunnel.port, running, around.closed.as_deref()),
        ];
        let refused = running.and_then(|status| status.body.trouble.as_ref());
        let refused = refused.filter(|trouble| trouble.rejected);
        all.push(match (refused, &enrolment) {
            (Some(trouble), _) => todo("enrolment", &*trouble.why),
            (None, Ok(seen)) => system::credentials(seen),
            (None, Err(_)) if running.is_some() => ok("enrolment", "the running daemon has it"),
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
        all.extend(filter.filter(|_| !around.takes_packets_before_filters()));
        Ok(all)
    }
}

impl Checks for anchor::Settings {
    fn examine(&self, around: &Around) -> anyhow::Result<Vec<Finding>> {
        let (running, closed) = (around.status.as_ref(), around.closed.as_deref());
        let mut all = vec![
            system::datapath(self.tunnel.datapath, running),
            network::port("port", self.tunnel.port, running, closed),
            network::port("signal port", self.signal_port, running, closed),
        ];
        let ports = [self.signal_port, self.tunnel.port];
        let ports = if around.takes_packets_before_filters() { &ports[..1] } else { &ports[..] };
        all.extend(firewall::at_anchor(ports, &self.tunnel.device));
        all.extend(network::anchor_ways(&around.interfaces, self, running)?);
        Ok(all)
    }
}
