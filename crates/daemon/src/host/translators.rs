//! The translators (NAT64) of IPv6-only accesses, used if all of the anchor's addresses are IPv4. A router advertises
//! the prefix (RFC 8781), or else a name server's answer reveals it (RFC 7050).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Pref64, Prefix};
use segue_linux::monitor::{Device, RouterOptions, physical};
use segue_linux::raw::{ICMPV6, RawSocket};
use segue_text::errors::Told;
use segue_wire::nd::{Message, NdOption, OptionView};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{debug, info};

use super::names::{self, NameServer, Translation};
use super::signal::{LOOK_AGAIN, SignallingEvent};
use crate::control::TranslatorStatus;
use crate::settings::Host as Settings;
use crate::ways::is_tunnel;

/// Most known prefixes per access.
const MOST: usize = 4;
/// Router solicitations sent per access (RFC 4861, section 6.3.7).
const SOLICITATIONS: u32 = 3;
/// All routers of a link.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Upper limit of an advertised prefix's lifetime, in seconds: routers repeat it every half hour at least.
const LONGEST_S: u64 = 3_600;
/// How long before its end an answer is renewed (RFC 7050, section 3).
const RENEWAL: Duration = Duration::from_secs(10);

/// The known translators.
#[derive(Default)]
pub(super) struct Translators {
    /// The prefixes that routers advertise, by the index of the interface.
    pub(super) advertised: BTreeMap<u32, BTreeMap<Pref64, Advertised>>,
    /// The accesses that need a translator, by name.
    pub(super) accesses: BTreeMap<String, Access>,
    /// Prefixes have to be chosen again at the next heartbeat.
    pub(super) changed: bool,
}

/// A router's last advertisement of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertised {
    heard: Time,
    until: Time,
}

/// An access that needs a translator.
pub(super) struct Access {
    pub(super) index: u32,
    /// The networks of its addresses. If none stays in common, the access has moved to another network.
    networks: BTreeSet<Prefix>,
    /// The last answer of a name server.
    pub(super) answered: Option<Translation>,
    /// The prefix in use, and its origin.
    pub(super) used: Option<(Pref64, String)>,
    /// Why no prefix is known.
    pub(super) why: Option<String>,
    pub(super) asking: Option<Asking>,
}

/// Pending questions to name servers; dropping this cancels them.
pub(super) struct Asking {
    pub(super) servers: Vec<NameServer>,
    pub(super) task: AbortHandle,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Translators {
    /// The prefix by which an access reaches IPv4 addresses.
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

    /// Takes a router's prefixes; returns whether one was added or withdrawn at an access that needs a translator. If
    /// there are too many, the one heard longest ago is forgotten, except the one in use, so that routers that have
    /// left hold no place.
    pub(super) fn advertise(
        &mut self,
        now: Time,
        RouterOptions { interface, options }: &RouterOptions,
    ) -> bool {
        let used = self.accesses.values().find(|access| access.index == *interface);
        let used = used.and_then(|access| access.used.as_ref()).map(|(prefix, _)| *prefix);
        let known = self.advertised.entry(*interface).or_default();
        let before: Vec<Pref64> = known.keys().copied().collect();
        for option in OptionView::all(options) {
            let Ok(NdOption::Pref64 { lifetime, prefix }) = NdOption::parse(option) else {
                continue;
            };
            let others = known.iter().filter(|(known, _)| Some(**known) != used);
            let oldest = others.min_by_key(|(_, known)| known.heard).map(|(oldest, _)| *oldest);
            if known.len() >= MOST
                && !known.contains_key(&prefix)
                && let Some(oldest) = oldest
            {
                known.remove(&oldest);
            }
            let until = now + Span::from_secs(u64::from(lifetime).min(LONGEST_S));
            known.insert(prefix, Advertised { heard: now, until });
        }
        known.retain(|_, known| known.until > now);
        let needed = self.accesses.values().any(|access| access.index == *interface);
        needed && !known.keys().eq(&before)
    }

    /// Forgets expired prefixes; returns whether there were any.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        self.advertised.values_mut().fold(false, |any, known| {
            let before = known.len();
            known.retain(|_, known| known.until > now);
            any || known.len() != before
        })
    }

    /// Sets the accesses that need a translator. Answers from another network are forgotten.
    pub(super) fn keep(&mut self, devices: &[&Device]) {
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
        }
    }

    /// Chooses the prefix of each access among those that fit: a router's prefixes come before a name server's. Within
    /// each group the present prefix stays while the anchor is `reached`; otherwise the most recently heard one comes
    /// first.
    pub(super) fn choose(&mut self, ends: &Ends, reached: bool) {
        for (name, access) in &mut self.accesses {
            let advertised = self.advertised.get(&access.index).into_iter().flatten();
            let mut advertised: Vec<_> = advertised.collect();
            advertised.sort_by_key(|(_, known)| std::cmp::Reverse(known.heard));
            let by_router =
                advertised.into_iter().map(|(prefix, _)| (*prefix, "a router's advertisement"));
            let answered = access.answered.iter();
            let by_server =
                answered.flat_map(|t| t.prefixes.iter().map(|prefix| (*prefix, &*t.by)));
            let preferred = [by_router.collect::<Vec<_>>(), by_server.collect()];
            let present = access.used.as_ref().filter(|_| reached).map(|(prefix, _)| *prefix);
            let choice = preferred.iter().find_map(|all| {
                let mut fitting = all.iter().filter(|(prefix, _)| ends.are_apart(prefix));
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

/// The networks of a device's IPv6 addresses; privacy addresses change within them.
fn networks(device: &Device) -> BTreeSet<Prefix> {
    let own = device.interface.addresses.iter().filter(|own| own.is_ipv6());
    own.map(|own| Prefix::new(*own, 64).network()).collect()
}

/// The devices that need a translator to reach these addresses of the anchor.
pub(super) fn needing<'a>(
    anchors: &[SocketAddr],
    all: &'a [Device],
    wanted: &[String],
) -> Vec<&'a Device> {
    if anchors.is_empty() || anchors.iter().any(SocketAddr::is_ipv6) {
        return Vec::new();
    }
    let of_family =
        |device: &Device, v6| device.interface.addresses.iter().any(|a| a.is_ipv6() == v6);
    let leads_out = |device: &Device| device.default_route || !device.elsewhere.is_empty();
    let listed = |device: &Device| match wanted {
        [] => leads_out(device) && !is_tunnel(device),
        _ => wanted.contains(&device.interface.name),
    };
    let devices = physical(all).filter(|device| listed(device));
    devices.filter(|device| of_family(device, true) && !of_family(device, false)).collect()
}

/// The anchor's addresses, and this machine's, which no prefix may map the anchor to.
#[derive(Clone)]
pub(super) struct Ends {
    anchors: Vec<Ipv4Addr>,
    own: Vec<Ipv6Addr>,
}

impl Ends {
    pub(super) fn new(anchors: &[SocketAddr], all: &[Device]) -> Ends {
        let anchors = anchors.iter().filter_map(|anchor| match anchor {
            SocketAddr::V4(v4) => Some(*v4.ip()),
            SocketAddr::V6(_) => None,
        });
        let own = all.iter().flat_map(|device| &device.interface.addresses);
        let own = own.filter_map(|own| match own {
            IpAddr::V6(own) => Some(*own),
            IpAddr::V4(_) => None,
        });
        Ends { anchors: anchors.collect(), own: own.collect() }
    }

    /// Returns whether the prefix does not map the anchor to this machine.
    pub(super) fn are_apart(&self, prefix: &Pref64) -> bool {
        !self.anchors.iter().any(|anchor| self.own.contains(&prefix.embed(*anchor)))
    }
}

/// Queries name servers once for the translators of accesses that need one.
pub(super) async fn ask_once(
    anchors: &[SocketAddr],
    settings: &Settings,
    all: &[Device],
) -> Vec<TranslatorStatus> {
    let wanted = &settings.common.interfaces;
    let ends = Ends::new(anchors, all);
    let mut found = Vec::new();
    for device in needing(anchors, all, wanted) {
        let servers =
            names::name_servers(&settings.nameservers, std::slice::from_ref(device), wanted);
        let mut status = TranslatorStatus {
            interface: device.interface.name.clone(),
            ..TranslatorStatus::default()
        };
        match names::translation(&servers, |prefix| ends.are_apart(prefix)).await {
            Ok(Translation { prefixes, by, .. }) => {
                status.prefix = prefixes.first().map(ToString::to_string);
                status.why = prefixes.is_empty().then(|| shows_none(&by));
                status.learned = (!prefixes.is_empty()).then_some(by);
            }
            Err(error) => status.why = Some(Told(&error).to_string()),
        }
        found.push(status);
    }
    found
}

pub(super) fn shows_none(by: &str) -> String {
    format!("{by} shows no translator's prefix")
}

/// Queries for the translator of an access, and again before each answer expires.
pub(super) async fn discover(
    (interface, index): (String, u32),
    servers: Vec<NameServer>,
    ends: Ends,
    events: mpsc::Sender<SignallingEvent>,
) {
    let mut pause = LOOK_AGAIN.0;
    for round in 0.. {
        if round < SOLICITATIONS {
            solicit(index);
        }
        let found = names::translation(&servers, |prefix| ends.are_apart(prefix)).await;
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

/// Solicits advertisements from the routers of an interface: this daemon missed the earlier ones.
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

#[cfg(test)]
mod tests {
    use segue_ip::Interface;

    use super::*;

    const ANCHOR: &str = "192.0.2.1:5006";
    const START: Time = Time(1_000_000_000);

    fn pref64(text: &str) -> Pref64 {
        Pref64::new(text.parse().unwrap()).unwrap()
    }

    /// A device that carries packets, with these addresses.
    fn device(index: u32, addresses: &[&str]) -> Device {
        Device {
            interface: Interface {
                name: format!("net{index}"),
                index,
                addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
                ..Interface::default()
            },
            up: true,
            ethernet: true,
            default_route: true,
            ..Device::default()
        }
    }

    /// The addresses of the anchor and of the host's devices.
    fn ends(all: &[Device]) -> Ends {
        Ends::new(&[ANCHOR.parse().unwrap()], all)
    }

    fn advertised(prefixes: &[(&str, u16)]) -> RouterOptions {
        let mut options = Vec::new();
        for (prefix, lifetime) in prefixes {
            NdOption::Pref64 { lifetime: *lifetime, prefix: pref64(prefix) }.emit(&mut options);
        }
        RouterOptions { interface: 1, options }
    }

    fn answered(prefixes: &[&str]) -> Option<Translation> {
        let prefixes = prefixes.iter().map(|text| pref64(text)).collect();
        Some(Translation { prefixes, lifetime: Duration::from_secs(600), by: "it".into() })
    }

    fn used(known: &Translators) -> Option<String> {
        known.prefix("net1").map(|prefix| prefix.to_string())
    }

    #[test]
    fn only_accesses_of_ipv6_alone_need_one_and_only_where_the_anchor_has_ipv4_alone() {
        let all = [
            device(1, &["2001:db8::2"]),
            device(2, &["2001:db8::2", "192.0.2.7"]),
            device(3, &["192.0.2.7"]),
            device(4, &[]),
            // 464XLAT.
            device(5, &["2001:db8::2", "192.0.0.2"]),
            device(6, &["2001:db8:5::2"]),
        ];
        let of = |anchors: &[&str], wanted: &[String]| {
            let anchors: Vec<SocketAddr> =
                anchors.iter().map(|text| text.parse().unwrap()).collect();
            let found = needing(&anchors, &all, wanted);
            found.iter().map(|device| device.interface.index).collect::<Vec<_>>()
        };
        assert_eq!(of(&[ANCHOR], &[]), [1, 6]);
        assert_eq!(of(&[ANCHOR], &["net6".into(), "net2".into()]), [6]);
        assert_eq!(of(&[ANCHOR, "[2001:db8::1]:5006"], &[]), [0; 0]);
        assert_eq!(of(&[], &[]), [0; 0]);
    }

    #[test]
    fn a_routers_prefix_counts_for_its_lifetime_and_goes_before_a_name_servers() {
        let (mut known, all) = (Translators::default(), [device(1, &["2001:db8::2"])]);
        let from_now = |s| START + Span::from_secs(s);
        known.keep(&[&all[0]]);
        known.accesses.get_mut("net1").unwrap().answered = answered(&["2001:db8:9::/96"]);
        known.choose(&ends(&all), true);
        assert_eq!(used(&known).as_deref(), Some("2001:db8:9::/96"));
        assert!(known.advertise(START, &advertised(&[("64:ff9b::/96", 600)])));
        known.choose(&ends(&all), true);
        assert_eq!(used(&known).as_deref(), Some("64:ff9b::/96"));
        // A repetition extends the lifetime, and changes nothing else.
        assert!(!known.advertise(from_now(300), &advertised(&[("64:ff9b::/96", 600)])));
        assert!(!known.expire(from_now(899)) && known.expire(from_now(900)));
        known.choose(&ends(&all), true);
        assert_eq!(used(&known).as_deref(), Some("2001:db8:9::/96"));
        // A lifetime of zero withdraws it.
        assert!(known.advertise(START, &advertised(&[("64:ff9b::/96", 600)])));
        assert!(known.advertise(START, &advertised(&[("64:ff9b::/96", 0)])));
        assert!(known.advertised[&1].is_empty());
        let many: Vec<String> = (0..9).map(|n| format!("2001:db8:{n}::/96")).collect();
        let many: Vec<(&str, u16)> = many.iter().map(|prefix| (&**prefix, 600)).collect();
        known.advertise(START, &advertised(&many));
        assert_eq!(known.advertised[&1].len(), MOST);
    }

    #[test]
    fn false_prefixes_of_who_has_left_give_way_to_what_is_still_advertised() {
        let (mut known, all) = (Translators::default(), [device(1, &["2001:db8::2"])]);
        known.keep(&[&all[0]]);
        let fill: Vec<String> = (0..MOST).map(|n| format!("2001:db8:{n}::/96")).collect();
        let fill: Vec<(&str, u16)> = fill.iter().map(|prefix| (&**prefix, u16::MAX)).collect();
        known.advertise(START, &advertised(&fill));
        known.choose(&ends(&all), false);
        let later = START + Span::from_secs(5);
        assert!(known.advertise(later, &advertised(&[("64:ff9b::/96", u16::MAX)])));
        assert_eq!(known.advertised[&1].len(), MOST);
        // While the anchor is reached, nothing changes.
        known.choose(&ends(&all), true);
        assert_eq!(used(&known).as_deref(), Some("2001:db8::/96"));
        known.choose(&ends(&all), false);
        assert_eq!(used(&known).as_deref(), Some("64:ff9b::/96"));
        // No advertisement is valid for longer than an hour.
        known.expire(START + Span::from_secs(LONGEST_S));
        assert_eq!(known.advertised[&1].len(), 1);
        // Advertisements at an access that needs no translator are ignored.
        known.keep(&[]);
        assert!(!known.advertise(later, &advertised(&[("2001:db8:9::/96", 600)])));
    }

    #[test]
    fn the_present_prefix_stays_while_it_is_among_the_answers_whatever_their_order() {
        let (mut known, all) = (Translators::default(), [device(1, &["2001:db8::2"])]);
        known.keep(&[&all[0]]);
        for (answers, expected) in [
            (&["2001:db8:1::/96", "2001:db8:2::/96"][..], Some("2001:db8:1::/96")),
            (&["2001:db8:2::/96", "2001:db8:1::/96"], Some("2001:db8:1::/96")),
            (&["2001:db8:2::/96"], Some("2001:db8:2::/96")),
            (&[], None),
        ] {
            known.accesses.get_mut("net1").unwrap().answered = answered(answers);
            known.choose(&ends(&all), true);
            assert_eq!(used(&known).as_deref(), expected, "{answers:?}");
        }
    }

    #[test]
    fn a_prefix_that_leads_to_an_address_of_this_machine_is_not_used() {
        let all = [device(1, &["2001:db8::2"]), device(2, &["2001:db8:7::c000:201"])];
        let mut known = Translators::default();
        known.keep(&[&all[0]]);
        let both = answered(&["2001:db8:7::/96", "2001:db8:8::/96"]);
        known.accesses.get_mut("net1").unwrap().answered = both;
        known.choose(&ends(&all), true);
        assert_eq!(used(&known).as_deref(), Some("2001:db8:8::/96"));
    }

    #[test]
    fn what_was_answered_at_another_network_is_forgotten_and_a_new_address_changes_nothing() {
        let mut known = Translators::default();
        for (addresses, stays) in [
            (&["2001:db8::2"][..], true),
            // A privacy address within the network.
            (&["2001:db8::77", "2001:db8::2"], true),
            (&["2001:db8::77"], true),
            // Renumbered in two steps.
            (&["2001:db8::77", "2001:db8:1::77"], true),
            (&["2001:db8:1::77"], false),
        ] {
            let all = [device(1, addresses)];
            known.keep(&[&all[0]]);
            let access = known.accesses.get_mut("net1").unwrap();
            if access.answered.is_none() && stays {
                access.answered = answered(&["2001:db8:64::/96"]);
            }
            known.choose(&ends(&all), true);
            assert_eq!(used(&known).is_some(), stays, "{addresses:?}");
        }
        // An access that needs no translator is unknown, and another one under the same name starts empty.
        known.keep(&[]);
        assert!(known.accesses.is_empty());
        let mut other = device(1, &["2001:db8::2"]);
        known.keep(&[&other]);
        known.accesses.get_mut("net1").unwrap().answered = answered(&["2001:db8:64::/96"]);
        other.interface.index = 9;
        known.keep(&[&other]);
        assert!(known.accesses["net1"].answered.is_none());
    }
}
