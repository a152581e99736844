//! Resolves the anchor's names. It asks the name servers over every interface at once and outside
//! the tunnel, since it is not known yet which interface works. It also asks the system, which
//! knows more than name servers do.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustls::crypto::ring::default_provider;
use segue_linux::monitor::{Device, physical};
use segue_text::errors::Told;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, TYPE};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::packets::MARK;
use crate::signalling;
use crate::ways::ways;

/// How often a question is asked, and how long each waits for its answer.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest that a lookup takes, and how long it waits for other answers after the first: an
/// attacker's false address is then not the only one.
const IN_ALL: Duration = Duration::from_secs(5);
const OTHERS: Duration = Duration::from_millis(300);
/// Addresses that are tried.
const MOST: usize = 8;
/// Longest answer over UDP without extensions (RFC 1035, 4.2.1), with room for careless servers.
const LONGEST: usize = 1_500;
/// Lists the system's name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS: u16 = 53;

/// A name of the anchor, and its port.
pub(super) type Named = (String, u16);

/// A name server, and the interface over which it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameServer {
    address: IpAddr,
    interface: String,
    /// Where the question comes from.
    source: IpAddr,
}

impl std::fmt::Display for NameServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} over {}", self.address, self.interface)
    }
}

/// The name servers, each over every interface that has a route to it. If the operator
/// names no servers, the system's are used. Servers on this machine, such as systemd-resolved, are
/// left to the system.
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

/// What `resolv.conf` says. Servers with link-local addresses are left to the system.
fn system_servers() -> Vec<IpAddr> {
    let text = std::fs::read(RESOLV_CONF).unwrap_or_default();
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    let global = |server: &IpAddr| !matches!(server, IpAddr::V6(v6) if v6.is_unicast_link_local());
    config.nameservers.iter().map(IpAddr::from).filter(global).collect()
}

/// The addresses of these names, IPv4 first.
///
/// # Errors
/// If nothing was found: what went wrong with each server.
pub(super) async fn find(
    names: &[Named],
    servers: &[NameServer],
) -> anyhow::Result<Vec<SocketAddr>> {
    let mut asked = JoinSet::new();
    for server in servers {
        let (names, server) = (names.to_vec(), server.clone());
        asked.spawn(async move { ask(&names, &server).await });
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

/// A question without an answer so far.
struct Open<'a> {
    named: &'a Named,
    v6: bool,
}

async fn ask(names: &[Named], server: &NameServer) -> anyhow::Result<Vec<SocketAddr>> {
    let socket =
        signalling::socket(server.address.is_ipv6(), &server.interface, Some(server.source), MARK)?;
    let socket = UdpSocket::from_std(socket)?;
    let unanswered = || format!("no answer from the name server {server}");
    socket.connect(SocketAddr::new(server.address, DNS)).await.with_context(unanswered)?;
    let mut open = BTreeMap::new();
    for named in names {
        for v6 in [false, true] {
            let mut free = number()?;
            while open.contains_key(&free) {
                free = number()?;
            }
            open.insert(free, Open { named, v6 });
        }
    }
    let mut found = Vec::new();
    let mut answered = false;
    for _ in 0..TRIES {
        for (number, Open { named, v6 }) in &open {
            socket.send(&question(*number, &named.0, *v6)?).await.with_context(unanswered)?;
        }
        let answers = async {
            let mut buffer = [0; LONGEST];
            while !open.is_empty() {
                let len = socket.recv(&mut buffer).await?;
                let Some((number, addresses)) = answer(&buffer[..len], |number| {
                    open.get(&number).map(|open| (open.named.0.as_str(), open.v6))
                }) else {
                    continue;
                };
                if let Some(Open { named, .. }) = open.remove(&number) {
                    answered = true;
                    found.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, named.1)));
                }
            }
            anyhow::Ok(())
        };
        if let Ok(done) = timeout(PATIENCE, answers).await {
            done.with_context(unanswered)?;
            break;
        }
    }
    match (found.is_empty(), answered) {
        (false, _) => Ok(found),
        (true, true) => bail!("the name server {server} knows no address"),
        (true, false) => bail!(unanswered()),
    }
}

/// An unpredictable query number.
fn number() -> anyhow::Result<u16> {
    let mut bytes = [0; 2];
    let random = default_provider().secure_random.fill(&mut bytes);
    random.map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(u16::from_ne_bytes(bytes))
}

/// A question for the addresses of one family.
fn question(number: u16, name: &str, v6: bool) -> anyhow::Result<Vec<u8>> {
    let mut packet = Packet::new_query(number);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = if v6 { TYPE::AAAA } else { TYPE::A };
    let question = Question::new(Name::new(name)?, kind.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    Ok(packet.build_bytes_vec()?)
}

/// The number of an answer and the addresses in it; `asked` gives the name and family of a
/// question. The server follows aliases, so the addresses may belong to another name.
fn answer<'a>(
    bytes: &[u8],
    asked: impl Fn(u16) -> Option<(&'a str, bool)>,
) -> Option<(u16, Vec<IpAddr>)> {
    let packet = Packet::parse(bytes).ok()?;
    let (name, v6) = asked(packet.id())?;
    let [question] = packet.questions.as_slice() else { return None };
    let same = question.qname.to_string().eq_ignore_ascii_case(name);
    let kind = if v6 { TYPE::AAAA } else { TYPE::A };
    if !packet.has_flags(PacketFlag::RESPONSE) || !same || question.qtype != kind.into() {
        return None;
    }
    let addresses = packet.answers.iter().filter_map(|record| match &record.rdata {
        RData::A(a) if !v6 => Some(IpAddr::from(a.address.to_be_bytes())),
        RData::AAAA(aaaa) if v6 => Some(IpAddr::from(aaaa.address.to_be_bytes())),
        _ => None,
    });
    Some((packet.id(), addresses.take(MOST).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, CNAME};

    use super::*;

    const NAME: &str = "anchor.example.net";

    fn reply(number: u16, name: &'static str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_reply(number);
        let name = Name::new(name).unwrap();
        packet.questions.push(Question::new(name.clone(), kind.into(), CLASS::IN.into(), false));
        let other = Name::new("host7.example.org").unwrap();
        let records = [
            (name, RData::CNAME(CNAME(other.clone()))),
            (other, RData::A(A { address: 0xc000_0201 })),
        ];
        packet.answers =
            records.map(|(name, data)| ResourceRecord::new(name, CLASS::IN, 60, data)).to_vec();
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn asked(number: u16) -> Option<(&'static str, bool)> {
        [(7, false), (8, true)].into_iter().find(|(n, _)| *n == number).map(|(_, v6)| (NAME, v6))
    }

    #[test]
    fn an_answer_to_what_was_asked_gives_its_addresses() {
        let addresses = Some((7, vec![IpAddr::from([192, 0, 2, 1])]));
        assert_eq!(answer(&reply(7, NAME, TYPE::A), asked), addresses);
        assert_eq!(answer(&reply(7, "Anchor.EXAMPLE.net", TYPE::A), asked), addresses);
        assert_eq!(answer(&reply(8, NAME, TYPE::AAAA), asked), Some((8, vec![])));
    }

    #[test]
    fn what_answers_nothing_that_was_asked_is_ignored() {
        assert_eq!(answer(&reply(9, NAME, TYPE::A), asked), None, "number");
        assert_eq!(answer(&reply(7, "anchor.example.org", TYPE::A), asked), None, "name");
        assert_eq!(answer(&reply(7, NAME, TYPE::AAAA), asked), None, "family");
        assert_eq!(answer(&question(7, NAME, false).unwrap(), asked), None, "a question");
        let whole = reply(7, NAME, TYPE::A);
        for len in 0..whole.len() {
            assert_eq!(answer(&whole[..len], asked), None, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..200, byte: u8) {
            let _ = answer(&bytes, |_| Some((NAME, false)));
            let mut spoilt = reply(7, NAME, TYPE::A);
            let at = at % spoilt.len();
            spoilt[at] = byte;
            let _ = answer(&spoilt, |_| Some((NAME, false)));
        }
    }
}
