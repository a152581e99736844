//! Proxy Mobile IPv6: the local mobility anchor and the mobile access gateway.

use std::io::{self, ErrorKind};

use segue_daemon::config::{LmaFile, MagFile};
use segue_daemon::pmip::{aaa, lma, mag, uplink};
use segue_daemon::settings::Radius;
use segue_daemon::{clamp, run};
use segue_datapath::relay;
use segue_grammar::Part;

use super::role::{Checks, Daemon, File, PLAIN, PRIVATE_TMP, Role, TUNNELS, read};
use crate::cmd::check::summary;
use crate::cmd::clean::kinds;
use crate::cmd::control::flows::to_gateways;
use crate::cmd::control::status::page::typed;
use crate::cmd::control::status::pmip;
use crate::cmd::doctor::around::Around;
use crate::cmd::doctor::finding::Finding;
use crate::cmd::doctor::{gateway, system};

/// A local mobility anchor.
pub(crate) static LMA: Role = Role {
    name: <lma::Daemon as run::Role>::NAME,
    file: Some(File {
        what: "A local mobility anchor (Proxy Mobile IPv6)",
        title: "a configuration for `segue pmip lma`",
        own: "gateways pool prefix_length max_bindings",
        foreign: "",
        keys: LmaFile::described,
        read: |source| read::<lma::Daemon, _>(source, LmaFile::validate, summary::lma),
    }),
    daemon: Some(Daemon {
        page: Some(|status, paper| typed::<lma::Words>(status, paper, pmip::anchor)),
        flows: Some(to_gateways),
        ..DAEMON
    }),
};

/// A mobile access gateway.
pub(crate) static MAG: Role = Role {
    name: <mag::Daemon as run::Role>::NAME,
    file: Some(File {
        what: "A mobile access gateway (Proxy Mobile IPv6)",
        title: "a configuration for `segue pmip mag`",
        own: "[[access]]",
        foreign: "gateways pool",
        keys: MagFile::described,
        read: |source| read::<mag::Daemon, _>(source, MagFile::validate, summary::mag),
    }),
    daemon: Some(Daemon {
        page: Some(|status, paper| typed::<mag::Words>(status, paper, pmip::gateway)),
        ..DAEMON
    }),
};

const DAEMON: Daemon = Daemon {
    keeps_state: true,
    may: &[TUNNELS, PRIVATE_TMP],
    calls: " bpf",
    rules: Some(&kinds::OF_RELAYS),
    tables: &[clamp::tables, relay::tables],
    ..PLAIN
};

/// Fails if a secret of the servers cannot be used. A user who may not read it cannot check that.
fn check_secrets(radius: Option<&Radius>) -> anyhow::Result<()> {
    radius.map_or(Ok(()), aaa::check_here).or_else(|error| {
        let kind = error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(ErrorKind::PermissionDenied) { Ok(()) } else { Err(error) }
    })
}

impl Checks for lma::Settings {
    fn check_secrets(&self) -> anyhow::Result<()> {
        check_secrets(self.radius.as_ref())
    }

    fn examine(&self, around: &Around) -> anyhow::Result<Vec<Finding>> {
        let mut all = vec![system::datapath(self.relay.datapath, None)];
        all.extend(gateway::anchor_addresses(&self.machine));
        all.extend(around.answers());
        Ok(all)
    }
}

impl Checks for mag::Settings {
    fn check_here(&self) -> anyhow::Result<()> {
        uplink::check_here(&self.machine)
    }

    fn check_secrets(&self) -> anyhow::Result<()> {
        check_secrets(self.radius.as_ref())
    }

    fn examine(&self, around: &Around) -> anyhow::Result<Vec<Finding>> {
        let mut all = vec![system::datapath(self.relay.datapath, None)];
        all.extend(gateway::accesses(&self.machine));
        all.push(gateway::anchor(&self.machine));
        all.extend(around.answers());
        Ok(all)
    }
}
