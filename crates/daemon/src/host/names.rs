//! Resolves the anchor's names. The name servers are queried over every interface at once and outside the tunnel, since
//! it is not yet known which interface works. The system's resolver is also asked, because it has more sources than
//! name servers. The same queries find an access's translator (RFC 7050).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustls::crypto::ring::default_provider;
use segue_ip::Pref64;
use segue_linux::monitor::{Device, physical};
use segue_text::errors::Told;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, ResourceRecord, TYPE};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::packets::MARK;
use crate::signalling;
use crate::ways::ways;

/// Transmissions of a question, and the timeout of each.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest duration of a lookup, and how long it waits for other answers after the first, so that an attacker's
/// false address is not the only one.
const IN_ALL: Duration = Duration::from_secs(5);
const OTHERS: Duration = Duration::from_millis(300);
/// Most addresses to try.
const MOST: usize = 8;
/// Longest answer over UDP without extensions (RFC 1035, 4.2.1), with room for servers that exceed it.
const LONGEST: usize = 1_500;
/// A name with IPv4 addresses only, so that an IPv6 address for it reveals a translator's prefix (RFC 7050).
const IPV4_ONLY: &str = "ipv4only.arpa";
/// The shortest and the longest lifetime of such an answer, in seconds.
const LIFETIME_S: (u32, u32) = (60, 3_600);
/// The file with the system's name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS: u16 = 53;

/// A name of the anchor, and its port.
pub(super) type Named = (String, u16);

/// A name server, and the interface over which it is queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameServer {
    address: IpAddr,
    interface: String,
    /// Source address of queries.
    source: IpAddr,
}

impl std::fmt::Display for NameServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} over {}", self.address, self.interface)
    }
}

/// The name servers, each over every interface that has a route to it. If the operator names no servers, the system's
/// are used. Servers on this machine, such as systemd-resolved, are left to the system's resolver.
pub(super) fn name_servers(
    servers: &[IpAddr],
    all: &[Device],
    wanted: &[String],
) -> Vec<NameServer> {
    let of_system = if servers.is_empty() { system_servers() } else { Vec::new() };
    let servers = servers.iter().chain(&of_system).filter(|server| !server.is_loopback());
    let over = |address: &IpAddr| {
        let address = *address;
        let listed = |name| wanted.is_empty() || wanted.contains(name);
        let devices = physical(all).filter(move |device| listed(&device.interface.name));
        let way = move |device: &Device| {
            let interface = device.interface.name.clone();
            let source = ways(device, address, wanted.contains(&interface)).first()?.source;
            Some(NameServer { address, interface, source })
        };
        devices.filter_map(way)
    };
    servers.flat_map(over).collect()
}

/// The servers in `resolv.conf`. Servers with link-local addresses are left to the system's resolver.
fn system_servers() -> Vec<IpAddr> {
    let text = std::fs::read(RESOLV_CONF).unwrap_or_default();
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    let global = |server: &IpAddr| !matches!(server, IpAddr::V6(v6) if v6.is_unicast_link_local());
    config.nameservers.iter().map(IpAddr::from).filter(global).collect()
}

/// Resolves these names; IPv4 addresses come first.
///
/// # Errors
/// Nothing was found: the failures of each server.
pub(super) async fn find(
    names: &[Named],
    servers: &[NameServer],
) -> anyhow::Result<Vec<SocketAddr>> {
    let mut asked = JoinSet::new();
    for server in servers {
        let (names, server) = (names.to_vec(), server.clone());
        asked.spawn(async move { addresses(&names, &server).await });
    }
    for (name, port) in names.iter().cloned() {
        asked.spawn(async move {
            let found = tokio::net::lookup_host((name.as_str(), port)).await;
            found.map(Vec::from_iter).map_err(|_| anyhow!("the system does not know {name}"))
        });
    }
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let mut until = Instant::now() + IN_ALL;
    while let Ok(Some(done)) = timeout_at(until, asked.join_next()).await {
        match done.map_err(anyhow::Error::from).and_then(|answered| answered) {
            Ok(addresses) => {
                until = until.min(Instant::now() + OTHERS);
                found.extend(addresses);
            }
            Err(error) => wrong.push(Told(&error).to_string()),
        }
    }
    found.sort_unstable_by_key(|address: &SocketAddr| (address.is_ipv6(), *address));
    found.dedup();
    found.truncate(MOST);
    if found.is_empty() {
        wrong.sort_unstable();
        wrong.dedup();
        let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
        let wrong = if wrong.is_empty() { "no answer".into() } else { wrong.join("; ") };
        bail!("where the anchor's name {} leads is not known: {wrong}", names.join(", "));
    }
    Ok(found)
}

/// A translator's prefixes, as learned from a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The prefixes with valid forms, in the order of the answer; empty if there is no translator.
    pub(super) prefixes: Vec<Pref64>,
    /// Time until the next query.
    pub(super) lifetime: Duration,
    /// The server that answered.
    pub(super) by: String,
}

/// The translator's prefixes according to these name servers, all of one access (RFC 7050, section 3), or according to
/// the system's resolver without a server. The first server with a prefix that `fits` is believed.
///
/// # Errors
/// No server answered: the failures of each.
pub(super) async fn translation(
    servers: &[NameServer],
    fits: impl Fn(&Pref64) -> bool,
) -> anyhow::Result<Translation> {
    let mut asked = JoinSet::new();
    for server in servers {
        let server = server.clone();
        asked.spawn(async move {
            let answers = ask(&[Question { name: IPV4_ONLY, v6: true }], &server).await?;
            let (_, answer) = answers.into_iter().next().context("no answer")?;
            anyhow::Ok(shown(&answer, format!("the name server {server}")))
        });
    }
    if servers.is_empty() {
        asked.spawn(async {
            // The final dot prevents the use of a search list.
            let found = tokio::net::lookup_host((format!("{IPV4_ONLY}."), 0)).await;
            let found = found.map_err(|_| anyhow!("the system does not know {IPV4_ONLY}"))?;
            let addresses = found.map(|address| address.ip()).collect();
            Ok(shown(&Answer { addresses, ttl_s: 0 }, "the system's resolver".into()))
        });
    }
    let (mut without, mut wrong) = (None, Vec::new());
    let until = Instant::now() + IN_ALL;
    while let Ok(Some(done)) = timeout_at(until, asked.join_next()).await {
        let mut shown = done.map_err(anyhow::Error::from).and_then(|shown| shown);
        shown.iter_mut().for_each(|translation| translation.prefixes.retain(&fits));
        match shown {
            Ok(translation) if translation.prefixes.is_empty() => without = Some(translation),
            Ok(translation) => return Ok(translation),
            Err(error) => wrong.push(Told(&error).to_string()),
        }
    }
    wrong.sort_unstable();
    wrong.dedup();
    let why = if wrong.is_empty() { "no answer".into() } else { wrong.join("; ") };
    without.ok_or(anyhow!(why))
}

/// The translator's prefixes in an answer.
fn shown(answer: &Answer, by: String) -> Translation {
    let v6 = answer.addresses.iter().filter_map(|address| match address {
        IpAddr::V6(v6) => Some(*v6),
        IpAddr::V4(_) => None,
    });
    let lifetime_s = answer.ttl_s.clamp(LIFETIME_S.0, LIFETIME_S.1);
    let lifetime = Duration::from_secs(lifetime_s.into());
    Translation { prefixes: v6.filter_map(Pref64::of_well_known).collect(), lifetime, by }
}

/// Resolves these names, with their ports, at this server.
async fn addresses(names: &[Named], server: &NameServer) -> anyhow::Result<Vec<SocketAddr>> {
    let questions: Vec<Question<'_>> =
        names.iter().flat_map(|(name, _)| [false, true].map(|v6| Question { name, v6 })).collect();
    let mut found = Vec::new();
    for (at, Answer { addresses, .. }) in ask(&questions, server).await? {
        let port = names[at / 2].1;
        found.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)));
    }
    if found.is_empty() {
        bail!("the name server {server} knows no address");
    }
    Ok(found)
}

/// A question for the addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question<'a> {
    name: &'a str,
    v6: bool,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    addresses: Vec<IpAddr>,
    /// The shortest lifetime of an address in it, 0 without one.
    ttl_s: u32,
}

/// Sends all questions to a server; returns each answer with the index of its question.
///
/// # Errors
/// No question was answered.
async fn ask(
    questions: &[Question<'_>],
    server: &NameServer,
) -> anyhow::Result<Vec<(usize, Answer)>> {
    let socket =
        signalling::socket(server.address.is_ipv6(), &server.interface, Some(server.source), MARK)?;
    let socket = UdpSocket::from_std(socket)?;
    let unanswered = || format!("no answer from the name server {server}");
    socket.connect(SocketAddr::new(server.address, DNS)).await.with_context(unanswered)?;
    let mut open = BTreeMap::new();
    for place in 0..questions.len() {
        let mut free = number()?;
        while open.contains_key(&free) {
            free = number()?;
        }
        open.insert(free, place);
    }
    let mut found = Vec::new();
    for _ in 0..TRIES {
        for (number, place) in &open {
            socket.send(&question(*number, questions[*place])?).await.with_context(unanswered)?;
        }
        let answers = async {
            let mut buffer = [0; LONGEST];
            while !open.is_empty() {
                let len = socket.recv(&mut buffer).await?;
                let asked = |number| open.get(&number).map(|place| questions[*place]);
                let Some((number, answer)) = answer(&buffer[..len], asked) else { continue };
                found.extend(open.remove(&number).map(|place| (place, answer)));
            }
            anyhow::Ok(())
        };
        if let Ok(done) = timeout(PATIENCE, answers).await {
            done.with_context(unanswered)?;
            break;
        }
    }
    if found.is_empty() { bail!(unanswered()) } else { Ok(found) }
}

/// An unpredictable query ID.
fn number() -> anyhow::Result<u16> {
    let mut bytes = [0; 2];
    let random = default_provider().secure_random.fill(&mut bytes);
    random.map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(u16::from_ne_bytes(bytes))
}

/// Encodes a question.
fn question(number: u16, Question { name, v6 }: Question<'_>) -> anyhow::Result<Vec<u8>> {
    let mut packet = Packet::new_query(number);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = if v6 { TYPE::AAAA } else { TYPE::A };
    let question =
        simple_dns::Question::new(Name::new(name)?, kind.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    Ok(packet.build_bytes_vec()?)
}

/// Parses an answer and its query ID; `asked` returns the question with that ID. The server follows aliases, so the
/// addresses may belong to another name.
fn answer<'a>(bytes: &[u8], asked: impl Fn(u16) -> Option<Question<'a>>) -> Option<(u16, Answer)> {
    let packet = Packet::parse(bytes).ok()?;
    let Question { name, v6 } = asked(packet.id())?;
    let [question] = packet.questions.as_slice() else { return None };
    let same = question.qname.to_string().eq_ignore_ascii_case(name);
    let kind = if v6 { TYPE::AAAA } else { TYPE::A };
    if !packet.has_flags(PacketFlag::RESPONSE) || !same || question.qtype != kind.into() {
        return None;
    }
    let address = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::A(a) if !v6 => Some((IpAddr::from(a.address.to_be_bytes()), record.ttl)),
        RData::AAAA(aaaa) if v6 => Some((IpAddr::from(aaaa.address.to_be_bytes()), record.ttl)),
        _ => None,
    };
    let (addresses, ttls): (Vec<IpAddr>, Vec<u32>) =
        packet.answers.iter().filter_map(address).take(MOST).unzip();
    let ttl_s = ttls.into_iter().min().unwrap_or(0);
    Some((packet.id(), Answer { addresses, ttl_s }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::{A, AAAA, CNAME};

    use super::*;

    const NAME: &str = "anchor.example.net";

    fn reply(number: u16, name: &'static str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_reply(number);
        let name = Name::new(name).unwrap();
        let question =
            simple_dns::Question::new(name.clone(), kind.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        let other = Name::new("host7.example.org").unwrap();
        let records = [
            (name, RData::CNAME(CNAME(other.clone()))),
            (other, RData::A(A { address: 0xc000_0201 })),
        ];
        packet.answers =
            records.map(|(name, data)| ResourceRecord::new(name, CLASS::IN, 60, data)).to_vec();
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn asked(number: u16) -> Option<Question<'static>> {
        let asked = [(7, false), (8, true)].into_iter().find(|(n, _)| *n == number);
        asked.map(|(_, v6)| Question { name: NAME, v6 })
    }

    fn of(addresses: &[IpAddr], ttl_s: u32) -> Answer {
        Answer { addresses: addresses.to_vec(), ttl_s }
    }

    #[test]
    fn an_answer_to_what_was_asked_gives_its_addresses() {
        let found = Some((7, of(&[IpAddr::from([192, 0, 2, 1])], 60)));
        assert_eq!(answer(&reply(7, NAME, TYPE::A), asked), found);
        assert_eq!(answer(&reply(7, "Anchor.EXAMPLE.net", TYPE::A), asked), found);
        assert_eq!(answer(&reply(8, NAME, TYPE::AAAA), asked), Some((8, of(&[], 0))));
    }

    #[test]
    fn an_answer_counts_as_long_as_its_shortest_record() {
        let mut packet = Packet::new_reply(8);
        let name = Name::new(NAME).unwrap();
        let question =
            simple_dns::Question::new(name.clone(), TYPE::AAAA.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        for (last, ttl) in [(1, 900), (2, 30), (3, 300)] {
            let data = RData::AAAA(AAAA { address: (0x2001_0db8 << 96) | last });
            packet.answers.push(ResourceRecord::new(name.clone(), CLASS::IN, ttl, data));
        }
        let (_, read) = answer(&packet.build_bytes_vec().unwrap(), asked).unwrap();
        assert_eq!((read.addresses.len(), read.ttl_s), (3, 30));
    }

    #[test]
    fn only_addresses_with_the_well_known_ones_in_them_show_a_translator() {
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        let said = |addresses: &[IpAddr], ttl_s| shown(&of(addresses, ttl_s), "it".into());
        let mixed =
            ["2001:db8::1", "192.0.0.170", "64:ff9b::c000:aa", "::ffff:192.0.0.170"].map(v6);
        for (ttl_s, lifetime_s) in [(0, 60), (59, 60), (600, 600), (u32::MAX, 3_600)] {
            let Translation { prefixes, lifetime, by } = said(&mixed, ttl_s);
            let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
            assert_eq!((&*prefixes.join(" "), &*by), ("64:ff9b::/96", "it"));
            assert_eq!(lifetime, Duration::from_secs(lifetime_s));
        }
        for none in [&mixed[..2], &mixed[3..], &[]] {
            assert_eq!(said(none, 600).prefixes, []);
        }
    }

    #[test]
    fn what_answers_nothing_that_was_asked_is_ignored() {
        assert_eq!(answer(&reply(9, NAME, TYPE::A), asked), None, "number");
        assert_eq!(answer(&reply(7, "anchor.example.org", TYPE::A), asked), None, "name");
        assert_eq!(answer(&reply(7, NAME, TYPE::AAAA), asked), None, "family");
        let own = question(7, Question { name: NAME, v6: false }).unwrap();
        assert_eq!(answer(&own, asked), None, "a question");
        let whole = reply(7, NAME, TYPE::A);
        for len in 0..whole.len() {
            assert_eq!(answer(&whole[..len], asked), None, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..200, byte: u8) {
            let _ = answer(&bytes, |_| asked(7));
            let mut spoilt = reply(7, NAME, TYPE::A);
            let at = at % spoilt.len();
            spoilt[at] = byte;
            let _ = answer(&spoilt, |_| asked(7));
        }
    }
}
