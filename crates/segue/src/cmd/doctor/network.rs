//! Checks ports, the anchor, uplinks and packet sizes.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use segue_daemon::control::{Status, TranslatorStatus, Tunnels};
use segue_daemon::locator::Locator;
use segue_daemon::number::Number;
use segue_daemon::rivals::{Conflict, Place, conflicts, rivals};
use segue_daemon::ways::{Way, missing_source, unfound, ways, why_unused};
use segue_daemon::{anchor, clamp, host, nat, past};
use segue_ip::{Interface, MAIN_TABLE, Pref64};
use segue_linux::monitor::{Device, physical, physical_candidates, snapshot};
use segue_linux::nft;
use segue_text::errors::Told;
use segue_tunnel::host::LEAST_INNER;

use super::finding::{Finding, ok, todo, told, unknown};
use super::system::no_way_out;

/// How long to wait for an answer from an anchor, and when to repeat the request. A round trip by satellite takes 700
/// ms.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);
/// The errors with which a wait ends without an answer. `Interrupted` occurs if a signal reaches the thread
/// (signal(7)).
const UNANSWERED: [ErrorKind; 3] =
    [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
/// Bytes of outer headers over IPv4 and over IPv6.
const OVERHEAD: [u32; 2] = [44, 64];

/// The kernel's forwarding switches for IPv4 and IPv6.
const FORWARDING: [&str; 2] =
    ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];

/// Reads the interfaces of this machine.
pub(crate) fn interfaces() -> anyhow::Result<Vec<Device>> {
    Ok(runtime()?.block_on(snapshot())?)
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("no event loop")
}

/// Checks that a port is free, or used by our own daemon. `closed` says why this user may not ask the daemon.
pub(crate) fn port(
    check: &'static str,
    port: u16,
    running: Option<&Status<Tunnels>>,
    closed: Option<&str>,
) -> Finding {
    let bound =
        UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| match error.kind() {
            // Fall back to IPv4 on a system without IPv6.
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(error),
            _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)),
        });
    match (bound, running) {
        (Ok(_), None) => ok(check, format!("UDP {port} is free")),
        (Ok(_), Some(_)) => {
            ok(check, format!("UDP {port} is free; the running daemon uses another"))
        }
        (Err(error), Some(status)) if error.kind() == ErrorKind::AddrInUse => {
            let article = if status.head.role == "anchor" { "an" } else { "a" };
            ok(check, format!("UDP {port} is in use, and {article} {} runs here", status.head.role))
        }
        (Err(error), None) if error.kind() == ErrorKind::AddrInUse && closed.is_some() => unknown(
            check,
            format!("UDP {port} is in use, maybe by the daemon: {}", closed.unwrap_or_default()),
        ),
        (Err(error), _) => todo(
            check,
            format!(
                "UDP {port}: {}; find who uses it (ss -ulpn), or set another in the file",
                told(error)
            ),
        ),
    }
}

/// The anchor's addresses, found as the host finds them, and a finding about names that do not resolve.
pub(crate) fn resolve(
    named: &[Locator],
    interfaces: &[Device],
    settings: &host::Settings,
) -> anyhow::Result<(Vec<SocketAddr>, Option<Finding>)> {
    let (mut addresses, mut names) = (Vec::new(), Vec::new());
    for locator in named {
        match locator {
            Locator::Address(address) => addresses.push(*address),
            Locator::Name(name, port) => names.push((name.clone(), *port)),
        }
    }
    if names.is_empty() {
        return Ok((addresses, None));
    }
    let found = runtime()?.block_on(host::resolve(&names, settings, interfaces));
    let finding = found.as_ref().err().map(|error| todo("anchor", Told(error).to_string()));
    addresses.extend(found.unwrap_or_default());
    Ok((addresses, finding))
}

/// The translators of accesses without IPv4: as the running host knows them, else found by the host's own method.
pub(crate) fn translators(
    anchor: &[SocketAddr],
    interfaces: &[Device],
    settings: &host::Settings,
    running: Option<&Status<Tunnels>>,
) -> anyhow::Result<Vec<TranslatorStatus>> {
    match running {
        Some(status) => Ok(status.body.translators.clone()),
        None => Ok(runtime()?.block_on(host::translators(anchor, settings, interfaces))),
    }
}

/// The addresses at which translators present the anchor.
pub(crate) fn synthesized(
    translators: &[TranslatorStatus],
    anchor: &[SocketAddr],
) -> Vec<SocketAddr> {
    let prefixes = translators.iter().filter_map(|known| known.prefix.as_ref()?.parse().ok());
    let prefixes = prefixes.filter_map(|prefix| Pref64::new(prefix).ok());
    let shown = |prefix: Pref64| {
        let shown = move |at: &SocketAddr| match at {
            SocketAddr::V4(v4) => Some((prefix.embed(*v4.ip()), v4.port()).into()),
            SocketAddr::V6(_) => None,
        };
        anchor.iter().filter_map(shown)
    };
    prefixes.flat_map(shown).collect()
}

/// Findings about translators.
pub(crate) fn translation(translators: &[TranslatorStatus]) -> Vec<Finding> {
    const CHECK: &str = "translator";
    let line = |known: &TranslatorStatus| {
        let TranslatorStatus { interface, prefix, learned, why } = known;
        match prefix {
            Some(prefix) => {
                let by = learned.as_deref().unwrap_or("nobody");
                ok(
                    CHECK,
                    format!(
                        "{interface} reaches addresses of IPv4 through {prefix}, known from {by}"
                    ),
                )
            }
            None => {
                let why = why.as_deref().unwrap_or("no answer yet");
                todo(
                    CHECK,
                    format!(
                        "{interface} has IPv6 alone, the anchor's addresses are of IPv4, and no translator (NAT64) is \
                         known there: {why}; enroll this host with the anchor's name or an address of IPv6 (segue \
                         enroll --at), or name servers of this network in nameservers"
                    ),
                )
            }
        }
    };
    translators.iter().map(line).collect()
}

/// Checks that the anchor answers: as the running host has found, else by asking for its QUIC versions, which it
/// reports to any client.
pub(crate) fn reachability(
    anchor: &[SocketAddr],
    running: Option<&Status<Tunnels>>,
) -> Vec<Finding> {
    if let Some(status) = running {
        let at = status.body.anchor.as_deref().unwrap_or("no anchor");
        return vec![match &status.body.trouble {
            _ if status.body.registered => ok("anchor", format!("registered at {at}")),
            Some(trouble) => todo("anchor", format!("not registered: {}", trouble.why)),
            None => todo("anchor", format!("not registered at {at} yet: see segue status")),
        }];
    }
    if anchor.is_empty() {
        return vec![unknown("anchor", "none is known: name one with --anchor ADDR")];
    }
    let answers: Vec<(SocketAddr, Result<Duration, String>)> =
        anchor.iter().map(|address| (*address, ask(*address))).collect();
    let reached = answers.iter().any(|(_, answer)| answer.is_ok());
    let line = |(address, answer): (SocketAddr, Result<Duration, String>)| match answer {
        Ok(rtt) => {
            ok("anchor", format!("{address} answers after {:.1} ms", rtt.as_secs_f64() * 1e3))
        }
        // One reachable address is enough.
        Err(why) if reached => ok("anchor", format!("{address} does not ({why}), another does")),
        Err(why) => todo("anchor", format!("{address}: {why}")),
    };
    answers.into_iter().map(line).collect()
}

/// Explains why a registered host has no working path.
pub(crate) fn without_path(status: &Status<Tunnels>) -> Option<Finding> {
    let works = status.body.paths.iter().any(|path| ["up", "unwatched"].contains(&&*path.state));
    let trouble = status.body.trouble.as_ref().filter(|_| status.body.registered && !works)?;
    Some(todo("paths", &*trouble.why))
}

/// Measures the round trip of a version negotiation (RFC 9000, section 6).
fn ask(address: SocketAddr) -> Result<Duration, String> {
    let local: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0)).map_err(told)?;
    socket.connect(address).map_err(|error| format!("{}: there is no route to it", told(error)))?;
    socket.set_read_timeout(Some(PAUSE)).map_err(told)?;
    let mut asked: Vec<Instant> = Vec::new();
    while asked.first().is_none_or(|first| first.elapsed() < PATIENCE) {
        let request = unknown_version(asked.len() as u8);
        asked.push(Instant::now());
        let answer = socket.send(&request).and_then(|_| {
            let mut buffer = [0; 1_500];
            let length = socket.recv(&mut buffer)?;
            Ok(negotiation(&buffer[..length]).and_then(|number| asked.get(usize::from(number))))
        });
        match answer {
            Ok(Some(begun)) => return Ok(begun.elapsed()),
            Ok(None) => {
                return Err("something answers that is no anchor: is the port right?".into());
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(
                    "the machine answers, but nothing listens there: is the anchor running?".into(),
                );
            }
            Err(error) if UNANSWERED.contains(&error.kind()) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Err(format!(
        "no answer: is the anchor running, and does a firewall let UDP {} through?",
        address.port()
    ))
}

/// Connection IDs of the request; the response swaps them. Our ID is followed by the number of the request.
const OURS: [u8; 7] = *b"segue-d";
const THEIRS: [u8; 8] = *b"anchor??";

/// An initial packet of a version that is reserved to force version negotiation.
fn unknown_version(number: u8) -> [u8; 1_200] {
    let mut packet = [0; 1_200];
    packet[0] = 0xc0;
    packet[1..5].copy_from_slice(&0x5a5a_5a5a_u32.to_be_bytes());
    packet[5] = 8;
    packet[6..14].copy_from_slice(&THEIRS);
    packet[14] = 8;
    packet[15..22].copy_from_slice(&OURS);
    packet[22] = number;
    packet
}

/// The number of the request that this packet answers, if it is a version negotiation packet for us.
fn negotiation(packet: &[u8]) -> Option<u8> {
    let is = packet.len() >= 27
        && packet[0] & 0x80 != 0
        && packet[1..5] == [0; 4]
        && packet[6..13] == OURS
        && packet[15..23] == THEIRS;
    is.then(|| packet[13])
}

/// The interfaces that would carry paths, and the packet sizes that fit.
pub(crate) fn host_ways(
    interfaces: &[Device],
    anchor: &[SocketAddr],
    (settings, translators): (&host::Settings, &[TranslatorStatus]),
    running: Option<&Status<Tunnels>>,
) -> Vec<Finding> {
    let listed = &settings.common.interfaces;
    let translated = translators.iter().any(|known| known.prefix.is_some());
    let wanted = |d: &&Device| listed.is_empty() || listed.contains(&d.interface.name);
    let is_there = |name: &&String| interfaces.iter().any(|d| d.interface.name == **name);
    let mut all = Vec::new();
    for missing in listed.iter().filter(|name| !is_there(name)) {
        all.push(todo(
            "access",
            format!("there is no interface {missing}: correct interfaces in the file"),
        ));
    }
    for v6 in [false, true] {
        let family = if v6 { "IPv6" } else { "IPv4" };
        let anchor = anchor.iter().map(SocketAddr::ip).find(|ip| ip.is_ipv6() == v6);
        let any: IpAddr = if v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
        } else {
            Ipv4Addr::new(192, 0, 2, 1).into()
        };
        // If the anchor is unknown, any address that is not local shows where packets go.
        let to = anchor.unwrap_or(any);
        let used: Vec<(&Device, Vec<Way>)> = physical(interfaces)
            .filter(wanted)
            .map(|device| (device, ways(device, to, listed.contains(&device.interface.name))))
            .collect();
        let (used, unused): (Vec<_>, Vec<_>) =
            used.into_iter().partition(|(_, ways)| !ways.is_empty());
        let names = used.iter().map(|(device, _)| device.interface.name.as_str());
        let names = names.collect::<Vec<&str>>().join(", ");
        let why = unused.iter().filter_map(|(device, _)| why_unused(device, v6));
        all.extend(why.map(|why| todo("access", format!("{family}: {why}"))));
        for (device, ways) in &used {
            all.extend(source(device, ways, settings, running));
            let paths = running.into_iter().flat_map(|status| &status.body.paths);
            let mut own = paths.filter(|path| path.name == device.interface.name);
            all.extend(unfound(device, ways).map(|why| match own.any(|path| path.state == "up") {
                true => ok("access", why),
                false => todo("access", why),
            }));
        }
        all.push(match (names.is_empty(), anchor.is_some()) {
            (false, true) => ok("access", format!("{family} to the anchor over {names}")),
            (false, false) => ok("access", format!("{family} out over {names}")),
            (true, true) if !v6 && translated => {
                ok("access", "no IPv4 here: a translator shows the anchor in IPv6")
            }
            (true, true) => todo(
                "access",
                format!("{family}: no interface has an address and a route to the anchor"),
            ),
            (true, false) => ok("access", format!("no {family} here")),
        });
    }
    let v6 = anchor.iter().any(SocketAddr::is_ipv6);
    let access = interfaces.iter().filter(|d| is_access(d, &settings.tunnel.device)).filter(wanted);
    all.extend(access.map(|d| room(&d.interface, v6)));
    all
}

/// The flows whose data a path drops although probes pass.
pub(crate) fn filtered(status: &Status<Tunnels>) -> Vec<Finding> {
    let advice = "a firewall, translator or policer on the way matches what is inside the tunnel, its code point or its size";
    let found = status.body.filtered.iter();
    found.map(|filter| todo("filter", format!("{filter}; {advice}"))).collect()
}

/// The source address of packets over a device and the reason for it, if it is worth reporting.
fn source(
    device: &Device,
    ways: &[Way],
    settings: &host::Settings,
    running: Option<&Status<Tunnels>>,
) -> Option<Finding> {
    let name = &device.interface.name;
    let first = ways.first()?;
    let configured = settings.paths.get(name).and_then(|path| path.source);
    let configured = configured.filter(|own| own.is_ipv6() == first.source.is_ipv6());
    if let Some(own) = configured {
        return Some(match ways.iter().any(|way| way.source == own) {
            true => ok("source", format!("{name}: from {own}, as configured")),
            false => todo("source", missing_source(name, own)),
        });
    }
    let path = running.and_then(|status| status.body.paths.iter().find(|path| path.name == *name));
    let tried = path.filter(|path| path.source == "tried").and_then(|path| path.local.as_ref());
    let tried = tried.and_then(|local| ways.iter().find(|way| way.source.to_string() == *local));
    let way = tried.unwrap_or(first);
    let mut why = Vec::new();
    if tried.is_some() {
        why.push(format!(
            "{} was not answered at the last try; name the right one with path.{name}.source",
            first.source
        ));
    } else if ways.len() > 1 {
        let others: Vec<String> = ways[1..].iter().map(|way| way.source.to_string()).collect();
        why.push(format!("which the routes prefer to {}", others.join(", ")));
    }
    if device.deprecated.contains(&way.source) {
        why.push("which is deprecated: there is no better one".into());
    }
    if way.table != MAIN_TABLE {
        why.push(format!("by routing table {}", way.table));
    }
    let why = why.join("; ");
    (!why.is_empty()).then(|| ok("source", format!("{name}: from {}, {why}", way.source)))
}

/// Rules and routes of other programs that divert the host's packets.
pub(crate) fn others(interfaces: &[Device], settings: &host::Settings) -> Vec<Finding> {
    let found = match rivals(interfaces) {
        Ok(found) => found,
        Err(error) => return vec![unknown("routing", told(error))],
    };
    let number = Number::of(&settings.tunnel.device);
    let place = Place::of(number, settings.priority, settings.fail_closed, &found);
    let conflicts = conflicts(&found, place, settings.fail_closed);
    if conflicts.is_empty() {
        return vec![ok("routing", "no other program's tunnel wants the host's packets")];
    }
    let line = |Conflict { text, is_serious }: Conflict| match is_serious {
        true => todo("routing", text),
        false => ok("routing", text),
    };
    conflicts.into_iter().map(line).collect()
}

/// Checks that the running daemon clamps the segment size of forwarded TCP connections to its tunnel.
pub(crate) fn clamp(running: Option<&Status<Tunnels>>) -> Option<Finding> {
    const CHECK: &str = "segment sizes";
    let device = &running?.body.device;
    let forwards = |path| read_flag(path).as_deref() == Some("1");
    if !FORWARDING.into_iter().any(forwards) {
        return Some(ok(CHECK, "this machine forwards nothing, so that none need fitting"));
    }
    Some(match clamp::is_whole(device) {
        Some(true) => {
            ok(CHECK, format!("nftables fits forwarded TCP connections to what {device} takes"))
        }
        Some(false) => todo(
            CHECK,
            format!(
                "forwarded TCP connections stand still where ICMP is filtered: {} is not in nftables as the daemon \
                 set it; something flushed it (reloading a firewall may), or the daemon started without nftables; \
                 restart the daemon",
                clamp::table_of(device)
            ),
        ),
        None if nft::version().is_err() => todo(
            CHECK,
            "forwarded TCP connections stand still where ICMP is filtered: nftables is missing; install it (package \
             nftables), and restart the daemon",
        ),
        None => unknown(
            CHECK,
            "the tables of nftables cannot be read: run this as root, and see what nft list tables says",
        ),
    })
}

/// Checks that the guard of a running user-space daemon against packets outside the tunnel still exists.
pub(crate) fn guard(running: Option<&Status<Tunnels>>) -> Option<Finding> {
    let status =
        running.filter(|status| status.body.datapath == "user" && !status.body.inner.is_empty())?;
    let Some(there) = past::is_there(&status.body.device) else {
        return Some(match nft::version() {
            Err(_) => todo(
                "past tunnel",
                "nothing drops plain packets to and from inner addresses: nftables is missing; install it (package \
                 nftables), and restart the daemon",
            ),
            Ok(_) => unknown(
                "past tunnel",
                "the tables of nftables cannot be read: run this as root, and see what nft list tables says",
            ),
        });
    };
    Some(match there {
        true => ok("past tunnel", "nftables drops plain packets to and from inner addresses"),
        false => todo(
            "past tunnel",
            "nothing drops plain packets to and from inner addresses: something removed the table that does, or the \
             daemon started without nftables; restart it",
        ),
    })
}

/// An interface that may carry paths.
fn is_access(device: &Device, tunnel: &str) -> bool {
    device.up
        && !device.loopback
        && device.interface.name != tunnel
        && !device.interface.addresses.is_empty()
}

/// The space that an interface leaves for inner packets. The tunnel adapts to the MTU of its paths, but IPv6 requires a
/// minimum.
fn room(interface: &Interface, v6: bool) -> Finding {
    let Interface { name, mtu_bytes: outer, .. } = interface;
    let room = outer.saturating_sub(OVERHEAD[usize::from(v6)]);
    let said = format!("{name}: {outer} bytes, {room} of them for inner packets");
    match room >= LEAST_INNER.into() {
        true => ok("mtu", said),
        false => todo(
            "mtu",
            format!(
                "{said}, and IPv6 needs {LEAST_INNER}: it is used where there is nothing else, and for IPv4 alone; raise its MTU if its network takes more"
            ),
        ),
    }
}

/// Checks that an anchor's machine has an uplink, and that its hosts can use it.
pub(crate) fn anchor_ways(
    interfaces: &[Device],
    settings: &anchor::Settings,
    running: Option<&Status<Tunnels>>,
) -> anyhow::Result<Vec<Finding>> {
    let mut all = Vec::new();
    // Ask the running anchor rather than the file: `--nat` is not in the file, and other programs
    // flush tables.
    let translates = running.and_then(|status| nat::is_there(&status.body.device));
    for (v6, pool) in [(false, &settings.pool_v4), (true, &settings.pool_v6)] {
        let family = if v6 { "IPv6" } else { "IPv4" };
        let Some(pool) = pool else {
            all.push(ok("way out", format!("{family}: hosts get none (no pool)")));
            continue;
        };
        let any: IpAddr =
            if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let ways = physical_candidates(interfaces, any);
        let out: Vec<&str> = ways.iter().map(|d| d.interface.name.as_str()).collect();
        if out.is_empty() {
            all.push(no_way_out(v6));
            continue;
        }
        let network = pool.prefix();
        let back = match (translates.unwrap_or(settings.nat), nat::is_private(network.addr)) {
            (false, true) if settings.nat => todo(
                "way back",
                format!(
                    "{network} is not translated: something removed the anchor's table from nftables, or the anchor started without nat = true; restart the anchor"
                ),
            ),
            (true, true) if v6 => ok("way back", format!("{network} is translated (NAT66)")),
            (true, true) => ok("way back", format!("{network} is translated")),
            (false, true) => todo(
                "way back",
                format!(
                    "{network} is private and not translated: set nat = true, unless networks outside route it here"
                ),
            ),
            (_, false) => unknown(
                "way back",
                format!("{network} is public: networks outside must route it here"),
            ),
        };
        all.push(forwarding(v6, &out.join(", "), running));
        all.push(back);
        let of_ways = ways.iter().map(|d| &d.interface);
        all.extend(of_ways.filter_map(|i| ignores_advertisements(v6, i, running)));
    }
    if settings.nat {
        all.push(match nft::version() {
            Ok(version) => ok("nftables", version),
            Err(error) => todo(
                "nftables",
                format!("{}: install it (package nftables), nat = true needs it", told(error)),
            ),
        });
    }
    let access = interfaces.iter().filter(|d| is_access(d, &settings.tunnel.device));
    let listed = &settings.common.interfaces;
    let served = |i: &&Interface| listed.is_empty() || listed.contains(&i.name);
    let served = access.map(|d| &d.interface).filter(served);
    all.extend(served.map(|i| room(i, i.addresses.iter().any(IpAddr::is_ipv6))));
    Ok(all)
}

fn read_flag(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
}

fn forwarding(v6: bool, out: &str, running: Option<&Status<Tunnels>>) -> Finding {
    let (family, path) = (["IPv4", "IPv6"][usize::from(v6)], FORWARDING[usize::from(v6)]);
    match (read_flag(path).as_deref(), running) {
        (Some("1"), _) => ok("way out", format!("{family} over {out}, forwarded")),
        (_, None) => {
            ok("way out", format!("{family} over {out}; the anchor's start switches forwarding on"))
        }
        (_, Some(_)) => todo(
            "way out",
            format!(
                "{family} is not forwarded although the anchor runs: something switched {path} off; restart the anchor"
            ),
        ),
    }
}

/// With `accept_ra` = 1, enabling forwarding makes the kernel ignore router advertisements, which loses the default
/// route.
fn ignores_advertisements(
    v6: bool,
    interface: &Interface,
    running: Option<&Status<Tunnels>>,
) -> Option<Finding> {
    let name = &interface.name;
    let path = format!("/proc/sys/net/ipv6/conf/{name}/accept_ra");
    let forwards = read_flag(&format!("/proc/sys/net/ipv6/conf/{name}/forwarding"))?;
    // If the machine forwards already, its default route does not come from router advertisements.
    let concerned = v6 && running.is_none() && forwards == "0" && read_flag(&path)? == "1";
    let by_router =
        |gateway: &IpAddr| matches!(gateway, IpAddr::V6(a) if a.is_unicast_link_local());
    let learned = || interface.gateways.iter().any(by_router);
    (concerned && learned()).then(|| {
        todo(
            "way out",
            format!("IPv6 over {name} may come from router advertisements, which end when the anchor forwards: sysctl net.ipv6.conf.{name}.accept_ra=2"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::finding::Verdict;

    #[test]
    fn a_port_beside_a_closed_control_socket_is_not_judged() {
        let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let number = taken.local_addr().unwrap().port();
        assert_eq!(port("port", number, None, None).verdict, Verdict::Todo);
        let found = port("port", number, None, Some("host.sock is closed to you"));
        assert_eq!(found.verdict, Verdict::Unknown);
        assert!(found.text.ends_with("host.sock is closed to you"), "{}", found.text);
    }

    #[test]
    fn only_a_negotiation_with_our_identifiers_is_an_answer() {
        let mut answer = vec![0x80, 0, 0, 0, 0, 8];
        answer.extend(OURS);
        answer.push(3);
        answer.push(8);
        answer.extend(THEIRS);
        answer.extend([0, 0, 0, 1]);
        assert_eq!(negotiation(&answer), Some(3));
        assert_eq!(negotiation(&unknown_version(0)), None);
        assert_eq!(negotiation(&answer[..26]), None);
        answer[4] = 1;
        assert_eq!(negotiation(&answer), None);
    }
}
