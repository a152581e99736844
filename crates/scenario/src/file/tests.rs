use super::*;

/// Line 1 is the duration; `[[node]]` tables from line 2 on have 2 lines each, the link from line 8 on 3.
const BASE: &str = "duration = \"10s\"
[[node]]
name = \"a\"
[[node]]
name = \"r\"
transit = true
[[node]]
name = \"b\"
[[link]]
name = \"wifi\"
ends = [\"a\", \"r\"]
[[link]]
name = \"wire\"
ends = [\"r:lan\", \"b\"]
";

/// The error for the base followed by `rest`.
fn refusal(rest: &str) -> String {
    let error = Scenario::parse(&format!("{BASE}{rest}\n"), "s.toml").err();
    error.unwrap_or_else(|| panic!("taken: {rest}")).to_string()
}

/// The error for the base with one text replaced.
fn refusal_with(old: &str, new: &str) -> String {
    assert!(BASE.contains(old));
    let error = Scenario::parse(&BASE.replacen(old, new, 1), "s.toml").err();
    error.unwrap_or_else(|| panic!("taken: {new}")).to_string()
}

fn sets(sets: &[(&str, &str)]) -> Vec<(String, String)> {
    sets.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[test]
fn a_mistake_is_told_in_one_line_with_file_line_and_key() {
    let behind = NETWORK.iter().chain(APPS).chain(MOBILE);
    let behind = behind.map(|(rest, expected)| (refusal(rest), *expected));
    let within = FORM.iter().map(|(old, new, expected)| (refusal_with(old, new), *expected));
    let wrong: Vec<_> = behind
        .chain(within)
        .filter(|(error, expected)| *error != format!("s.toml:{expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_mistake_that_resembles_nothing_is_told_with_all_that_there_is() {
    for (rest, expected) in [
        ("[[foobar]]", "15: foobar: unknown key (known: seed, duration, sweep, node, link, cell,"),
        (
            "[[event]]\nno_such_key = 1",
            "16: event.1.no_such_key: unknown key (known: at, cut, way,",
        ),
        (
            "[[event]]\nat = \"1s\"",
            "16: event.1.at: an event is one of cut, mend, stall, attach, detach,",
        ),
    ] {
        let error = refusal(rest);
        assert!(error.starts_with(&format!("s.toml:{expected}")), "{error}");
    }
}

/// Additions to the base, each with the expected error.
const NETWORK: &[(&str, &str)] = &[
    ("delay = \"10\"", "15: link.wire.delay: \"10\" has no unit: write for example 100ms or 1.5s"),
    ("dely = \"10ms\"", "15: link.wire.dely: unknown key (did you mean delay?)"),
    ("rate = \"-5mbit\"", "15: link.wire.rate: \"-5mbit\" is negative"),
    ("rate = \"0mbit\"", "15: link.wire.rate: the rate is 0 (to drop everything use silent)"),
    (
        "rate = \"5mb\"",
        "15: link.wire.rate: \"5mb\": \"mb\" is no unit of a rate (bit, kbit, mbit, gbit, tbit)",
    ),
    ("loss = \"120%\"", "15: link.wire.loss: \"120%\" is more than 100 %"),
    (
        "up = { loss = { p = \"1%\", r = 2.0 } }",
        "15: link.wire.up.loss.r: \"2\" is more than 100 %",
    ),
    (
        "loss = [3, 2]",
        "13: link.wire.name: up: entry 2 of the loss list is not above the one before it",
    ),
    (
        "loss = { trace = \"no.txt\" }",
        "15: link.wire.loss: cannot read no.txt: No such file or directory (os error 2)",
    ),
    ("loss = { trace = \"no.txt\", p = 0.5 }", "15: link.wire.loss: a trace stands alone"),
    ("queue = -1", "15: link.wire.queue: a queue holds 0 packets or more, up to 4294967295"),
    ("queue = { byte = 5 }", "15: link.wire.queue.byte: unknown key (did you mean bytes?)"),
    (
        "queue = { bytes = 5, delay = \"1s\" }",
        "15: link.wire.queue: a queue is bounded by either bytes or delay",
    ),
    (
        "addresses = [[\"10.0.0.1\"], [\"10.0.0\"]]",
        "15: link.wire.addresses: \"10.0.0\" is no address",
    ),
    (
        "addresses = [[\"10.0.0.1\"], [\"10.0.0.1\"]]",
        "15: link.wire.addresses: r has the address 10.0.0.1",
    ),
    (
        "addresses = [[\"10.0.0.1\"], [\"0.0.0.0\"]]",
        "15: link.wire.addresses: 0.0.0.0 is no address of a node",
    ),
    (
        "[[link]]\nname = \"l\"\nends = [\"a\", \"c\"]",
        "17: link.l.ends: there is no node c (known: a, b, r)",
    ),
    ("[[link]]\nname = \"l\"\nends = [\"a\", \"a\"]", "17: link.l.ends: a link from a to itself"),
    (
        "[[link]]\nname = \"l\"\nends = [\"a:x\", \"a:y\"]",
        "17: link.l.ends: a link from a to itself",
    ),
    (
        "[[link]]\nname = \"wifi\"\nends = [\"a\", \"b\"]",
        "16: link.wifi.name: there is another link wifi",
    ),
    ("[[link]]\nends = [\"a\", \"b\"]", "15: link.3: the key name is missing"),
    (
        "[[link]]\nname = \"l\"\nends = [\"a\", \"b:\"]",
        "17: link.l.ends: \"b:\" is no end of a link: write node or node:interface",
    ),
    ("[[node]]\nname = \"a\"", "16: node.a.name: there is another node a"),
    ("[[node]]\nname = \"a b\"", "16: node.a b.name: \"a b\": a name has letters, digits, - and _"),
    ("[[node]]\nname = 5", "16: node.4.name: invalid type: integer `5`, expected a string"),
    ("[[nod]]\nname = \"x\"", "15: nod: unknown key (did you mean node?)"),
    (
        "[[node]]\nname = \"c\"\nno_such_key = 1",
        "17: node.c.no_such_key: unknown key (known: name, addresses, router, transit, routes)",
    ),
    ("[[event]]\ncut = \"wifi\"", "15: event.1: the key at is missing"),
    (
        "[[node]]\nname = \"c\"\nroutes = [\"default via 10.0.0.1\"]",
        "17: node.c.routes: routes are for segue lab: write a [[route]]",
    ),
    (
        "[[node]]\nname = \"c\"\nroutes = [\"default\"]",
        "17: node.c.routes: \"default\" is no route: write PREFIX|default via GATEWAY [metric N]",
    ),
    ("seed = 5", "15: link.wire.seed: a run has one seed, at the top"),
    (
        "[[event]]\nat = \"11s\"\ncut = \"wifi\"",
        "16: event.1.at: the run has ended by then, at 10.000 s",
    ),
    (
        "[[event]]\nat = \"1s\"\ncut = \"wif\"",
        "17: event.1.cut: there is no link wif (did you mean wifi?)",
    ),
    (
        "[[event]]\nat = \"1s\"\ncut = \"wifi\"\nway = \"left\"",
        "18: event.1.way: unknown variant `left`, expected one of `up`, `down`, `both`",
    ),
    (
        "[[route]]\nnode = \"a\"\nvia = \"eth0\"",
        "17: route.1.via: a has no interface or neighbour eth0 (known: wifi)",
    ),
    (
        "[[route]]\nnode = \"a\"\nvia = \"r\"\ndscp = 64",
        "18: route.1.dscp: must lie between 0 and 63",
    ),
    (
        "[[route]]\nnode = \"a\"\nvia = \"r\"\nto = \"10.0.0.0/33\"",
        "18: route.1.to: \"10.0.0.0/33\" is no prefix: write ADDRESS/LENGTH, or an address",
    ),
];

/// Additions with applications, each with the expected error.
const APPS: &[(&str, &str)] = &[
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"c\"",
        "18: voip.c.to: there is no node c (known: a, b, r)",
    ),
    ("[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"a\"", "18: voip.c.to: a with itself"),
    (
        "[[voip]]\nname = \"link\"\nfrom = \"a\"\nto = \"b\"",
        "16: voip.link.name: link is the name of other results",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a:x\"\nto = \"b\"",
        "17: voip.c.from: a has no interface x (known: wifi)",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a:wifi\"\nto = \"b\"",
        "17: voip.c.from: a:wifi has no address of its own",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nport = 0",
        "19: voip.c.port: a port lies between 1 and 65535",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nport = 5000\n[[conference]]\nname = \"d\"\nfrom = \"a\"\nto = \"b\"\nport = 4999",
        "24: conference.d.port: port 5000 of b is used by c",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\n[[tcp]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"",
        "16: voip.c.name: something else has the name c",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nstart = \"2s\"\nstop = \"1s\"",
        "20: voip.c.stop: it stops before it starts",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\ndscp = 64",
        "19: voip.c.dscp: must lie between 0 and 63",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\npacket_interval = \"0ms\"",
        "19: voip.c.packet_interval: must be above 0",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nloss_after = \"0ms\"",
        "19: voip.c.loss_after: must be above zero",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nhandovers = [\"2s\", \"1s\"]",
        "19: voip.c.handovers: it is not later than the one before it",
    ),
    (
        "[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\nspurts = \"p60\"",
        "19: voip.c.spurts: invalid value: string \"p60\", expected \"p59\", \"goodman-wei\", or { talk, pause }",
    ),
    (
        "[[video]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\ntrace = \"no.txt\"",
        "19: video.c.trace: cannot read no.txt: No such file or directory (os error 2)",
    ),
    (
        "[[node]]\nname = \"c\"\n[[voip]]\nname = \"d\"\nfrom = \"a\"\nto = \"c\"",
        "20: voip.d.to: a does not reach 10.255.0.4: a has no route to it",
    ),
    (
        "[[route]]\nnode = \"r\"\nvia = \"reject\"\ndscp = 46\n[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"",
        "22: voip.c.to: a does not reach 10.255.0.3: r rejects it",
    ),
    (
        "[[route]]\nnode = \"r\"\nvia = \"wifi\"\nto = \"10.255.0.3\"\n[[voip]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"",
        "22: voip.c.to: a does not reach 10.255.0.3: its way goes round in a circle",
    ),
    (
        "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\nvariant = \"tahiti\"",
        "19: tcp.t.variant: there is no variant tahiti (known: tahoe, reno, newreno, sack, fack, vegas, cubic, rack)",
    ),
    (
        "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\nwindow = 0",
        "19: tcp.t.window: must lie between 1 and 1048576",
    ),
    (
        "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\npacket = 40",
        "19: tcp.t.packet: the headers alone have 40 bytes",
    ),
    (
        "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\ntick = \"0s\"",
        "19: tcp.t.tick: must be above zero",
    ),
    (
        "[[tcp]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\ndelayed_ack = true",
        "19: tcp.t.delayed_ack: how long may it wait? Write for example \"40ms\"",
    ),
];

/// Additions with tunnels and radio, each with the expected error.
const MOBILE: &[(&str, &str)] = &[
    (
        "[[anchor]]\nname = \"h\"\nnode = \"c\"",
        "17: anchor.h.node: there is no node c (known: a, b, r)",
    ),
    (
        "[[anchor]]\nname = \"h\"\nnode = \"b\"\npool = [\"10.7.0.0/31\"]",
        "18: anchor.h.pool: a pool needs room for the anchor and a host",
    ),
    (
        "[[anchor]]\nname = \"h\"\nnode = \"b\"\n[[host]]\nname = \"m\"\nnode = \"a\"\nanchor = \"g\"",
        "21: host.m.anchor: there is no anchor g (known: h)",
    ),
    (
        "[[anchor]]\nname = \"h\"\nnode = \"b\"\n[[host]]\nname = \"m\"\nnode = \"a\"\nanchor = \"h\"\ninner = [\"10.8.0.2\"]",
        "22: host.m.inner: 10.8.0.2 is not in a pool of h",
    ),
    (
        "[[anchor]]\nname = \"h\"\nnode = \"b\"\n[[host]]\nname = \"m\"\nnode = \"a\"\nanchor = \"h\"\nkeepalive = { k = 3 }",
        "19: host.m.name: \"keepalive\": k and period go together; or give targets and let them be planned",
    ),
    (
        "[[anchor]]\nname = \"h\"\nnode = \"b\"\n[[host]]\nname = \"m\"\nnode = \"a\"\nanchor = \"h\"\npath.lte = { price = 1.0 }",
        "22: host.m.path: a has no interface lte (known: wifi)",
    ),
    (
        "[[node]]\nname = \"c\"\n[[node]]\nname = \"d\"\n[[link]]\nname = \"x\"\nends = [\"c\", \"d\"]\n[[anchor]]\nname = \"h\"\nnode = \"b\"\n[[host]]\nname = \"m\"\nnode = \"c\"\nanchor = \"h\"",
        "28: host.m.anchor: h is out of reach: c does not reach 10.255.0.3: d is no transit",
    ),
    (
        "[[cell]]\nname = \"c\"\nrouter = \"x\"",
        "17: cell.c.router: there is no node x (known: a, b, r)",
    ),
    (
        "[[cell]]\nname = \"c\"\nrouter = \"r\"\n[[walk]]\nnode = \"a:air\"\ncells = [\"d\"]",
        "20: walk.1.cells: there is no cell d (known: c)",
    ),
    (
        "[[cell]]\nname = \"c\"\nrouter = \"r\"\n[[walk]]\nnode = \"a:air\"\ncells = [\"c\", \"c\"]",
        "20: walk.1.cells: a way through cells needs a period",
    ),
    (
        "[[nat]]\nnode = \"r\"\ninside = [\"c\"]",
        "17: nat.1.inside: r has no interface or neighbour c (known: wifi, lan)",
    ),
    (
        "[[event]]\nat = \"1s\"\nstall = \"wifi\"",
        "17: event.1.stall: a stall needs for, its length",
    ),
    ("[[event]]\nat = \"1s\"\nrebind = \"r\"", "17: event.1.rebind: r has no NAT"),
    ("[[event]]\nat = \"1s\"\nrestart = \"x\"", "17: event.1.restart: there is no host x"),
    (
        "[[event]]\nat = \"1s\"\ncut = \"wifi\"\naddress = \"10.0.0.1\"",
        "18: event.1.address: this key is for rebind",
    ),
    (
        "[[event]]\nat = \"1s\"\ncut = \"wifi\"\nto = \"wifi\"",
        "18: event.1.to: this key is for handover",
    ),
    (
        "[[event]]\nat = \"1s\"\ncut = \"wifi\"\ncell = \"c\"",
        "18: event.1.cell: this key is for attach and detach",
    ),
    (
        "[[event]]\nat = \"1s\"\nrebind = \"r\"\nway = \"up\"",
        "18: event.1.way: this key is for cut and mend and stall",
    ),
    (
        "[[event]]\nat = \"1s\"\nmend = \"wifi\"\nfor = \"1s\"",
        "18: event.1.for: this key is for cut and stall and restart",
    ),
    (
        "[[anchor]]\nname = \"x\"\nnode = \"r\"\n[[host]]\nname = \"h\"\nnode = \"a\"\nanchor = \"x\"\n[[event]]\nat = \"1s\"\nhandover = \"h\"\nto = \"lan\"",
        "25: event.1.to: a has no interface lan (known: wifi)",
    ),
];

/// Replacements in the base, each with the expected error.
const FORM: &[(&str, &str, &str)] = &[
    ("\"10s\"", "\"0s\"", "1: duration: a run of no time"),
    (
        "\"10s\"",
        "10",
        "1: duration: invalid type: integer `10`, expected a duration with its unit, like \"200ms\"",
    ),
    ("duration = \"10s\"", "", "1: the key duration is missing"),
    (
        "duration = \"10s\"",
        "duration = ",
        "1: duration: string values must be quoted, expected literal string",
    ),
    ("name = \"r\"", "name = \"r\"\nname = \"r\"", "6: name: duplicate key"),
];

#[test]
fn a_host_that_restarts_may_stay_down_for_a_while() {
    let connections = |down: &str| {
        let text = format!(
            "{BASE}[[anchor]]\nname = \"x\"\nnode = \"b\"\n\
             [[host]]\nname = \"h\"\nnode = \"a\"\nanchor = \"x\"\n\
             [[event]]\nat = \"1s\"\nrestart = \"h\"\n{down}\n"
        );
        let scenario =
            Scenario::parse(&text.replace("\"wifi\"", "\"wifi\"\ndelay = \"5ms\""), "s.toml");
        let results = scenario.unwrap().run(None).unwrap();
        results.get("h.connections").map(|value| format!("{value:?}"))
    };
    let int = |n| Some(format!("{:?}", segue_sim::Value::Int(n)));
    assert_eq!([connections("for = \"3s\""), connections("for = \"10s\"")], [int(2), int(1)]);
}

/// Packets offered to a link by a telephone call through a tunnel, with these keys for the host's probes.
fn offered(keepalive: &str) -> u64 {
    let text = format!(
        "{BASE}delay = \"5ms\"\n[[anchor]]\nname = \"x\"\nnode = \"b\"\n\
         [[host]]\nname = \"h\"\nnode = \"a\"\nanchor = \"x\"\nkeepalive = {{ {keepalive} }}\n\
         [[voip]]\nname = \"v\"\nfrom = \"a\"\nto = \"b\"\n"
    );
    let mut built = Scenario::parse(&text, "s.toml").unwrap().build();
    built.run(|_, _| ()).unwrap();
    built.network.counters(built.links[0].1[0]).offered
}

#[test]
fn probes_ride_on_data_only_where_the_file_says_so() {
    let fixed = "k = 3, period = \"100ms\"";
    let alone = offered(fixed);
    assert_eq!(offered(&format!("{fixed}, rides = false")), alone);
    assert!(offered(&format!("{fixed}, rides = true")) + 80 < alone, "{alone}");
}

#[test]
fn links_that_sense_and_moves_that_are_announced_reach_the_network() {
    let cells = "[[cell]]\nname = \"c\"\nrouter = \"r\"\n[[cell]]\nname = \"d\"\nrouter = \"r\"\n\
                 [[walk]]\nnode = \"a:air\"\ncells = [\"c\", \"d\"]\nperiod = \"2s\"\n";
    let events = |walk: &str| {
        let text = format!("{BASE}senses = true\n{cells}{walk}\n");
        let mut built = Scenario::parse(&text, "s.toml").unwrap().build();
        built.run(|_, _| ()).unwrap();
        let senses = built.network.nodes().flat_map(|(_, node)| &node.adapters);
        let senses: Vec<bool> = senses.map(|adapter| adapter.senses).collect();
        // Two interfaces, at the link with `senses`; radios and the other link detect nothing.
        assert_eq!(senses.iter().filter(|senses| **senses).count(), 2, "{senses:?}");
        built.network.events()
    };
    // Handovers at 2, 4, 6 and 8 s, and one at the end, which was announced before.
    assert_eq!(events("notice = \"100ms\""), events("") + 5);
}

#[test]
fn a_radio_whose_walk_has_no_cells_is_moved_by_events_alone() {
    let text = format!(
        "{BASE}[[cell]]\nname = \"c\"\nrouter = \"r\"\nprefix = \"10.5.0.0/24\"\n\
         [[walk]]\nnode = \"a:air\"\ncells = []\n\
         [[event]]\nat = \"4s\"\nattach = \"a:air\"\ncell = \"c\"\n\
         [[event]]\nat = \"6s\"\ndetach = \"a:air\"\ncell = \"c\"\n"
    );
    let mut network = Scenario::parse(&text, "s.toml").unwrap().build().network;
    let attached = [3, 5, 7].map(Span::from_secs).map(|at| {
        network.run_until(Time(at.0));
        let node = network.nodes().next().unwrap().1;
        node.adapters.iter().map(|adapter| adapter.interface.addresses.len()).sum::<usize>()
    });
    assert_eq!(attached, [0, 1, 0]);
}

#[test]
fn values_from_outside_go_before_those_of_the_file_and_are_checked_with_it() {
    let scenario = Scenario::parse(BASE, "s.toml").unwrap();
    let (seed, duration) = (scenario.seed(), scenario.duration());
    assert_eq!((seed, duration), (1, Span::from_secs(10)));
    let other = scenario.with(&sets(&[("seed", "7"), ("duration", "1m")])).unwrap();
    assert_eq!((other.seed(), other.duration()), (7, Span::from_secs(60)));
    for (key, value, expected) in [
        (
            "link.wifi.rate",
            "5mb",
            "\"5mb\": \"mb\" is no unit of a rate (bit, kbit, mbit, gbit, tbit)",
        ),
        ("link.wifi.up.loss", "2.0", "\"2\" is more than 100 %"),
        ("link.wifi.dely", "1ms", "unknown key (did you mean delay?)"),
        ("link.lte.delay", "1ms", "there is no link lte"),
        ("link.delay", "1ms", "which link?"),
        ("link", "1", "invalid type: integer `1`, expected a sequence"),
        ("ftp.f1.window", "1", "there is no ftp in the file"),
        ("seed.x", "1", "seed is a single value"),
        ("", "1", "no key"),
        ("seed", "-1", "must be 0 or more"),
    ] {
        let error =
            scenario.with(&sets(&[("seed", "3"), (key, value)])).err().map(|e| e.to_string());
        let expected = format!("s.toml: {key}={value}: {expected}");
        assert_eq!(error.as_deref(), Some(expected.as_str()));
    }
    // Missing tables are created in existing ones.
    let lossy = scenario.with(&sets(&[("link.2.down.loss", "[1, 2]")])).unwrap();
    let links = lossy.source.values().into_inner().remove("link").unwrap();
    let links = segue_grammar::tables::<segue_grammar::Link>(links).unwrap();
    let [_, down] = links[1].ways.clone().unwrap();
    assert!(matches!(down.spec().loss, segue_netem::Loss::Exact(_)));
}

#[test]
fn the_documentation_has_every_key() {
    let documentation = include_str!("../../../../docs/simulator/scenarios.md");
    let kinds = tables::names().map(|name| format!("[[{name}]]"));
    let others = ["", "[[link]]\n[link.up]", "[[event]]", "[population]", "[[population.class]]"];
    for table in kinds.chain(others.map(str::to_owned)) {
        let text = format!("duration = \"1s\"\n{table}\nno_such_key = 1\n");
        let population = table.contains("population");
        let error = match population {
            true => super::population::parse(&text, "x", &[]).err(),
            false => Scenario::parse(&text, "x").err(),
        };
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        // The reader lists the valid keys.
        let keys = error.split_once("(known: ").and_then(|(_, keys)| keys.strip_suffix(')'));
        let keys: Vec<&str> =
            keys.unwrap_or_else(|| panic!("{table}: {error}")).split(", ").collect();
        assert!(keys.len() > 2, "{table}: {error}");
        for key in keys {
            assert!(documentation.contains(&format!("`{key}`")), "{table} {key}");
        }
    }
}
