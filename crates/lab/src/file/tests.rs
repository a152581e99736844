//! Valid and invalid descriptions of networks.

use super::events::Kind;
use super::*;
use crate::air::CellSpec;
use segue_clock::Span;
use segue_grammar::Ways;
use segue_netem::{Jitter, Loss, Queue};

const NODES: &str = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";

fn link(rest: &str) -> Result<Plan, String> {
    let link = "[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n";
    parse(&format!("{NODES}{link}{rest}\n"), "f").map_err(|error| error.to_string())
}

#[test]
fn every_key_reaches_the_link_and_a_direction_overrides_both() {
    let plan = link(
        "delay = \"10ms\"\njitter = { normal = \"1ms\" }\nrate = \"50mbit\"\nreordering = true\n\
         queue = { bytes = 9000 }\nloss = \"0.5%\"\nsilent = false\nperiod = \"20s\"\nseed = 4\n\
         up = { loss = { p = \"1%\", r = \"25%\" }, queue = { delay = \"7ms\" } }\n\
         down = { loss = [1, 5], rate = \"unlimited\", jitter = \"2ms\" }\n\
         profile = [{ at = \"3s\", delay = \"200ms\" }, { at = \"9s\", silent = true }]",
    );
    let spec = { plan.unwrap().links }.remove(0).emulator.unwrap();
    let EmulatorSpec { up, down, seed, .. } = spec;
    assert_eq!((seed, up.rate_bps, down.rate_bps), (4, Some(50_000_000), None));
    assert_eq!((up.delay, down.delay), (Span::from_millis(10), Span::from_millis(10)));
    assert_eq!((up.queue, down.queue), (Queue::Delay(Span::from_millis(7)), Queue::Bytes(9000)));
    assert_eq!(up.jitter, Jitter::Normal(Span::from_millis(1)));
    assert_eq!(down.jitter, Jitter::Uniform(Span::from_millis(2)));
    let burst = Loss::GilbertElliott { p: 0.01, r: 0.25, loss_good: 0.0, loss_bad: 1.0 };
    assert_eq!((up.loss, down.loss), (burst, Loss::Exact(vec![1, 5])));
    assert!(up.reordering && !up.silent);
    assert_eq!(up.profile.steps[0].1.delay, Some(Span::from_millis(200)));
    assert_eq!(up.profile.steps[1].1.silent, Some(true));
    assert_eq!(up.profile.period, Some(Span::from_secs(20)));
}

#[test]
fn the_example_is_taken_and_the_documentation_has_every_key() {
    let example = include_str!("../../../../examples/lab.toml");
    let documentation = include_str!("../../../../docs/lab.md");
    assert_eq!(parse(example, "f").unwrap().links.len(), 2);
    let cells = parse(include_str!("../../../../examples/cells.toml"), "f").unwrap();
    assert_eq!(cells.air(), (vec!["east", "west"], vec!["phone:radio", "tablet:radio"]));
    let parts = ["[[link]]\n[link.up]", "[[cell]]\n[cell.up]"];
    for table in
        ["[[node]]", "[[link]]", "[[cell]]", "[[walk]]", "[[event]]"].into_iter().chain(parts)
    {
        // The parser's error lists the valid keys.
        let error = parse(&format!("{table}\nno_such_key = 1\n"), "f").unwrap_err().to_string();
        let (_, known) = error.split_once("(known: ").unwrap();
        for key in known.trim_end_matches(')').split(", ") {
            assert!(documentation.contains(&format!("`{key}`")), "{table} {key}");
        }
    }
}

#[test]
fn a_link_that_says_nothing_is_not_emulated() {
    assert!(link("").unwrap().links[0].emulator.is_none());
    assert!(link("loss = \"0%\"").unwrap().links[0].emulator.is_some());
    let stall = "[[event]]\nat = \"1s\"\nstall = \"l\"\nfor = \"9ms\"\nway = \"down\"";
    let plan = link(stall).unwrap();
    let [at, lasting] = [Span::from_secs(1), Span::from_millis(9)];
    let kind = Kind::Stall(Ways::Down, lasting);
    assert_eq!(plan.happenings, [Happening { at, name: "l".to_owned(), kind }]);
    let own = { plan.links }.remove(0).emulator.unwrap();
    assert_eq!((own.up.queue, own.seed), (Queue::Packets(100), 0));
    assert!(link("senses = true").unwrap().links[0].emulator.is_some());
}

#[test]
fn a_node_is_a_router_in_either_word_and_an_interface_may_have_the_links_name() {
    let text = "[[node]]\nname = \"a\"\nrouter = true\n[[node]]\nname = \"b\"\ntransit = true\n\
                [[link]]\nname = \"l\"\nends = [\"a\", \"b:y\"]\n";
    let plan = parse(text, "f").unwrap();
    assert!(plan.nodes.iter().all(|node| node.transit));
    assert_eq!(plan.links[0].link.own.ends[0].get_ref().interface, None);
}

#[test]
fn a_mistake_is_told_in_one_line_with_its_line_and_key() {
    for (rest, expected) in [
        ("delay = \"10\"", "8: link.l.delay: \"10\" has no unit"),
        ("dely = \"10ms\"", "8: link.l.dely: unknown key (did you mean delay?)"),
        ("loss = \"120%\"", "8: link.l.loss: "),
        ("rate = 5", "8: link.l.rate: "),
        ("queue = { bytes = 5, delay = \"1s\" }", "8: link.l.queue: a queue is bounded by either"),
        ("queue = {}", "8: link.l.queue: a queue is bounded by either"),
        ("delay = \"1ms\"\nperiod = \"0s\"", "6: link.l.name: up: the profile's period is 0"),
        ("delay = ", "8: delay: "),
        ("up = { loss = [2, 1] }", "6: link.l.name: up: entry 2 of the loss list"),
        ("loss = { trace = \"x\" }", "8: link.l.loss: a trace of losses is for segue sim"),
        ("addresses = [[\"10.0.0.1\"], []]", "8: link.l.addresses: 10.0.0.1 needs the length"),
        ("[[node]]\nname = \"c\"\naddresses = [\"::1\"]", "10: node.c.addresses: in a test"),
        (
            "[[event]]\nat = \"1s\"\nstall = \"m\"\nfor = \"9ms\"",
            "10: event.1.stall: there is no link m",
        ),
        (
            "[[event]]\nat = \"1s\"\nstall = \"l\"",
            "10: event.1.stall: a stall needs for, its length",
        ),
        ("[[node]]\nname = \"a\"", "9: node.a.name: there is another node a"),
        ("[[node]]\nname = \"emu\"", "9: node.emu.name: emu is the node of the emulators"),
        ("[[node]]\nname = \"a/b\"", "9: node.a/b.name: \"a/b\": a name has letters"),
        (
            "[[link]]\nname = \"l\"\nends = [\"a:z\", \"b:z\"]",
            "9: link.l.name: there is another link l",
        ),
        ("[[link]]\nname = \"m\"\nends = [\"a:z\", \"a:w\"]", "10: link.m.ends: a link from a to"),
        ("[[link]]\nname = \"m\"\nends = [\"a:lo\", \"b:w\"]", "10: link.m.ends: lo means"),
        ("[[link]]\nname = \"all\"\nends = [\"a\", \"b:w\"]", "10: link.all.ends: all means"),
        ("[[link]]\nname = \"m\"\nends = [\"a:..\", \"b:w\"]", "10: link.m.ends: \"..\""),
        ("addresses = [[\"224.0.0.1/4\"], []]", "8: link.l.addresses: 224.0.0.1 is no address"),
        (
            "[[node]]\nname = \"c\"\nroutes = [\"default via 10.0.0.1\"]",
            "10: node.c.routes: no link of c has the gateway 10.0.0.1",
        ),
        (
            "[[node]]\nname = \"c\"\nroutes = [\"::/0 via 10.0.0.1\"]",
            "10: node.c.routes: ::/0 and 10.0.0.1 are of different families",
        ),
        (
            "[[node]]\nname = \"c\"\nroutes = [\"default via 255.255.255.255\"]",
            "10: node.c.routes: 255.255.255.255 is no address",
        ),
        ("[[voip]]\nname = \"v\"", "8: voip: unknown key (known: node, link, cell, walk, event)"),
    ] {
        let error = link(rest).unwrap_err();
        assert!(error.starts_with(&format!("f:{expected}")), "{rest}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = parse("[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n", "f").unwrap_err();
    assert_eq!(error.to_string(), "f:3: link.l.ends: there is no node a");
    let error = parse("", "f").unwrap_err().to_string();
    assert!(error.starts_with("f:1: no network"), "{error}");
}

const AIR: &str =
    "[[cell]]\nname = \"c\"\nrouter = \"b\"\n[[cell]]\nname = \"d\"\nrouter = \"b\"\n";

#[test]
fn cells_radios_and_events_are_read_with_the_words_of_scenarios() {
    let text = format!(
        "{NODES}[[cell]]\nname = \"c\"\nrouter = \"b\"\nprefix = \"10.1.0.0/24\"\n\
         gateway = \"10.1.0.1\"\ndelay = \"5ms\"\nup = {{ rate = \"1mbit\" }}\n\
         [[cell]]\nname = \"d\"\nrouter = \"b\"\n\
         [[walk]]\nnode = \"a\"\ncells = [\"c\", \"d\"]\nperiod = \"2s\"\noverlap = \"1s\"\n\
         [[walk]]\nnode = \"a:x\"\ncells = [\"d\"]\nbegin = \"3s\"\naddresses = [\"10.5.0.1\", \"fd00::1/64\"]\n\
         [[walk]]\nnode = \"a:y\"\ncells = []\n\
         [[event]]\nat = \"1s\"\nattach = \"a:y\"\ncell = \"d\"\n\
         [[event]]\nat = \"2s\"\ndetach = \"a:y\"\ncell = \"d\"\n"
    );
    let plan = parse(&text, "f").unwrap();
    assert_eq!(plan.air(), (vec!["c", "d"], vec!["a:radio", "a:x", "a:y"]));
    let CellSpec { router, prefix, gateway, up, down } = plan.cells[0].spec.clone();
    assert_eq!((router.as_str(), prefix), ("b", Some("10.1.0.0/24".parse().unwrap())));
    assert_eq!(gateway, Some("10.1.0.1".parse().unwrap()));
    assert_eq!((up.rate_bps, down.rate_bps), (Some(1_000_000), None));
    assert_eq!((up.delay, down.delay), (Span::from_millis(5), Span::from_millis(5)));
    let at_once = plan.radios.iter().map(|radio| radio.spec.at_once).collect::<Vec<_>>();
    assert_eq!(at_once, [2, 1, 1]);
    let fixed = ["10.5.0.1/32", "fd00::1/64"].map(|text| text.parse().unwrap());
    assert_eq!(plan.radios[1].spec.addresses, fixed);
    let kinds = plan.happenings.iter().map(|happening| &happening.kind);
    let cell = || "d".to_owned();
    assert_eq!(kinds.collect::<Vec<_>>(), [&Kind::Attach(cell()), &Kind::Detach(cell())]);
}

#[test]
fn a_mistake_about_cells_and_radios_is_told_in_one_line_with_its_line_and_key() {
    for (rest, expected) in [
        ("[[cell]]\nname = \"c\"\nrouter = \"b\"", "12: cell.c.name: there is another cell c"),
        ("[[cell]]\nname = \"e\"\nrouter = \"z\"", "13: cell.e.router: there is no node z"),
        (
            "[[cell]]\nname = \"e\"\nrouter = \"b\"\ndealy = \"1ms\"",
            "14: cell.e.dealy: unknown key (did",
        ),
        (
            "[[cell]]\nname = \"a_name_too_long_\"\nrouter = \"b\"",
            "12: cell.a_name_too_long_.name: ",
        ),
        (
            "[[cell]]\nname = \"e\"\nrouter = \"b\"\nprefix = \"10.0.0.0/31\"",
            "14: cell.e.prefix: 10.0.0.0/31 has no room for a radio",
        ),
        (
            "[[cell]]\nname = \"e\"\nrouter = \"b\"\nprefix = \"10.0.0.0/30\"\ngateway = \"10.0.0.2\"",
            "14: cell.e.prefix: 10.0.0.0/30 has no room for a radio",
        ),
        (
            "[[cell]]\nname = \"e\"\nrouter = \"b\"\ngateway = \"::\"",
            "14: cell.e.gateway: :: is no address of a node",
        ),
        (
            "[[walk]]\nnode = \"a\"\ncells = [\"c\"]\ngap = \"1s\"",
            "14: walk.1.gap: it needs a period",
        ),
        (
            "[[walk]]\nnode = \"a\"\ncells = [\"c\", \"d\"]\nperiod = \"1s\"\nturn = 1",
            "15: walk.1.turn: it needs turns",
        ),
        ("[[walk]]\nnode = \"z\"\ncells = []", "12: walk.1.node: there is no node z"),
        ("[[walk]]\nnode = \"a:x\"\ncells = [\"e\"]", "13: walk.1.cells: there is no cell e"),
        ("[[walk]]\nnode = \"b:c\"\ncells = []", "12: walk.1.node: b has another interface c"),
        (
            "[[walk]]\nnode = \"a\"\ncells = [\"c\", \"d\"]",
            "13: walk.1.cells: a way through cells needs a period",
        ),
        (
            "[[walk]]\nnode = \"a\"\ncells = [\"c\", \"c\"]\nperiod = \"1s\"",
            "13: walk.1.cells: cell 2 of the walk is the one before it",
        ),
        (
            "[[event]]\nat = \"1s\"\nattach = \"a\"\ncell = \"c\"",
            "13: event.1.attach: there is no radio a",
        ),
        (
            "[[walk]]\nnode = \"a\"\ncells = []\n[[event]]\nat = \"1s\"\ndetach = \"a:radio\"",
            "16: event.1.detach: which cell?",
        ),
        ("[[event]]\nat = \"1s\"\ncut = \"m\"", "13: event.1.cut: there is no link m"),
        ("[[event]]\nat = \"1s\"\nrestart = \"a\"", "13: event.1.restart: unknown key (known: at,"),
    ] {
        let error = parse(&format!("{NODES}{AIR}{rest}\n"), "f").unwrap_err().to_string();
        assert!(error.starts_with(&format!("f:{expected}")), "{rest}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_route_leads_over_a_gateway_on_a_link_and_two_of_a_destination_differ_in_metric() {
    let with = |routes: &str| {
        let node = format!("[[node]]\nname = \"a\"\nroutes = [{routes}]\n");
        let rest = "[[node]]\nname = \"b\"\n[[link]]\nname = \"l\"\nends = [\"a\", \"b\"]\n\
                    addresses = [[\"10.0.0.2/24\", \"10.0.1.2/24\"], []]\n";
        parse(&format!("{node}{rest}"), "f").map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with("\"default via 10.0.0.1\", \"default via 10.0.1.1 metric 5\""), Ok(()));
    let twice = with("\"default via 10.0.0.1\", \"default via 10.0.1.1\"").unwrap_err();
    assert!(twice.ends_with("a has another route to 0.0.0.0/0 of this metric"), "{twice}");
    let itself = with("\"default via 10.0.0.2\"").unwrap_err();
    assert!(itself.ends_with("no link of a has the gateway 10.0.0.2"), "{itself}");
}
