//! Examines how this machine's packet filter (nftables, and iptables on top of it) treats tunnel packets.

use segue_linux::nft;

use super::finding::{Finding, ok, todo, told, unknown};

const CHECK: &str = "firewall";
/// Name prefix of our own daemons' tables.
const OURS: &str = "segue_";

/// A chain of the packet filter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chain {
    /// `FAMILY TABLE`.
    table: String,
    name: String,
    /// The hook from which the kernel calls the chain, for example `input` or `forward`; empty if only other chains
    /// call it.
    hook: String,
    /// The chain drops packets that no rule accepts.
    drops: bool,
    rules: Vec<String>,
}

impl Chain {
    /// The chain in the notation of nft commands.
    fn place(&self) -> String {
        format!("{} {}", self.table, self.name)
    }

    fn is_ours(&self) -> bool {
        self.table.split(' ').nth(1).is_some_and(|name| name.starts_with(OURS))
    }
}

/// Parses the chains in a ruleset as nft prints it.
fn chains(ruleset: &str) -> Vec<Chain> {
    let (mut all, mut table): (Vec<Chain>, _) = (Vec::new(), String::new());
    let mut inside = false;
    for line in ruleset.lines().map(str::trim) {
        let opens =
            |what: &str| Some(line.strip_prefix(what)?.strip_suffix('{')?.trim().to_owned());
        if let Some(name) = opens("table ") {
            table = name;
        } else if let Some(name) = opens("chain ") {
            all.push(Chain { table: table.clone(), name, ..Chain::default() });
            inside = true;
        } else if line == "}" {
            inside = false;
        } else if let Some(chain) = all.last_mut().filter(|_| inside) {
            if line.starts_with("type ") {
                let mut words = line.split_whitespace().skip_while(|word| *word != "hook");
                chain.hook = words.nth(1).unwrap_or_default().to_owned();
                chain.drops = line.contains("policy drop");
            } else {
                chain.rules.push(line.to_owned());
            }
        }
    }
    all.retain(|chain| !chain.is_ours());
    all
}

/// True if a rule matches this port alone, in a set, or in a range.
fn names_port(rule: &str, port: u16) -> bool {
    let Some((before, after)) = rule.split_once("dport ") else { return false };
    let of_udp = !before.trim_end().ends_with("tcp");
    let ports = after.trim_start_matches('{').split(['}', '"']).next().unwrap_or_default();
    let ports =
        if after.starts_with('{') { ports } else { after.split(' ').next().unwrap_or_default() };
    let covers = |part: &str| match part.trim().split_once('-') {
        Some((first, last)) => {
            let bounds = (first.trim().parse::<u16>(), last.trim().parse::<u16>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&port))
        }
        None => part.trim().parse() == Ok(port),
    };
    of_udp && ports.split(',').any(covers)
}

fn accepts(rule: &str) -> bool {
    rule.split_whitespace().any(|word| word == "accept")
}

/// The effect of a rule on UDP packets to a port.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    Accept,
    /// Refuses this port specifically.
    Refuse,
    /// Refuses every packet.
    Close,
    Jump(String),
    Return,
    /// Matches other packets, or only counts.
    Nothing,
    /// Matches the port and a further condition that is not evaluated.
    Unknown,
}

/// Returns the effect of a rule on a port, if it matches on nothing but protocol and port.
fn does(rule: &str, port: u16) -> Does {
    let mut words: Vec<&str> = rule.split_whitespace().collect();
    // Remove words that do not affect the verdict.
    if let Some(at) = words.iter().position(|word| *word == "comment") {
        words.truncate(at);
    }
    if let Some(at) = words.iter().position(|word| *word == "counter") {
        words.drain(at..(at + 5).min(words.len()));
    }
    let is_verdict =
        |word: &&str| matches!(*word, "accept" | "drop" | "reject" | "jump" | "goto" | "return");
    let Some(at) = words.iter().position(is_verdict) else { return Does::Nothing };
    let matches = words[..at].join(" ");
    let udp = ["meta l4proto udp ", "ip protocol udp ", "ip6 nexthdr udp "];
    let bare = udp.iter().find_map(|first| matches.strip_prefix(first)).unwrap_or(&matches);
    let all = matches.is_empty() || udp.iter().any(|only| only.trim_end() == matches);
    let named = names_port(&matches, port);
    let by_name = named && (bare.starts_with("udp dport ") || bare.starts_with("th dport ")) && {
        // Nothing may follow the port or the set of ports.
        let ports = bare.split_once("dport ").map_or("", |(_, ports)| ports);
        if ports.starts_with('{') { ports.ends_with('}') } else { !ports.contains(' ') }
    };
    match (words[at], all, by_name) {
        (_, false, false) if named || matches.contains("dport @") => Does::Unknown,
        (_, false, false) => Does::Nothing,
        ("accept", ..) => Does::Accept,
        ("jump" | "goto", ..) => Does::Jump(words.get(at + 1).copied().unwrap_or("").into()),
        ("return", ..) => Does::Return,
        (_, true, _) => Does::Close,
        _ => Does::Refuse,
    }
}

/// The outcome for UDP packets to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// No rule here decides.
    On,
    In,
    /// A rule refuses the port.
    Refused(String),
    /// The default of this chain refuses the port: no rule accepts it.
    Closed(String),
    /// A rule decides by a condition that is not evaluated.
    Unknown(String),
}

/// Returns the outcome for a port in a chain and the chains that it calls. `depth` limits recursion for rulesets that
/// call themselves.
fn fate(chains: &[Chain], chain: &Chain, port: u16, depth: usize) -> Fate {
    let mut unknown = None;
    for rule in &chain.rules {
        let found = match does(rule, port) {
            Does::Accept => Fate::In,
            Does::Refuse => Fate::Refused(rule.clone()),
            Does::Close => Fate::Closed(chain.place()),
            Does::Jump(name) if depth > 0 => {
                let called = |c: &&Chain| c.table == chain.table && c.name == name;
                let called = chains.iter().find(called);
                called.map_or(Fate::On, |called| fate(chains, called, port, depth - 1))
            }
            Does::Return => return unknown.map_or(Fate::On, Fate::Unknown),
            Does::Unknown => Fate::Unknown(rule.clone()),
            Does::Jump(_) | Does::Nothing => Fate::On,
        };
        match found {
            Fate::On => {}
            Fate::Unknown(rule) => unknown = unknown.or(Some(rule)),
            decided => return unknown.map_or(decided, Fate::Unknown),
        }
    }
    match unknown {
        Some(rule) => Fate::Unknown(rule),
        None if chain.drops => Fate::Closed(chain.place()),
        None => Fate::On,
    }
}

/// The most restrictive result of the input chains, since a packet passes through all of them.
fn worst(chains: &[Chain], port: u16) -> Fate {
    let input = chains.iter().filter(|chain| chain.hook == "input");
    let fates: Vec<Fate> = input.map(|chain| fate(chains, chain, port, 8)).collect();
    let of = |is: fn(&Fate) -> bool| fates.iter().find(|fate| is(fate)).cloned();
    of(|fate| matches!(fate, Fate::Refused(_) | Fate::Closed(_)))
        .or_else(|| of(|fate| matches!(fate, Fate::Unknown(_))))
        .or_else(|| of(|fate| *fate == Fate::In))
        .unwrap_or(Fate::On)
}

/// Checks that the filter accepts these UDP ports, as far as its rules show.
fn input(chains: &[Chain], ports: &[u16]) -> Finding {
    let all: Vec<String> = ports.iter().map(u16::to_string).collect();
    let (list, set, all) = (all.join(","), all.join(", "), all.join(" and "));
    let fates: Vec<(u16, Fate)> = ports.iter().map(|port| (*port, worst(chains, *port))).collect();
    let outside = "to test from outside, run segue doctor --anchor ADDR elsewhere";
    for (port, fate) in &fates {
        if let Fate::Refused(rule) = fate {
            return todo(
                CHECK,
                format!("a rule keeps UDP {port} out, which hosts need: {rule}; remove it"),
            );
        }
    }
    let closed = |(port, fate): &(u16, Fate)| match fate {
        Fate::Closed(place) => Some((port.to_string(), place.clone())),
        _ => None,
    };
    let (missing, places): (Vec<String>, Vec<String>) = fates.iter().filter_map(closed).unzip();
    if let Some(place) = places.first() {
        let how = if chains.iter().any(|chain| chain.name.starts_with("ufw-")) {
            let each: Vec<String> =
                ports.iter().map(|port| format!("ufw allow {port}/udp")).collect();
            each.join("; ")
        } else if place.contains(" firewalld ") {
            let each = ports.iter().map(|port| format!("--add-port={port}/udp"));
            format!(
                "firewall-cmd --permanent {}; firewall-cmd --reload",
                each.collect::<Vec<_>>().join(" ")
            )
        } else if place.ends_with(" INPUT") {
            format!(
                "iptables -I INPUT -p udp -m multiport --dports {list} -j ACCEPT, and ip6tables"
            )
        } else {
            format!("nft insert rule {place} udp dport {{ {set} }} accept")
        };
        let missing = missing.join(" and ");
        return todo(
            CHECK,
            format!(
                "{place} refuses what no rule accepts, and none accepts UDP {missing}, which hosts need: {how}"
            ),
        );
    }
    let unknown_rule = fates.iter().find_map(|(port, fate)| match fate {
        Fate::Unknown(rule) => Some((port, rule)),
        _ => None,
    });
    match unknown_rule {
        Some((port, rule)) => unknown(
            CHECK,
            format!(
                "whether UDP {port} comes in depends on what is not looked at: {rule}; {outside}"
            ),
        ),
        None if fates.iter().all(|(_, fate)| *fate == Fate::In) => {
            ok(CHECK, format!("lets UDP {all} in"))
        }
        None => ok(CHECK, format!("none on this machine drops UDP {all}; {outside}")),
    }
}

/// Checks that the filter forwards packets of hosts through this machine, for each family. Docker and ufw drop them.
fn forward(chains: &[Chain], device: &str) -> Vec<Finding> {
    let families = [("ip", "iptables"), ("ip6", "ip6tables")];
    let mut found: Vec<Finding> = Vec::new();
    for (family, tool) in families {
        let sees = |chain: &&Chain| matches!(chain.table.split(' ').next(), Some(of) if of == family || of == "inet");
        let own: Vec<&Chain> = chains.iter().filter(sees).collect();
        let finding = forward_in(&own, device, tool);
        // A table of both families is reported once.
        found.extend(finding.filter(|finding| !found.contains(finding)));
    }
    found
}

/// True if a rule matches the packets that enter or leave by a device, alone or in a set. `keys` are nft's words for that
/// direction.
fn names_device(rule: &str, keys: [&str; 2], device: &str) -> bool {
    let mut words = rule.split_whitespace().skip_while(|word| !keys.contains(word)).skip(1);
    let names: Vec<&str> = match words.next() {
        Some("{") => words.take_while(|word| *word != "}").collect(),
        one => one.into_iter().collect(),
    };
    names.iter().any(|name| {
        let name = name.trim_matches(['"', ',']);
        name.strip_suffix('*').map_or(name == device, |start| device.starts_with(start))
    })
}

/// Whether a chain, or one that it jumps to, accepts the packets that pass a device in the direction of `keys`; `None`
/// if no rule decides. `depth` limits recursion.
fn passes(
    chains: &[&Chain],
    chain: &Chain,
    (keys, device): ([&str; 2], &str),
    depth: usize,
) -> Option<bool> {
    for rule in &chain.rules {
        let named = names_device(rule, keys, device);
        if named && accepts(rule) {
            return Some(true);
        }
        let of_all = !rule.contains("udp");
        let called = match does(rule, 0) {
            Does::Accept if of_all => return Some(true),
            Does::Close if of_all => return Some(false),
            Does::Return if of_all => return None,
            Does::Jump(name) => name,
            _ if named => jump(rule),
            _ => continue,
        };
        let called = chains.iter().find(|c| c.table == chain.table && c.name == called);
        let called = called.filter(|_| depth > 0);
        let decided = called.and_then(|called| passes(chains, called, (keys, device), depth - 1));
        if decided.is_some() {
            return decided;
        }
    }
    None
}

/// The chain that a rule calls; empty if it calls none.
fn jump(rule: &str) -> String {
    let mut words = rule.split_whitespace().skip_while(|word| !["jump", "goto"].contains(word));
    words.nth(1).unwrap_or_default().to_owned()
}

/// Like [`forward`], for the chains of one family and the tool that manages them.
fn forward_in(chains: &[&Chain], device: &str, tool: &str) -> Option<Finding> {
    let closes = |chain: &&&Chain| {
        chain.drops || chain.rules.iter().any(|rule| does(rule, 0) == Does::Close)
    };
    let of_forward = chains.iter().filter(|chain| chain.hook == "forward");
    let closing: Vec<&&Chain> = of_forward.filter(closes).collect();
    let lets = |chain: &Chain, keys| passes(chains, chain, (keys, device), 8) == Some(true);
    let lets_both =
        |chain: &Chain| lets(chain, ["iifname", "iif"]) && lets(chain, ["oifname", "oif"]);
    closing.first()?;
    let Some(chain) = closing.iter().find(|chain| !lets_both(chain)) else {
        return Some(ok(CHECK, format!("forwards what leaves and enters {device}")));
    };
    let has =
        |name: &str| chains.iter().any(|other| other.table == chain.table && other.name == name);
    let (whose, how) = if has("DOCKER-USER") {
        let rule = |way| format!("{tool} -I DOCKER-USER {way} {device} -j ACCEPT");
        ("Docker", format!("{}; {}", rule("-i"), rule("-o")))
    } else if has("ufw-user-forward") || has("ufw6-user-forward") {
        ("ufw", format!("ufw route allow in on {device}; ufw route allow out on {device}"))
    } else {
        let rule = |way| format!("nft insert rule {} {way} {device} accept", chain.place());
        ("a firewall", format!("{}; {}", rule("iifname"), rule("oifname")))
    };
    Some(todo(
        CHECK,
        format!(
            "{whose} drops what this machine forwards ({}), so that hosts reach nothing behind the anchor: {how}",
            chain.place()
        ),
    ))
}

/// Checks whether the filter blocks hosts at an anchor with these ports (of tunnels and of signalling) and this tunnel
/// device.
pub(crate) fn at_anchor(ports: &[u16], device: &str) -> Vec<Finding> {
    match nft::ruleset() {
        Err(error) => vec![unknown(CHECK, format!("its rules cannot be read: {}", told(error)))],
        Ok(ruleset) => {
            let chains = chains(&ruleset);
            [vec![input(&chains, ports)], forward(&chains, device)].concat()
        }
    }
}

/// Checks whether a host's own filter blocks packets from the anchor.
pub(crate) fn at_host(port: u16) -> Option<Finding> {
    let chains = chains(&nft::ruleset().ok()?);
    let Fate::Refused(rule) = worst(&chains, port) else { return None };
    Some(todo(CHECK, format!("a rule drops UDP {port}, which the tunnel needs: {rule}; remove it")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::finding::Verdict;

    const DOCKER: &str = "table ip filter {\n\tchain DOCKER-USER {\n\t\tcounter packets 0 bytes 0 return\n\t}\n\
         \tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\
         \t\tcounter packets 3 bytes 180 jump DOCKER-USER\n\t}\n}\n\
         table inet segue_clamp_segue0 {\n\tchain forwarded {\n\t\ttype filter hook forward priority mangle; policy accept;\n\t}\n}\n";

    #[test]
    fn dockers_policy_is_told_with_the_rule_to_add_until_it_is_there() {
        let forward = |ruleset: &str, device| forward(&chains(ruleset), device);
        let found = &forward(DOCKER, "segue0")[0];
        assert_eq!(found.verdict, Verdict::Todo);
        assert!(found.text.starts_with("Docker drops"), "{}", found.text);
        assert!(
            found.text.contains("iptables -I DOCKER-USER -i segue0 -j ACCEPT"),
            "{}",
            found.text
        );
        let rules = "iifname \"segue0\" counter packets 0 bytes 0 accept\n\t\toifname \"segue0\" counter packets 0 bytes 0 accept\n\t\tcounter";
        let mended = DOCKER.replacen("counter", rules, 1);
        assert_eq!(forward(&mended, "segue0")[0].verdict, Verdict::Ok);
        assert_eq!(forward(&mended, "segue1")[0].verdict, Verdict::Todo);
        assert!(forward(&DOCKER.replace("policy drop", "policy accept"), "segue0").is_empty());
        let ufw = &forward(&DOCKER.replace("DOCKER-USER", "ufw-user-forward"), "segue0")[0];
        assert!(ufw.text.contains("ufw route allow in on segue0"));
    }

    #[test]
    fn only_rules_that_forwarded_packets_meet_let_them_through() {
        let verdict = |rules: &str, hook: &str| {
            let text = format!(
                "table inet f {{\n\tchain through {{\n\t\t{hook}\n\t\tiifname \"segue0\" accept\n\t\t\
                 oifname \"segue0\" accept\n\t}}\n\
                 \tchain forward {{\n\t\ttype filter hook forward priority 0; policy drop;\n\
                 \t\t{rules}\n\t}}\n}}\n"
            );
            forward(&chains(&text), "segue0")[0].verdict
        };
        let both = |of: &str| format!("iifname {of} accept\n\t\toifname {of} accept");
        for (rules, wanted) in [
            ("", Verdict::Todo),
            ("jump through", Verdict::Ok),
            ("iifname \"segue0\" jump through\n\t\toifname \"segue0\" goto through", Verdict::Ok),
            ("iifname \"eth0\" jump through", Verdict::Todo),
            ("drop\n\t\tjump through", Verdict::Todo),
            ("counter packets 1 bytes 2 accept", Verdict::Ok),
            ("meta l4proto udp accept", Verdict::Todo),
            (both("{ \"segue0\", \"x\" }").as_str(), Verdict::Ok),
            (both("{ \"x\", \"segue0\" }").as_str(), Verdict::Ok),
            (both("\"segue*\"").as_str(), Verdict::Ok),
            (both("{ \"segue1\", \"x\" }").as_str(), Verdict::Todo),
            (both("!= \"segue0\"").as_str(), Verdict::Todo),
            ("iifname \"segue0\" accept", Verdict::Todo),
        ] {
            assert_eq!(verdict(rules, ""), wanted, "{rules}");
        }
        let input = "type filter hook input priority 0; policy drop;";
        assert_eq!(verdict("", input), Verdict::Todo, "rules for other packets");
    }

    #[test]
    fn each_family_is_told_of_with_its_own_tool() {
        let forward = |ruleset: &str| forward(&chains(ruleset), "segue0");
        let rules = "iifname \"segue0\" accept\n\t\toifname \"segue0\" accept\n\t\tcounter";
        let v6 = DOCKER.replace("table ip ", "table ip6 ");
        let found = forward(&(DOCKER.replacen("counter", rules, 1) + &v6));
        assert_eq!(found[0].verdict, Verdict::Ok);
        assert!(
            found[1].text.contains("ip6tables -I DOCKER-USER -i segue0 -j ACCEPT"),
            "{}",
            found[1].text
        );
        assert_eq!(forward(&(DOCKER.to_owned() + &v6)).len(), 2);
        let both = forward(&DOCKER.replace("table ip ", "table inet "));
        assert_eq!(both.len(), 2, "a tool for each family");
        let plain = "table inet f {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\n";
        assert_eq!(forward(plain).len(), 1, "one table of both families");
    }

    #[test]
    fn a_closed_port_is_found_by_policy_or_rule() {
        let filter = |policy: &str, rule: &str| {
            let text = format!(
                "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{rule}\n\t}}\n}}\n"
            );
            input(&chains(&text), &[5005, 5006])
        };
        for (policy, rule, verdict) in [
            ("accept", "", Verdict::Ok),
            ("drop", "", Verdict::Todo),
            ("drop", "udp dport 5006 accept", Verdict::Todo),
            ("drop", "tcp dport { 5005, 5006 } accept", Verdict::Todo),
            ("drop", "udp dport { 5005, 5006 } accept", Verdict::Ok),
            ("drop", "udp dport 5000-5010 accept", Verdict::Ok),
            ("drop", "udp dport { 53, 5005-5006 } counter packets 0 bytes 0 accept", Verdict::Ok),
            ("accept", "udp dport 5005 drop", Verdict::Todo),
            ("accept", "udp dport 50055 drop", Verdict::Ok),
            (
                "accept",
                "tcp dport 22 accept\n\t\treject with icmpx admin-prohibited",
                Verdict::Todo,
            ),
            ("accept", "counter packets 3 bytes 9 drop comment \"rest\"", Verdict::Todo),
            ("drop", "meta l4proto udp accept", Verdict::Ok),
            ("drop", "ct state established,related accept", Verdict::Todo),
            ("accept", "udp dport 5005 limit rate over 50000/second drop", Verdict::Unknown),
            ("drop", "iifname \"mgmt0\" udp dport { 5005, 5006 } accept", Verdict::Unknown),
            ("drop", "udp dport @ports accept", Verdict::Unknown),
        ] {
            let found = filter(policy, rule);
            assert_eq!(found.verdict, verdict, "{policy} {rule}: {}", found.text);
        }
        let output = "table inet filter {\n\tchain out {\n\t\ttype filter hook output priority 0; policy accept;\n\t\t\
             udp dport 5005 drop\n\t}\n}\n";
        assert_eq!(input(&chains(output), &[5005]).verdict, Verdict::Ok, "what leaves");
        let called = "table inet filter {\n\tchain ports {\n\t\tudp dport { 5005, 5006 } accept\n\t}\n\
             \tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tjump ports\n\t}\n}\n";
        assert_eq!(input(&chains(called), &[5005, 5006]).verdict, Verdict::Ok, "in another chain");
        let found = filter("drop", "udp dport 5006 accept");
        assert!(found.text.contains("none accepts UDP 5005,"), "{}", found.text);
        assert!(
            found
                .text
                .contains("nft insert rule inet filter input udp dport { 5005, 5006 } accept")
        );
    }
}
