//! The Proxy Mobile IPv6 domain of `examples/pmip`: one anchor, four gateways on two nodes, on each node one IEEE
//! 802.21 function and two service access points, FreeRADIUS, a correspondent, and a stock host with two radios.

use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use segue_daemon::control::{self, EventRecord, Vocabulary};
use segue_daemon::pmip::{lma, mag};
use segue_daemon::settings::Choice;
use segue_lab::Lab;
use segue_linux::link;
use segue_linux::netns::Netns;

use crate::stage::{Daemon, choice_name, own_program};
use crate::traffic::Ends;

/// The correspondent's address.
pub const CORRESPONDENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xc, 0, 0, 0, 0, 0, 2);
/// The FreeRADIUS program, as Debian and its derivatives install it.
const FREERADIUS: &str = "/usr/sbin/freeradius";
/// Secret that FreeRADIUS shares with the gateways of this short-lived domain.
const SECRET: &str = "a secret of 26 characters";
/// The radios that FreeRADIUS knows, and their owners.
const HOSTS: [(&str, &str); 3] = [
    ("02-5E-67-01-00-00", "alice@example.org"),
    ("02-5E-67-01-00-01", "alice@example.org"),
    ("02-5E-67-01-00-02", "bob@example.org"),
];
/// How long any single wait may take.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../examples/pmip/", $name))
    };
}

/// An access network.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Name of the access, its cell, its interface, and its gateway's instance.
    pub name: &'static str,
    /// The node that runs its gateway.
    pub node: &'static str,
    /// The gateway's address towards the anchor.
    pub proxy_coa: &'static str,
    /// The host's radio that attaches to it.
    pub radio: Radio,
    /// Name of its link in IEEE 802.21.
    link: &'static str,
    config: &'static str,
}

/// A radio of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Radio {
    /// Its device.
    pub name: &'static str,
    /// Its link-layer address.
    pub llid: &'static str,
}

/// The radio for Wi-Fi.
pub const WLAN: Radio = Radio { name: "wlan", llid: "02:5e:67:01:00:00" };
/// The radio for cellular access.
pub const WWAN: Radio = Radio { name: "wwan", llid: "02:5e:67:01:00:01" };

/// Wi-Fi at the first node.
pub const WLAN1: Access = Access {
    name: "wlan1",
    node: "left",
    proxy_coa: "fd00:2::2",
    radio: WLAN,
    link: "02:5e:67:02:00:00",
    config: example!("wlan1.toml"),
};
/// Cellular access at the first node.
pub const LTE1: Access = Access {
    name: "lte1",
    node: "left",
    proxy_coa: "fd00:2::3",
    radio: WWAN,
    link: "02:5e:67:02:00:01",
    config: example!("lte1.toml"),
};
/// Wi-Fi at the second node.
pub const WLAN2: Access = Access {
    name: "wlan2",
    node: "right",
    proxy_coa: "fd00:3::2",
    radio: WLAN,
    link: "02:5e:67:02:00:02",
    config: example!("wlan2.toml"),
};
/// Cellular access at the second node.
pub const LTE2: Access = Access {
    name: "lte2",
    node: "right",
    proxy_coa: "fd00:3::3",
    radio: WWAN,
    link: "02:5e:67:02:00:03",
    config: example!("lte2.toml"),
};

/// The components of a domain.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Prefix of the namespaces' names; lower-case letters.
    pub tag: &'static str,
    /// The accesses, each with a gateway.
    pub accesses: &'static [Access],
    /// Run IEEE 802.21 functions, which report link events to the gateways and the anchor; without them, gateways
    /// observe their links directly.
    pub mih: bool,
    /// Let FreeRADIUS identify hosts, if it is installed; otherwise the gateways are configured with them.
    pub radius: bool,
    /// Emulate rates and delays of the accesses; without this they are unlimited and add no delay.
    pub paced: bool,
    /// The datapath of the anchor and the gateways.
    pub datapath: Choice,
}

/// Called repeatedly during a wait, which ends with its error: for instance, because the user wants to stop.
pub type Check<'a> = &'a dyn Fn() -> anyhow::Result<()>;

/// The running domain; dropping it stops the daemons and deletes the network.
pub struct Domain {
    daemons: Vec<Daemon>,
    lab: Lab,
    files: PathBuf,
    accesses: &'static [Access],
}

impl Domain {
    /// Builds the network and starts the daemons, with their files in the directory `files`. No radio is attached yet.
    ///
    /// # Errors
    /// The process is not root, or a daemon does not start.
    pub fn start(plan: &Plan, files: &Path, check: Check<'_>) -> anyhow::Result<Domain> {
        let network = segue_lab::file::parse(&network(plan.paced), "lab.toml")?;
        let lab = network.build(plan.tag).context("the domain's network cannot be built")?;
        let (files, accesses) = (files.to_owned(), plan.accesses);
        let mut domain = Domain { daemons: Vec::new(), lab, files, accesses };
        if plan.mih {
            domain.start_mih()?;
        }
        let radius = plan.radius && Path::new(FREERADIUS).exists();
        if radius {
            domain.start_radius(check)?;
        }
        let hears = "\n[mih]\nfunctions = [\"fd00:2::2\", \"fd00:3::2\"]\n";
        let anchor = example!("lma.toml").to_owned() + if plan.mih { hears } else { "" };
        domain.pmip(plan, ("lma", "lma", "lma"), &anchor)?;
        for access in accesses {
            let told = format!("attach = \"mih\"\nlink = \"{}\"\n", access.link);
            let mut config = match access.config.split_once("proxy_coa") {
                Some((before, after)) if plan.mih => format!("{before}{told}proxy_coa{after}"),
                _ => access.config.to_owned(),
            };
            if let Some((without_hosts, _)) = config.split_once("# The radios").filter(|_| radius) {
                config = format!("{without_hosts}{}", domain.asks(access));
            }
            domain.pmip(plan, ("mag", access.name, access.node), &config)?;
        }
        domain.wait(check, "the anchor", |domain| Ok(domain.anchor().is_ok()))?;
        for access in accesses {
            domain.wait(check, "a gateway", |domain| Ok(domain.gateway(access).is_ok()))?;
        }
        Ok(domain)
    }

    /// Starts a function on each node, and a service access point for each access.
    fn start_mih(&mut self) -> anyhow::Result<()> {
        let socket = self.lab.announcements().context("the network has no radios")?.to_owned();
        for (node, function) in [("left", "function-left"), ("right", "function-right")] {
            let config = format!("name = \"mihf@{node}\"\npeers = [\"fd00:1::/64\"]\n");
            self.daemon(function, node, &["mih", "function"], &config)?;
        }
        for access in self.accesses {
            let name = access.name;
            let technology = if access.radio == WLAN { "wlan" } else { "e-utran" };
            let config = format!(
                "name = \"link-sap-{name}@{}\"\n\n[[link]]\ninterface = \"{name}\"\naddress = \"{}\"\n\
                 technology = \"{technology}\"\nsource = \"lab\"\nsocket = {socket:?}\n",
                access.node, access.link
            );
            let sap = match name {
                "wlan1" => "sap-wlan1",
                "lte1" => "sap-lte1",
                "wlan2" => "sap-wlan2",
                _ => "sap-lte2",
            };
            self.daemon(sap, access.node, &["mih", "link-sap"], &config)?;
        }
        Ok(())
    }

    /// Starts FreeRADIUS, configured with the radios of the network.
    fn start_radius(&mut self, check: Check<'_>) -> anyhow::Result<()> {
        let directory = self.files.join("freeradius");
        std::fs::create_dir_all(&directory)?;
        let words = [
            ("@DIR@", directory.display().to_string()),
            ("@SECRET@", SECRET.to_owned()),
            ("@PORT@", "1812".to_owned()),
            ("@ACCOUNTING@", "1813".to_owned()),
        ];
        let fill = |text: String, (word, value): &(&str, String)| text.replace(word, value);
        let config = words.iter().fold(example!("radiusd.conf").to_owned(), fill);
        std::fs::write(directory.join("radiusd.conf"), config)?;
        std::fs::write(directory.join("dictionary"), "")?;
        let users = HOSTS.map(|(radio, name)| {
            format!(
                "{radio} Cleartext-Password := \"{radio}\"\n  Mobile-Node-Identifier = \"{name}\", \
                 Message-Authenticator = 0x00\n"
            )
        });
        std::fs::write(directory.join("users"), users.concat())?;
        let secret = self.secret();
        std::fs::write(&secret, SECRET)?;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
        let mut command = self.node("core")?.command(FREERADIUS);
        command.arg("-X").arg("-d").arg(&directory);
        let log = self.file("freeradius", "log");
        self.daemons.push(Daemon::spawn("freeradius", command, log.clone(), None)?);
        self.wait(check, "FreeRADIUS", |_| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(said.contains("Ready to process requests"))
        })
    }

    fn secret(&self) -> PathBuf {
        self.files.join("freeradius.secret")
    }

    /// The `[radius]` table for the gateway of an access.
    fn asks(&self, access: &Access) -> String {
        let server = if access.node == "left" { "fd00:2::1" } else { "fd00:3::1" };
        format!(
            "[radius]\nrequire_message_authenticator = true\n\n[[radius.server]]\naddress = \"{server}\"\n\
             secret_file = {:?}\naccounting = true\n",
            self.secret()
        )
    }

    /// Returns true if FreeRADIUS is running and identifies the hosts.
    #[must_use]
    pub fn has_radius(&self) -> bool {
        self.daemons.iter().any(|daemon| daemon.name() == "freeradius")
    }

    fn pmip(
        &mut self,
        plan: &Plan,
        (role, name, node): (&str, &'static str, &str),
        config: &str,
    ) -> anyhow::Result<()> {
        let state = self.file(name, "db");
        let _ = std::fs::remove_file(&state);
        let state = state.to_string_lossy().into_owned();
        let datapath = choice_name(plan.datapath);
        let verb = ["pmip", role, "--datapath", datapath, "--state", &state];
        self.daemon(name, node, &verb, config)
    }

    fn daemon(
        &mut self,
        name: &'static str,
        node: &str,
        verb: &[&str],
        config: &str,
    ) -> anyhow::Result<()> {
        let file = self.file(name, "toml");
        std::fs::write(&file, config)?;
        let mut command: Command = self.node(node)?.command(own_program()?);
        command.args(verb).arg("-c").arg(file).arg("--control").arg(self.socket(name));
        self.daemons.push(Daemon::spawn(name, command, self.file(name, "log"), None)?);
        Ok(())
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.files.join(format!("{name}.{extension}"))
    }

    /// The path of a daemon's control socket.
    #[must_use]
    pub fn socket(&self, name: &str) -> PathBuf {
        // In `/tmp`: the path of a socket may have at most 107 bytes.
        let id = std::process::id();
        PathBuf::from(format!("/tmp/segue-domain-{id}-{name}.sock"))
    }

    /// The network.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The daemons' names and processes.
    pub fn processes(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.daemons.iter().map(|daemon| (daemon.name(), daemon.process()))
    }

    /// The node with this name.
    ///
    /// # Errors
    /// No node has this name.
    pub fn node(&self, name: &str) -> anyhow::Result<&Netns> {
        self.lab.node(name)
    }

    /// The anchor's status.
    ///
    /// # Errors
    /// The anchor does not answer.
    pub fn anchor(&self) -> anyhow::Result<lma::LmaStatus> {
        Ok(control::status::<lma::Words>(&self.socket("lma"), u64::MAX)?.body)
    }

    /// The status of an access's gateway.
    ///
    /// # Errors
    /// The gateway does not answer.
    pub fn gateway(&self, access: &Access) -> anyhow::Result<mag::MagStatus> {
        Ok(control::status::<mag::Words>(&self.socket(access.name), u64::MAX)?.body)
    }

    /// The events that a daemon has in memory.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn events<V: Vocabulary>(&self, name: &str) -> anyhow::Result<Vec<EventRecord<V>>> {
        Ok(control::status::<V>(&self.socket(name), 0)?.events)
    }

    /// Checks that all daemons are running.
    ///
    /// # Errors
    /// A daemon has ended; the error shows the end of its log.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.daemons.iter_mut().try_for_each(Daemon::check_alive)
    }

    /// Waits until `holds` returns true.
    ///
    /// # Errors
    /// It does not within 20 s, a daemon has ended, or `check` fails.
    pub fn wait(
        &mut self,
        check: Check<'_>,
        what: &str,
        holds: impl Fn(&Domain) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            check()?;
            self.check_alive()?;
            if holds(self)? {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("not within {} s: {what}", PATIENCE.as_secs())
    }

    /// Attaches the host's radio to an access, and waits until it is registered and has its address.
    ///
    /// # Errors
    /// The radio cannot be attached, or as [`wait`](Self::wait).
    pub fn attach(&mut self, check: Check<'_>, access: &Access) -> anyhow::Result<()> {
        self.lab.attach(&format!("host:{}", access.radio.name), access.name)?;
        self.await_host(check, access)
    }

    /// Waits until the host is registered at an access and has its address.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn await_host(&mut self, check: Check<'_>, access: &Access) -> anyhow::Result<()> {
        self.wait(check, "a binding at the anchor", |domain| {
            let bindings = domain.anchor()?.bindings;
            let mut own = bindings.iter().filter(|binding| binding.llid == access.radio.llid);
            Ok(own.any(|at| at.proxy_coa == access.proxy_coa && at.state == "active"))
        })?;
        self.wait(check, "the host's address", |domain| Ok(domain.address(access.radio).is_ok()))
    }

    /// Removes the host's radio from its cell.
    ///
    /// # Errors
    /// The radio is in no cell.
    pub fn detach(&self, radio: Radio) -> anyhow::Result<()> {
        self.lab.detach(&format!("host:{}", radio.name), None)
    }

    /// Waits until the gateways of two accesses carry each other's prefixes; from then on, any flow can use either
    /// access.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn await_mobility(&mut self, check: Check<'_>, both: [&Access; 2]) -> anyhow::Result<()> {
        self.wait(check, "each gateway knows the other's prefix", |domain| {
            let mut told = both.into_iter().map(|access| {
                let hosts = domain.gateway(access)?.hosts;
                Ok(hosts.first().is_some_and(|host| !host.off_link.is_empty()))
            });
            told.try_fold(true, |all, one: anyhow::Result<bool>| Ok(all && one?))
        })
    }

    /// The address that the host has formed from the prefix of a radio.
    ///
    /// # Errors
    /// The radio has no such address.
    pub fn address(&self, radio: Radio) -> anyhow::Result<Ipv6Addr> {
        let (all, index) = self.node("host")?.run(|| -> anyhow::Result<_> {
            Ok((link::addresses()?, link::index_of(radio.name)?))
        })??;
        let mut own = all.into_iter().filter(|address| address.index == index);
        let global = own.find_map(|address| match address.prefix.addr {
            IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
            _ => None,
        });
        global.context("the host has no address of its prefix")
    }

    /// The ends of traffic between the correspondent and the host's address of a radio.
    ///
    /// # Errors
    /// The radio has no address.
    pub fn ends(&self, radio: Radio) -> anyhow::Result<Ends<'_>> {
        let (host, cn) = (self.node("host")?, self.node("cn")?);
        let (address, inner) = (CORRESPONDENT.into(), self.address(radio)?.into());
        Ok(Ends { host, cn, address, inner })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let names: Vec<&'static str> = self.daemons.iter().map(Daemon::name).collect();
        self.daemons.clear();
        for name in names {
            let _ = std::fs::remove_file(self.socket(name));
            let _ = std::fs::remove_file(self.file(name, "db"));
        }
        let _ = std::fs::remove_file(self.secret());
    }
}

/// The network's description; `paced` adds rates and delays typical of Wi-Fi and of cellular access.
fn network(paced: bool) -> String {
    let mut text = example!("lab.toml").to_owned();
    if paced {
        for access in [WLAN1, LTE1, WLAN2, LTE2] {
            let way = match access.radio {
                WLAN => "{ rate = \"40mbit\", delay = \"3ms\" }",
                _ => "{ rate = \"20mbit\", delay = \"15ms\" }",
            };
            let cell = format!("name = \"{}\"\nrouter = \"{}\"\n", access.name, access.node);
            text = text.replace(&cell, &format!("{cell}up = {way}\ndown = {way}\n"));
        }
    }
    text
}
