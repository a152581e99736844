//! The translators (NAT64) of accesses that have IPv6 alone, where all of the anchor's addresses are of IPv4: a router
//! advertises the prefix (RFC 8781), else a name server's answer shows it (RFC 7050).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Pref64, Prefix};
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, RouterOptions, physical};
use segue_linux::raw::{ICMPV6, RawSocket};
use segue_text::errors::Told;
use segue_wire::nd::{Message, NdOption, OptionView};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use super::names::{self, NameServer, Translation};
use super::signal::{LOOK_AGAIN, SignallingEvent};
use super::{Daemon, Settings};
use crate::control::TranslatorStatus;

/// Most prefixes of one access that are known at a time.
const MOST: usize = 4;
/// How often the routers of an access are asked for advertisements (RFC 4861, section 6.3.7).
const SOLICITATIONS: u32 = 3;
/// All routers of a link.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// How long before its end an answer is renewed (RFC 7050, section 3).
const RENEWAL: Duration = Duration::from_secs(10);

/// What is known of translators.
#[derive(Default)]
pub(super) struct Translators {
    /// The prefixes that routers advertise, with their ends, by the index of the interface.
    advertised: BTreeMap<u32, BTreeMap<Pref64, Time>>,
    /// The accesses that need a translator, by name.
    accesses: BTreeMap<String, Access>,
}

/// An access that needs a translator.
struct Access {
    index: u32,
    /// Those of its addresses: with none in common, it is at another network.
    networks: BTreeSet<Prefix>,
    /// What a name server has shown.
    answered: Option<Translation>,
    /// What is used, and who says so.
    used: Option<(Pref64, String)>,
    /// Why none is known.
    why: Option<String>,
    asking: Option<Asking>,
}

/// Questions to name servers under way; dropping it ends them.
struct Asking {
    servers: Vec<NameServer>,
    task: AbortHandle,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Translators {
    /// The prefix by which an access reaches addresses of IPv4.
    pub(super) fn prefix(&self, interface: &str) -> Option<Pref64> {
        Some(self.accesses.get(interface)?.used.as_ref()?.0)
    }

    /// For the status.
    pub(super) fn status(&self) -> Vec<TranslatorStatus> {
        let status = |(name, access): (&String, &Access)| TranslatorStatus {
            interface: name.clone(),
            prefix: access.used.as_ref().map(|(prefix, _)| prefix.to_string()),
            learned: access.used.as_ref().map(|(_, by)| by.clone()),
            why: access.why.clone().filter(|_| access.used.is_none()),
        };
        self.accesses.iter().map(status).collect()
    }

    /// Takes a router's prefixes; says whether there is one more or less.
    fn advertise(
        &mut self,
        now: Time,
        RouterOptions { interface, options }: &RouterOptions,
    ) -> bool {
        let known = self.advertised.entry(*interface).or_default();
        let before: Vec<Pref64> = known.keys().copied().collect();
        for option in OptionView::all(options) {
            if let Ok(NdOption::Pref64 { lifetime, prefix }) = NdOption::parse(option)
                && (known.len() < MOST || known.contains_key(&prefix))
            {
                known.insert(prefix, now + Span::from_secs(lifetime.into()));
            }
        }
        known.retain(|_, until| *until > now);
        !known.keys().eq(&before)
    }

    /// Forgets what has expired; says whether anything has.
    fn expire(&mut self, now: Time) -> bool {
        self.advertised.values_mut().fold(false, |any, known| {
            let before = known.len();
            known.retain(|_, until| *until > now);
            any || known.len() != before
        })
    }

    /// These accesses need a translator, and no others. What name servers said at another network is forgotten.
    fn keep(&mut self, devices: &[&Device]) {
        let of = |name: &str| devices.iter().find(|device| device.interface.name == name);
        self.accesses.retain(|name, access| {
            of(name).is_some_and(|device| device.interface.index == access.index)
        });
        for device in devices {
            let networks = networks(device);
            let new = || Access {
                index: device.interface.index,
                networks: networks.clone(),
                answered: None,
                used: None,
                why: None,
                asking: None,
            };
            let access = self.accesses.entry(device.interface.name.clone()).or_insert_with(new);
            if access.networks.is_disjoint(&networks) {
                *access = new();
            }
            access.networks = networks;
        }
    }

    /// Chooses the prefix of each access among those that fit: a router's before a name server's, the present one before
    /// others.
    fn choose(&mut self, fits: impl Fn(&Pref64) -> bool) {
        for (name, access) in &mut self.accesses {
            let advertised = self.advertised.get(&access.index).into_iter().flatten();
            let by_router = advertised.map(|(prefix, _)| (*prefix, "a router's advertisement"));
            let answered = access.answered.iter();
            let by_server =
                answered.flat_map(|t| t.prefixes.iter().map(|prefix| (*prefix, &*t.by)));
            let preferred = [by_router.collect::<Vec<_>>(), by_server.collect()];
            let present = access.used.as_ref().map(|(prefix, _)| *prefix);
            let choice = preferred.iter().find_map(|all| {
                let mut fitting = all.iter().filter(|(prefix, _)| fits(prefix));
                let first = fitting.clone().next();
                fitting.find(|(prefix, _)| Some(*prefix) == present).or(first)
            });
            let choice = choice.map(|(prefix, by)| (*prefix, (*by).to_owned()));
            if choice != access.used {
                match &choice {
                    Some((prefix, by)) => {
                        info!(
                            "{name} reaches addresses of IPv4 through the translator of {prefix}, known from {by}"
                        );
                    }
                    None => info!("{name} no longer has a translator"),
                }
            }
            access.used = choice;
        }
    }
}

/// The networks of a device's IPv6 addresses. Addresses for privacy change within them.
fn networks(device: &Device) -> BTreeSet<Prefix> {
    let own = device.interface.addresses.iter().filter(|own| own.is_ipv6());
    own.map(|own| Prefix::new(*own, 64).network()).collect()
}

/// The devices that need a translator to reach these addresses of the anchor.
fn needing<'a>(anchors: &[SocketAddr], all: &'a [Device], wanted: &[String]) -> Vec<&'a Device> {
    if anchors.is_empty() || anchors.iter().any(SocketAddr::is_ipv6) {
        return Vec::new();
    }
    let of_family =
        |device: &Device, v6| device.interface.addresses.iter().any(|a| a.is_ipv6() == v6);
    let listed = |device: &Device| wanted.is_empty() || wanted.contains(&device.interface.name);
    let devices = physical(all).filter(|device| listed(device));
    devices.filter(|device| of_family(device, true) && !of_family(device, false)).collect()
}

/// Whether the prefix leads away from this machine.
fn leads_away(prefix: &Pref64, anchors: &[SocketAddr], all: &[Device]) -> bool {
    let mut own = all.iter().flat_map(|device| &device.interface.addresses);
    !own.any(|own| match own {
        IpAddr::V6(own) => {
            prefix.extract(*own).is_some_and(|v4| anchors.iter().any(|anchor| anchor.ip() == v4))
        }
        IpAddr::V4(_) => false,
    })
}

/// What name servers say of the translators of accesses that need one, asked once.
pub(super) async fn ask_once(
    anchors: &[SocketAddr],
    settings: &Settings,
    all: &[Device],
) -> Vec<TranslatorStatus> {
    let wanted = &settings.common.interfaces;
    let mut found = Vec::new();
    for device in needing(anchors, all, wanted) {
        let servers =
            names::name_servers(&settings.nameservers, std::slice::from_ref(device), wanted);
        let answer = names::translation(&servers).await;
        let mut status = TranslatorStatus {
            interface: device.interface.name.clone(),
            ..TranslatorStatus::default()
        };
        match answer {
            Ok(Translation { prefixes, by, .. }) => {
                let prefix = prefixes.iter().find(|prefix| leads_away(prefix, anchors, all));
                status.prefix = prefix.map(ToString::to_string);
                status.why = prefix.is_none().then(|| shows_none(&by));
                status.learned = prefix.is_some().then_some(by);
            }
            Err(error) => status.why = Some(Told(&error).to_string()),
        }
        found.push(status);
    }
    found
}

fn shows_none(by: &str) -> String {
    format!("{by} shows no translator's prefix")
}

impl Daemon {
    /// Chooses the translators of accesses that need one, and asks name servers for those that no router advertises.
    pub(super) fn find_translators(&mut self, all: &[Device]) {
        let Settings { nameservers, common, .. } = &self.settings;
        let devices = needing(&self.anchors, all, &common.interfaces);
        self.translators.keep(&devices);
        self.translators.choose(|prefix| leads_away(prefix, &self.anchors, all));
        for device in devices {
            let Some(access) = self.translators.accesses.get_mut(&device.interface.name) else {
                continue;
            };
            let is_advertised = self.translators.advertised.get(&access.index);
            if is_advertised.is_some_and(|known| !known.is_empty()) {
                access.asking = None;
                continue;
            }
            let servers =
                names::name_servers(nameservers, std::slice::from_ref(device), &common.interfaces);
            if access.asking.as_ref().is_some_and(|asking| asking.servers == servers) {
                continue;
            }
            let name = device.interface.name.clone();
            let asking = discover(name, access.index, servers.clone(), self.signalling.events());
            access.asking = Some(Asking { servers, task: self.signalling.spawn(asking) });
        }
    }

    /// A name server has answered for an access, or none has.
    pub(super) fn on_translation(
        &mut self,
        interface: &str,
        found: &Result<Translation, String>,
    ) -> anyhow::Result<()> {
        let Some(access) = self.translators.accesses.get_mut(interface) else { return Ok(()) };
        match found {
            Ok(translation) => {
                access.why = Some(shows_none(&translation.by));
                access.answered = Some(translation.clone());
            }
            // What is known stays.
            Err(why) => access.why = Some(why.clone()),
        }
        let before = access.used.clone();
        self.translators.choose(|prefix| leads_away(prefix, &self.anchors, &self.seen));
        if self.translators.accesses.get(interface).is_some_and(|access| access.used != before) {
            self.use_seen()?;
        }
        let access = self.translators.accesses.get(interface);
        let why =
            access.filter(|access| access.used.is_none()).and_then(|access| access.why.as_ref());
        if let Some(why) = why {
            let line = format!(
                "{interface} has IPv6 alone, the anchor's address is of IPv4, and no translator (NAT64) is known there: {why}"
            );
            if !self.signalling.note_unreached(&line) && !self.is_noted(&line) {
                warn!("{line}");
            }
        }
        Ok(())
    }

    /// A router has advertised something, of which prefixes of translators matter.
    pub(super) fn on_router_options(&mut self, options: &RouterOptions) -> anyhow::Result<()> {
        if self.translators.advertise(monotonic(), options) { self.use_seen() } else { Ok(()) }
    }

    /// A link is down, and with it the network whose routers advertised something.
    pub(super) fn forget_advertised(&mut self, interface: u32) {
        self.translators.advertised.remove(&interface);
    }

    /// Lets go of what routers no longer advertise.
    pub(super) fn expire_translators(&mut self) -> anyhow::Result<()> {
        if self.translators.expire(monotonic()) { self.use_seen() } else { Ok(()) }
    }

    fn use_seen(&mut self) -> anyhow::Result<()> {
        let seen = std::mem::take(&mut self.seen);
        self.use_interfaces(&seen)
    }
}

/// Asks for the translator of an access, and again whenever the answer ends.
async fn discover(
    interface: String,
    index: u32,
    servers: Vec<NameServer>,
    events: mpsc::Sender<SignallingEvent>,
) {
    let mut pause = LOOK_AGAIN.0;
    for round in 0.. {
        if round < SOLICITATIONS {
            solicit(index);
        }
        let found = names::translation(&servers).await;
        let next = match &found {
            Ok(translation) if !translation.prefixes.is_empty() => {
                pause = LOOK_AGAIN.0;
                translation.lifetime.saturating_sub(RENEWAL)
            }
            _ => {
                let longer = (pause * 2).min(LOOK_AGAIN.1);
                std::mem::replace(&mut pause, longer)
            }
        };
        let found = found.map_err(|error| Told(&error).to_string());
        let event = SignallingEvent::Translation { interface: interface.clone(), found };
        if events.send(event).await.is_err() {
            return;
        }
        tokio::time::sleep(next).await;
    }
}

/// Asks the routers of an interface for advertisements: what they have sent before this daemon ran is lost.
fn solicit(interface: u32) {
    let message = Datagram {
        waited_ns: 0,
        interface: Some(interface),
        from: (Ipv6Addr::UNSPECIFIED.into(), 0),
        to: (ROUTERS.into(), 0),
        protocol: ICMPV6,
        hop_limit: 255,
        bytes: Message::RouterSolicitation { options: Vec::new() }.emit(),
    };
    let sent = RawSocket::icmpv6(&[]).map_err(anyhow::Error::from);
    if let Err(error) = sent.and_then(|socket| Ok(socket.send(&message)?)) {
        debug!("no router is asked for its translator: {}", Told(&error));
    }
}
