//! The network of the demonstration.
//!
//! ```text
//!  host ─wifi──[emulator]──┐
//!   │                      router ── anchor ── cn
//!   └────lte───[emulator]──┘
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use segue_clock::Span;
use segue_ip::Prefix;
use segue_linux::netns::Netns;
use segue_netem::{LinkSpec, Loss, Queue};

use crate::emulator::{EmulatorSpec, Handle};
use crate::nat::Nat;
use crate::topology::{End, Lab};

/// Options of the demonstration's network, with its own values as default.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Prefix of the namespaces' names, in lower-case letters.
    pub tag: String,
    /// The Wi-Fi-like access.
    pub wifi: EmulatorSpec,
    /// The cellular-like access.
    pub lte: EmulatorSpec,
    /// Translates addresses between each access network and the core.
    pub nat: bool,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let access = |delay_ms, rate_bps, loss, seed| {
            let way = LinkSpec {
                rate_bps: Some(rate_bps),
                delay: Span::from_millis(delay_ms),
                queue: Queue::Packets(100),
                loss: Loss::Bernoulli(loss),
                ..LinkSpec::default()
            };
            EmulatorSpec { up: way.clone(), down: way, seed, log: true }
        };
        DemoOptions {
            tag: "demo".to_owned(),
            wifi: access(10, 50_000_000, 0.005, 1),
            lte: access(30, 20_000_000, 0.001, 2),
            nat: false,
        }
    }
}

/// The network of the demonstration: nodes host, router, anchor and cn. Dropping it deletes it.
#[derive(Debug)]
pub struct DemoNet {
    lab: Lab,
    nat: Option<Nat>,
}

impl DemoNet {
    /// The host's device towards the Wi-Fi-like access, and the name of that emulated link.
    pub const WIFI: &str = "wifi";
    /// The host's device towards the cellular-like access, and the name of that emulated link.
    pub const LTE: &str = "lte";
    /// The host's addresses on `wifi`.
    pub const HOST_WIFI: (Ipv4Addr, Ipv6Addr) = pair(1, 2);
    /// The host's addresses on `lte`.
    pub const HOST_LTE: (Ipv4Addr, Ipv6Addr) = pair(2, 2);
    /// The anchor's addresses towards the host.
    pub const ANCHOR: (Ipv4Addr, Ipv6Addr) = pair(9, 2);
    /// The correspondent node's addresses.
    pub const CN: (Ipv4Addr, Ipv6Addr) = pair(10, 2);

    /// Builds the network.
    ///
    /// # Errors
    /// No permission to create namespaces, or an invalid link specification.
    pub fn start(options: &DemoOptions) -> Result<DemoNet> {
        let mut lab = Lab::new(&options.tag)?;
        for (name, router) in [("host", false), ("router", true), ("anchor", true), ("cn", false)] {
            lab.add_node(name, router)?;
        }
        for (net, device, spec) in [(1, Self::WIFI, &options.wifi), (2, Self::LTE, &options.lte)] {
            let near = prefixes(net, 2);
            let far = prefixes(net, 1);
            let host = End { node: "host", device, addresses: &near };
            let router = End { node: "router", device, addresses: &far };
            lab.emulate(device, host, router, spec)?;
            default_routes(&lab, "host", net, Some(u32::from(net) * 100))?;
        }
        // Besides its own address, the router has an external address for the NAT of each access network.
        let core: Vec<Prefix> = [1, 11, 12].iter().flat_map(|host| prefixes(9, *host)).collect();
        lab.connect(
            End { node: "router", device: "core", addresses: &core },
            End { node: "anchor", device: "core", addresses: &prefixes(9, 2) },
        )?;
        lab.connect(
            End { node: "anchor", device: "cn", addresses: &prefixes(10, 1) },
            End { node: "cn", device: "anchor", addresses: &prefixes(10, 2) },
        )?;
        default_routes(&lab, "anchor", 9, None)?;
        default_routes(&lab, "cn", 10, None)?;
        let (v4, v6) = pair(9, 2);
        for gateway in [IpAddr::from(v4), IpAddr::from(v6)] {
            let cn = prefixes(10, 0)[usize::from(gateway.is_ipv6())];
            lab.route("router", cn, gateway, None)?;
        }
        let mut net = DemoNet { lab, nat: None };
        if options.nat {
            net.translate()?;
        }
        Ok(net)
    }

    /// The mobile host.
    #[must_use]
    pub fn host(&self) -> &Netns {
        self.node("host")
    }

    /// The access router of both networks.
    #[must_use]
    pub fn router(&self) -> &Netns {
        self.node("router")
    }

    /// The anchor node.
    #[must_use]
    pub fn anchor(&self) -> &Netns {
        self.node("anchor")
    }

    /// The correspondent node.
    #[must_use]
    pub fn cn(&self) -> &Netns {
        self.node("cn")
    }

    /// The emulator of the Wi-Fi-like access.
    #[must_use]
    pub fn wifi(&self) -> &Handle {
        self.emulator(Self::WIFI)
    }

    /// The emulator of the cellular-like access.
    #[must_use]
    pub fn lte(&self) -> &Handle {
        self.emulator(Self::LTE)
    }

    /// Removes or restores the carrier of the host's device on an access (`wifi` or `lte`), like unplugging a cable.
    ///
    /// # Errors
    /// The kernel rejects the request.
    pub fn set_carrier(&self, access: &str, carrier: bool) -> Result<()> {
        self.lab.set_carrier(access, carrier)
    }

    /// The underlying lab.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Makes the NAT of one access (`wifi` or `lte`) discard its mappings and use other ports.
    ///
    /// # Errors
    /// The network was started without NAT, or the kernel rejects the request.
    pub fn rebind(&mut self, access: &str) -> Result<()> {
        let nat = self.nat.as_mut().context("this network was started without NAT")?;
        nat.rebind(self.lab.node("router")?, access)
    }

    fn translate(&mut self) -> Result<()> {
        let mut nat = Nat::default();
        for (net, name, outside) in [(1, Self::WIFI, 11), (2, Self::LTE, 12)] {
            let (v4, v6) = pair(9, outside);
            nat.add(name, &prefixes(net, 0), &[v4.into(), v6.into()]);
        }
        nat.install(self.lab.node("router")?)?;
        self.nat = Some(nat);
        Ok(())
    }

    fn node(&self, name: &str) -> &Netns {
        self.lab.node(name).expect("start makes all four nodes")
    }

    fn emulator(&self, name: &str) -> &Handle {
        self.lab.emulator(name).expect("start makes both emulated links")
    }
}

/// 10.61.NET.HOST and fd61:NET::HOST, with NET and HOST written in decimal in both.
const fn pair(net: u8, host: u8) -> (Ipv4Addr, Ipv6Addr) {
    let (net6, host6) = (as_written(net), as_written(host));
    (Ipv4Addr::new(10, 61, net, host), Ipv6Addr::new(0xfd61, net6, 0, 0, 0, 0, 0, host6))
}

/// The number whose hexadecimal form has the digits of `n` in decimal.
const fn as_written(n: u8) -> u16 {
    (n / 100) as u16 * 256 + (n / 10 % 10) as u16 * 16 + (n % 10) as u16
}

fn prefixes(net: u8, host: u8) -> [Prefix; 2] {
    let (v4, v6) = pair(net, host);
    [Prefix::new(v4, 24), Prefix::new(v6, 64)]
}

fn default_routes(lab: &Lab, node: &str, net: u8, metric: Option<u32>) -> Result<()> {
    let (v4, v6) = pair(net, 1);
    lab.route(node, Prefix::default_of(false), v4.into(), metric)?;
    lab.route(node, Prefix::default_of(true), v6.into(), metric)
}
