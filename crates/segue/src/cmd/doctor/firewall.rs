//! What the packet filter of this machine (nftables, and iptables over it) does to the tunnel.

use segue_linux::nft;

use super::finding::{Finding, ok, todo, told, unknown};

const CHECK: &str = "firewall";
/// Prefix of the tables of our own daemons.
const OURS: &str = "segue_";

/// A chain of a filter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chain {
    /// `FAMILY TABLE`.
    table: String,
    name: String,
    /// Where the kernel calls it: `input`, `forward` and others; empty if other chains do.
    hook: String,
    /// It drops what no rule accepts.
    drops: bool,
    rules: Vec<String>,
}

impl Chain {
    /// As nft's commands name it.
    fn place(&self) -> String {
        format!("{} {}", self.table, self.name)
    }

    fn is_ours(&self) -> bool {
        self.table.split(' ').nth(1).is_some_and(|name| name.starts_with(OURS))
    }
}

/// The chains in a ruleset as nft prints it.
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

/// Whether a rule is about this port, alone, in a set, or in a range.
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

fn refuses(rule: &str) -> bool {
    rule.split_whitespace().any(|word| word == "drop" || word == "reject")
}

/// Whether the filter lets these UDP ports in, as far as its rules say.
fn input(chains: &[Chain], ports: &[u16]) -> Finding {
    let all: Vec<String> = ports.iter().map(u16::to_string).collect();
    let (list, set, all) = (all.join(","), all.join(", "), all.join(" and "));
    let rules = || chains.iter().flat_map(|chain| &chain.rules);
    let named = |port: u16, verdict: fn(&str) -> bool| {
        rules().find(|rule| names_port(rule, port) && verdict(rule))
    };
    for port in ports.iter().copied() {
        if let Some(rule) = named(port, refuses) {
            return todo(
                CHECK,
                format!("a rule keeps UDP {port} out, which hosts need: {rule}; remove it"),
            );
        }
    }
    let closed = chains.iter().find(|chain| chain.hook == "input" && chain.drops);
    let missing: Vec<String> =
        ports.iter().filter(|port| named(**port, accepts).is_none()).map(u16::to_string).collect();
    match closed {
        Some(chain) if !missing.is_empty() => {
            let how = if chains.iter().any(|chain| chain.name.starts_with("ufw-")) {
                ports
                    .iter()
                    .map(|port| format!("ufw allow {port}/udp"))
                    .collect::<Vec<_>>()
                    .join("; ")
            } else if chain.name == "INPUT" {
                format!(
                    "iptables -I INPUT -p udp -m multiport --dports {list} -j ACCEPT, and ip6tables"
                )
            } else {
                format!("nft insert rule {} udp dport {{ {set} }} accept", chain.place())
            };
            todo(
                CHECK,
                format!(
                    "{} drops what no rule accepts, and none accepts UDP {}, which hosts need: {how}",
                    chain.place(),
                    missing.join(" and ")
                ),
            )
        }
        Some(_) => ok(CHECK, format!("lets UDP {all} in")),
        None => ok(
            CHECK,
            format!(
                "none on this machine drops UDP {all}; to test from outside, run segue doctor \
                     --anchor ADDR elsewhere"
            ),
        ),
    }
}

/// Whether the filter lets packets of hosts through this machine: Docker and ufw drop them.
fn forward(chains: &[Chain], device: &str) -> Option<Finding> {
    let chain = chains.iter().find(|chain| chain.hook == "forward" && chain.drops)?;
    let passes = |way: &str| {
        let named = [format!("{way} \"{device}\""), format!("{way} {device}")];
        let rules = chains.iter().flat_map(|chain| &chain.rules);
        rules.clone().any(|rule| named.iter().any(|n| rule.contains(n)) && accepts(rule))
    };
    if passes("iifname") && passes("oifname") {
        return Some(ok(CHECK, format!("forwards what leaves and enters {device}")));
    }
    let has = |name: &str| chains.iter().any(|chain| chain.name == name);
    let (whose, how) = if has("DOCKER-USER") {
        let rule = |way| format!("iptables -I DOCKER-USER {way} {device} -j ACCEPT");
        ("Docker", format!("{}; {}", rule("-i"), rule("-o")))
    } else if has("ufw-user-forward") {
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

/// What stands in the way of hosts at an anchor with these ports (of tunnels and of signalling) and this tunnel device.
pub(super) fn at_anchor(ports: &[u16], device: &str) -> Vec<Finding> {
    match nft::ruleset() {
        Err(error) => vec![unknown(CHECK, format!("its rules cannot be read: {}", told(error)))],
        Ok(ruleset) => {
            let chains = chains(&ruleset);
            [input(&chains, ports)].into_iter().chain(forward(&chains, device)).collect()
        }
    }
}

/// Whether a host's own filter keeps the anchor's packets out.
pub(super) fn at_host(port: u16) -> Option<Finding> {
    let chains = chains(&nft::ruleset().ok()?);
    let refused =
        |chain: &&Chain| chain.rules.iter().any(|rule| names_port(rule, port) && refuses(rule));
    let chain = chains.iter().find(refused)?;
    let place = chain.place();
    Some(todo(
        CHECK,
        format!("a rule in {place} drops UDP {port}, which the tunnel needs: remove it"),
    ))
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
        let found = forward(&chains(DOCKER), "segue0").unwrap();
        assert_eq!(found.verdict, Verdict::Todo);
        assert!(found.text.starts_with("Docker drops"), "{}", found.text);
        assert!(
            found.text.contains("iptables -I DOCKER-USER -i segue0 -j ACCEPT"),
            "{}",
            found.text
        );
        let rules = "iifname \"segue0\" counter packets 0 bytes 0 accept\n\t\toifname \"segue0\" counter packets 0 bytes 0 accept\n\t\tcounter";
        let mended = DOCKER.replacen("counter", rules, 1);
        assert_eq!(forward(&chains(&mended), "segue0").unwrap().verdict, Verdict::Ok);
        assert_eq!(forward(&chains(&mended), "segue1").unwrap().verdict, Verdict::Todo);
        assert!(
            forward(&chains(&DOCKER.replace("policy drop", "policy accept")), "segue0").is_none()
        );
        let ufw = forward(&chains(&DOCKER.replace("DOCKER-USER", "ufw-user-forward")), "segue0");
        assert!(ufw.unwrap().text.contains("ufw route allow in on segue0"));
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
        ] {
            let found = filter(policy, rule);
            assert_eq!(found.verdict, verdict, "{policy} {rule}: {}", found.text);
        }
        let found = filter("drop", "udp dport 5006 accept");
        assert!(found.text.contains("none accepts UDP 5005,"), "{}", found.text);
        assert!(
            found
                .text
                .contains("nft insert rule inet filter input udp dport { 5005, 5006 } accept")
        );
    }
}
