//! Network address translation in an access router, with nftables and rebinding on demand.

use std::io::Write;
use std::net::IpAddr;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use segue_ip::Prefix;
use segue_linux::conntrack;
use segue_linux::netns::Netns;

/// The translations of one router. Each inside network has its own outside addresses.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    networks: Vec<Network>,
}

#[derive(Debug)]
struct Network {
    name: String,
    inside: Vec<Prefix>,
    outside: Vec<IpAddr>,
    /// Number of rebindings so far; 0 keeps source ports where possible.
    generation: u16,
}

/// Each rebinding moves the source ports of a network to the next range of this size.
const PORTS_PER_GENERATION: u16 = 512;
const FIRST_PORT: u16 = 20_000;
const GENERATIONS: u16 = 64;

impl Nat {
    /// Hides `inside` behind `outside`, one address of each family. The router must own the outside addresses.
    pub(crate) fn add(&mut self, name: &str, inside: &[Prefix], outside: &[IpAddr]) {
        self.networks.push(Network {
            name: name.to_owned(),
            inside: inside.to_vec(),
            outside: outside.to_vec(),
            generation: 0,
        });
    }

    /// Installs the rules in `router`.
    ///
    /// # Errors
    /// `nft` is not installed, or the kernel has no NAT.
    pub(crate) fn install(&self, router: &Netns) -> Result<()> {
        let mut child = router
            .command("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("run nft for address translation (install the package nftables)")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(self.rules().as_bytes()).context("give nft its rules")?;
        }
        let output = child.wait_with_output().context("wait for nft")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!(
                "nft refused the translation: {}",
                text.lines().next().unwrap_or("no reason given")
            );
        }
        Ok(())
    }

    /// Gives every flow of the network `name` another outside port, like a NAT that restarted. Flows of other networks
    /// keep theirs unless another flow has taken them.
    ///
    /// # Errors
    /// No such network, or the kernel rejects the request.
    pub(crate) fn rebind(&mut self, router: &Netns, name: &str) -> Result<()> {
        let found = self.networks.iter_mut().find(|n| n.name == name);
        let network = found.with_context(|| format!("there is no translated network {name}"))?;
        network.generation = network.generation % GENERATIONS + 1;
        self.install(router)?;
        router.run(conntrack::flush)??;
        Ok(())
    }

    /// Rules that replace the whole table. They silently drop packets to an outside address that belong to no flow, as
    /// NATs do; a host would answer "port unreachable".
    fn rules(&self) -> String {
        let (mut post, mut input) = (String::new(), String::new());
        for n in &self.networks {
            let ports = match n.generation {
                0 => String::new(),
                g => {
                    let first = FIRST_PORT + (g - 1) * PORTS_PER_GENERATION;
                    format!(":{first}-{}", first + PORTS_PER_GENERATION - 1)
                }
            };
            for (inside, outside) in
                n.inside.iter().flat_map(|i| n.outside.iter().map(move |o| (i, o)))
            {
                if inside.addr.is_ipv4() != outside.is_ipv4() {
                    continue;
                }
                let (family, address) = match outside {
                    IpAddr::V4(a) => ("ip", a.to_string()),
                    IpAddr::V6(a) => ("ip6", format!("[{a}]")),
                };
                let translated = "meta l4proto { tcp, udp }";
                post += &format!(
                    "{family} saddr {inside} {translated} snat {family} to {address}{ports}\n\
                     {family} saddr {inside} snat {family} to {outside}\n"
                );
                input += &format!("{family} daddr {outside} {translated} drop\n");
            }
        }
        format!(
            "table inet segue_nat\ndelete table inet segue_nat\ntable inet segue_nat {{\n\
             chain post {{ type nat hook postrouting priority 100;\n{post}}}\n\
             chain input {{ type filter hook input priority 0;\n{input}}}\n}}\n"
        )
    }
}
