use segue_clock::{Span, Time};
use segue_pmip::LmaInput;
use segue_sim::pmip::LmaRole;
use segue_sim::role::Order;
use segue_sim::{AgentId, Results, RoleAgent, Value};

use crate::file::{Built, Scenario};

/// A host with Wi-Fi and cellular, a gateway at each, and an anchor on the route to the correspondent. The host's table
/// is last and left open.
const DOMAIN: &str = r#"duration = "20s"
[[node]]
name = "phone"
[[node]]
name = "left"
addresses = ["fd00:2::1"]
transit = true
[[node]]
name = "right"
addresses = ["fd00:3::1"]
transit = true
[[node]]
name = "core"
addresses = ["fd00:1::1"]
transit = true
[[node]]
name = "desk"
addresses = ["fd00:c::1"]
[[link]]
name = "l"
ends = ["left", "core"]
delay = "5ms"
[[link]]
name = "r"
ends = ["right", "core"]
delay = "5ms"
[[link]]
name = "d"
ends = ["desk", "core"]
delay = "1ms"
[[cell]]
name = "wifi"
router = "left"
delay = "2ms"
[[cell]]
name = "lte"
router = "right"
delay = "10ms"
[[walk]]
node = "phone:wifi"
cells = ["wifi"]
[[walk]]
node = "phone:lte"
cells = ["lte"]
[[lma]]
name = "lma"
node = "core"
pool = "2001:db8::/48"
[[mag]]
name = "wlan"
node = "left"
anchor = "lma"
[[mag.access]]
interface = "wifi"
technology = "wlan"
[[mag]]
name = "cellular"
node = "right"
anchor = "lma"
[[mag.access]]
interface = "lte"
technology = "e-utran"
[[mobile_node]]
name = "alice"
node = "phone"
"#;

const CALL: &str = r#"[[voip]]
name = "call"
from = "phone"
to = "desk"
start = "1s"
stop = "19s"
"#;

fn run(text: &str) -> Results {
    let scenario = Scenario::parse(text, "s.toml").unwrap_or_else(|error| panic!("{error}"));
    scenario.run(None).unwrap()
}

fn int(results: &Results, name: &str) -> u64 {
    match results.get(name) {
        Some(Value::Int(value)) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

fn rows<'a>(results: &'a Results, name: &str) -> &'a [Results] {
    match results.get(name) {
        Some(Value::Rows(rows)) => rows,
        other => panic!("{name}: {other:?}"),
    }
}

fn text<'a>(row: &'a Results, name: &str) -> &'a str {
    match row.get(name) {
        Some(Value::Text(text)) => text,
        other => panic!("{name}: {other:?}"),
    }
}

fn lost(results: &Results, way: &str) -> u64 {
    let sent = int(results, &format!("call.{way}.sent"));
    assert!(sent > 800, "{sent}");
    sent - int(results, &format!("call.{way}.received"))
}

#[test]
fn a_stock_host_is_called_at_the_address_of_its_prefix_in_both_directions() {
    let calm = run(&format!("{DOMAIN}{CALL}"));
    assert_eq!((lost(&calm, "up"), lost(&calm, "down")), (0, 0), "{calm:?}");
    assert_eq!((int(&calm, "lma.bindings"), int(&calm, "wlan.hosts")), (2, 1));
    let Some(Value::Text(addresses)) = calm.get("alice.addresses") else { panic!("{calm:?}") };
    assert!(addresses.starts_with("2001:db8::5e:ff:fe00:1 2001:db8:0:1:"), "{addresses}");
    // Each gateway of the host carries both prefixes.
    let there = &rows(&calm, "cellular.hosts_at_end")[0];
    let own = (text(there, "prefixes"), text(there, "off_link"), text(there, "mn_id"));
    assert_eq!(own, ("2001:db8:0:1::/64", "2001:db8::/64", "alice@segue.invalid"));
    assert_eq!(int(&calm, "lma.flows"), 1);
}

/// The scenario with a call, with some text replaced, and with further tables.
fn with(changes: &[(&str, &str)], more: &str) -> String {
    let mut text = DOMAIN.to_owned();
    for (old, new) in changes {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, new);
    }
    format!("{text}{CALL}{more}")
}

fn event(at: &str, what: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\n{what}\n")
}

#[test]
fn a_call_goes_on_over_the_other_interface_when_one_has_left_and_returns_with_it() {
    let leaves = event("8s", "detach = \"phone:wifi\"\ncell = \"wifi\"");
    let returns = event("14s", "attach = \"phone:wifi\"\ncell = \"wifi\"");
    let results = run(&with(&[], &format!("{leaves}{returns}")));
    // A packet every 20 ms. Lost are those on the air when the host leaves the cell, and those sent before the other
    // gateway has advertised itself, after 10 ms each from gateway to anchor, back to a gateway, and to the host.
    assert!(lost(&results, "down") <= 2, "{}", lost(&results, "down"));
    assert!((1..=3).contains(&lost(&results, "up")), "{}", lost(&results, "up"));
    let handovers = rows(&results, "lma.handovers");
    let causes: Vec<&str> = handovers.iter().map(|row| text(row, "cause")).collect();
    assert_eq!(causes, ["left", "back"], "{results:?}");
    let (first, of) = (&handovers[0], "alice@segue.invalid");
    assert_eq!(
        (text(first, "mn_id"), text(first, "from"), text(first, "to")),
        (of, "fd00:2::1", "fd00:3::1")
    );
    assert_eq!(int(first, "flows"), 1);
    let Some(Value::Float(at_s)) = first.get("at_s") else { panic!("{first:?}") };
    assert!((8.005..8.01).contains(at_s), "{at_s}");
    let counted = ["moved", "left", "back"].map(|c| int(&results, &format!("lma.handovers_{c}")));
    assert_eq!(counted, [0, 1, 1]);
    // To cellular, and back.
    assert_eq!(int(&results, "alice.uplink_changes"), 2);
}

#[test]
fn a_call_goes_over_the_interface_whose_gateway_is_reached_and_best() {
    let schedule = ("pool = \"2001:db8::/48\"", "pool = \"2001:db8::/48\"\nschedule = \"quality\"");
    // The path to the first gateway is lossy from the beginning.
    let lossy = ("ends = [\"left\", \"core\"]", "ends = [\"left\", \"core\"]\nloss = \"10%\"");
    let [fixed, best] = [vec![lossy], vec![lossy, schedule]].map(|changes| {
        let results = run(&with(&changes, ""));
        (lost(&results, "down"), int(&results, "lma.handovers_better"))
    });
    assert!(fixed.0 > 50 && fixed.1 == 0, "{fixed:?}");
    // When the call begins, the path is already known to be worse.
    assert!(best.0 < 5 && best.1 == 0, "{best:?}, {fixed:?}");
    // The path falls silent and recovers; the host's links notice nothing.
    let silent = event("5s", "cut = \"l\"") + &event("10s", "mend = \"l\"");
    let [kept, moved] = [vec![], vec![schedule]].map(|changes| run(&with(&changes, &silent)));
    assert!(lost(&kept, "down") > 200, "five seconds of fifty packets");
    // Half a second on average until detection; then the host must receive the new router preference.
    assert!(lost(&moved, "down") < 60 && lost(&moved, "up") < 70, "{moved:?}");
    assert_eq!(int(&moved, "lma.handovers_unreachable"), 1);
    assert_eq!(int(&kept, "lma.handovers_unreachable"), 0);
}

#[test]
fn a_download_goes_where_functions_report_the_higher_rate() {
    let best = (
        "pool = \"2001:db8::/48\"",
        "pool = \"2001:db8::/48\"\nschedule = \"quality\"\nfunctions = [\"air\", \"mast\"]",
    );
    let reports = "[[mih.quality]]\nlink = \"wifi\"\nrate = \"50mbit\"\nsignal = -50\n\
                   [[mih.quality]]\nlink = \"wifi\"\nat = \"8s\"\nrate = \"200kbit\"\nsignal = -88\n";
    let mast = "[[mih]]\nname = \"mast\"\nnode = \"right\"\nlinks = [\"lte\"]\n";
    let of_mast = "[[mih.quality]]\nlink = \"lte\"\nrate = \"50mbit\"\n";
    let download = "[[ftp]]\nname = \"load\"\nfrom = \"desk\"\nto = \"phone\"\nstart = \"2s\"\n";
    let moved = |functions: String| {
        let results = run(&with(&[best], &format!("{functions}{download}")));
        let handovers = rows(&results, "lma.handovers");
        handovers.iter().map(|row| text(row, "cause").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(moved(format!("{FUNCTION}{mast}")), Vec::<String>::new(), "nothing is reported");
    assert_eq!(moved(format!("{FUNCTION}{reports}{mast}{of_mast}")), ["better"]);
}

#[test]
fn without_flow_mobility_a_call_breaks_off_with_its_interface() {
    let leaves = event("8s", "detach = \"phone:wifi\"\ncell = \"wifi\"");
    let results =
        run(&with(&[("2001:db8::/48\"", "2001:db8::/48\"\nflow_mobility = false")], &leaves));
    assert!(lost(&results, "down") > 500, "{results:?}");
    assert!(rows(&results, "lma.handovers").is_empty());
}

#[test]
fn an_interface_that_moves_to_another_gateway_keeps_its_prefix() {
    let changes = [
        (
            "[[walk]]\nnode = \"phone:wifi\"\ncells = [\"wifi\"]",
            "[[walk]]\nnode = \"phone:wifi\"\ncells = [\"wifi\", \"lte\"]\nperiod = \"9s\"",
        ),
        ("[[walk]]\nnode = \"phone:lte\"\ncells = [\"lte\"]\n", ""),
        ("\"e-utran\"", "\"wlan\""),
    ];
    let results = run(&with(&changes, ""));
    let (down, up) = (lost(&results, "down"), lost(&results, "up"));
    // Two moves; a registration takes 10 ms, an advertisement 10 or 2 ms.
    assert!((1..=6).contains(&down) && up <= 6, "{down} {up}");
    let handovers = rows(&results, "lma.handovers");
    let ways: Vec<_> = handovers.iter().map(|row| (text(row, "cause"), text(row, "to"))).collect();
    assert_eq!(ways, [("moved", "fd00:3::1"), ("moved", "fd00:2::1")]);
    let Some(Value::Text(addresses)) = results.get("alice.addresses") else { panic!() };
    assert_eq!(addresses, "2001:db8::5e:ff:fe00:1");
    assert_eq!(int(&results, "alice.uplink_changes"), 0, "all gateways look the same to it");
}

#[test]
fn a_gateway_may_wait_for_its_hosts_to_ask_for_routers() {
    let results =
        run(&with(&[("\"wlan\"\n[[mag]]", "\"wlan\"\nattach = \"solicitation\"\n[[mag]]")], ""));
    assert_eq!((lost(&results, "up"), lost(&results, "down")), (0, 0));
    let there = &rows(&results, "wlan.hosts_at_end")[0];
    let Some(Value::Float(ms)) = there.get("registered_ms") else { panic!("{there:?}") };
    assert!((ms - 10.0).abs() < 0.01, "to the anchor and back: {ms}");
}

#[test]
fn a_wired_host_is_served_as_long_as_its_link_has_a_carrier() {
    let wire =
        "[[link]]\nname = \"wire\"\nends = [\"phone\", \"left\"]\ndelay = \"1ms\"\nsenses = true\n";
    let changes = [
        ("[[walk]]\nnode = \"phone:wifi\"\ncells = [\"wifi\"]\n", wire),
        ("interface = \"wifi\"\ntechnology = \"wlan\"", "interface = \"wire\""),
    ];
    let cut = event("8s", "cut = \"wire\"\nfor = \"4s\"");
    let results = run(&with(&changes, &cut));
    let (down, up) = (lost(&results, "down"), lost(&results, "up"));
    assert!(down <= 3 && up <= 3, "{down} {up}");
    let counted = ["moved", "left", "back"].map(|c| int(&results, &format!("lma.handovers_{c}")));
    assert_eq!(counted, [0, 1, 1]);
}

/// The gateway checks its hosts every few seconds.
const SHORT: (&str, &str) = (
    "\"wlan\"\n[[mag]]\nname = \"cellular\"",
    "\"wlan\"\n[[mag]]\nname = \"cellular\"\nlifetime_first = \"8s\"\nlifetime_min = \"8s\"",
);

#[test]
fn a_host_whose_solicitation_was_lost_answers_when_it_is_asked_whether_it_is_there() {
    let lossy = ("delay = \"10ms\"", "delay = \"10ms\"\nup = { loss = [0] }");
    let results = run(&with(&[SHORT, lossy], ""));
    assert_eq!(int(&results, "cellular.hosts"), 1);
    assert_eq!(int(&results, "cellular.registrations"), 1, "it has not left meanwhile");
    assert_eq!(int(&results, "cellular.refused"), 0);
}

#[test]
fn a_wire_that_falls_silent_is_left_when_its_host_is_asked_in_vain() {
    let wire = "[[link]]\nname = \"wire\"\nends = [\"phone\", \"right\"]\ndelay = \"1ms\"\n";
    let changes = [
        SHORT,
        ("[[walk]]\nnode = \"phone:lte\"\ncells = [\"lte\"]\n", wire),
        ("interface = \"lte\"", "attach = \"solicitation\"\ninterface = \"wire\""),
    ];
    let whole = run(&with(&changes, ""));
    assert_eq!((int(&whole, "cellular.hosts"), int(&whole, "lma.bindings")), (1, 2));
    let silent = run(&with(&changes, &event("8s", "cut = \"wire\"")));
    assert_eq!((int(&silent, "cellular.hosts"), int(&silent, "lma.handovers_left")), (0, 1));
    assert!(lost(&silent, "down") < 400, "{}", lost(&silent, "down"));
}

#[test]
fn a_start_anew_of_anchor_or_gateway_costs_what_lies_in_it() {
    for role in ["lma", "wlan"] {
        let results =
            run(&with(&[], &event("8s", &format!("restart = \"{role}\"\nfor = \"200ms\""))));
        let down = lost(&results, "down");
        assert!((9..=12).contains(&down), "{role}: {down}");
        assert_eq!(int(&results, &format!("{role}.starts")), 1);
        assert_eq!((int(&results, "lma.bindings"), int(&results, "wlan.hosts")), (2, 1), "{role}");
    }
}

#[test]
fn a_host_that_is_revoked_reaches_nobody_any_more() {
    let results = run(&with(&[], &event("10s", "revoke = \"alice\"")));
    // The plain routes of its gateway do not reach it either: it is reachable for 9 of 18 s.
    for way in ["up", "down"] {
        assert!((440..=460).contains(&lost(&results, way)), "{way}: {}", lost(&results, way));
    }
    assert_eq!(int(&results, "lma.bindings"), 0);
}

#[test]
fn an_anchor_refuses_hosts_that_it_does_not_list() {
    let text = with(&[("2001:db8::/48\"", "2001:db8::/48\"\nnodes = [\"bob@example.org\"]")], "");
    let results = run(&text);
    assert!(int(&results, "lma.refused") >= 2);
    let reasons = rows(&results, "lma.refused_by_reason");
    assert_eq!(text_of(reasons, "reason"), ["NOT_LMA_FOR_THIS_MOBILE_NODE"]);
    assert_eq!(int(&results, "alice.advertisements"), 0);
}

fn text_of<'a>(rows: &'a [Results], name: &str) -> Vec<&'a str> {
    rows.iter().map(|row| text(row, name)).collect()
}

#[test]
fn two_hosts_in_one_cell_have_their_own_prefixes_and_reach_each_other() {
    let other = r#"[[node]]
name = "tablet"
[[walk]]
node = "tablet:wifi"
cells = ["wifi"]
[[mobile_node]]
name = "bob"
node = "tablet"
mn_id = "bob@example.org"
[[voip]]
name = "between"
from = "tablet"
to = "phone"
start = "1s"
stop = "5s"
"#;
    let results = run(&with(&[], other));
    for way in ["up", "down"] {
        let [sent, received] =
            ["sent", "received"].map(|what| int(&results, &format!("between.{way}.{what}")));
        assert_eq!((sent, received), (200, 200), "{way}");
    }
    let Some(Value::Text(addresses)) = results.get("bob.addresses") else { panic!() };
    assert_eq!(addresses, "2001:db8:0:2:5e:ff:fe05:1");
}

#[test]
fn flows_of_which_nothing_comes_are_forgotten_and_placed_anew() {
    let changes = [("2001:db8::/48\"", "2001:db8::/48\"\nflow_idle = \"2s\"\nevery_flow = true")];
    let late = "[[voip]]\nname = \"early\"\nfrom = \"phone\"\nto = \"desk\"\nstart = \"1s\"\nstop = \"2s\"\n";
    let results = run(&with(&changes, late));
    // The call stops a second before the end.
    assert_eq!(int(&results, "lma.flows"), 1);
    assert_eq!(int(&results, "early.down.received"), 50);
}

fn anchor(built: &Built) -> AgentId {
    let is_anchor = |id: &AgentId| built.network.agent::<RoleAgent<LmaRole>>(*id).is_some();
    (0..20).map(AgentId).find(is_anchor).expect("there is one")
}

/// Number of packets that wait at the anchor.
fn waiting(built: &Built, lma: AgentId) -> usize {
    built.network.agent::<RoleAgent<LmaRole>>(lma).unwrap().engine().waiting()
}

#[test]
fn first_packets_wait_for_a_decision_in_order_and_none_is_lost() {
    let mut built = Scenario::parse(&with(&[], ""), "s.toml").unwrap().build();
    let lma = anchor(&built);
    built.network.run_until(Time(900_000_000));
    built.network.command(lma, |agent: &mut RoleAgent<LmaRole>, io| {
        agent.obey(io, Order::Own(LmaInput::Deciding(true)));
    });
    let mut waited: Vec<u64> = Vec::new();
    for ms in 1_000..1_100 {
        built.network.run_until(Time(ms * 1_000_000));
        waited.extend((waiting(&built, lma) > 0).then_some(ms));
    }
    // There is no external scheduler: the anchor decides after 20 ms. A second packet may have arrived by then.
    assert!((19..=20).contains(&waited.len()), "{waited:?}");
    built.run(|_, _| ()).unwrap();
    let results = built.network.results();
    assert_eq!((lost(&results, "down"), int(&results, "lma.flows_nowhere")), (0, 0));
    assert_eq!(int(&results, "call.down.reordered"), 0);
}

#[test]
fn first_packets_that_wait_at_a_crash_are_counted() {
    let mut built = Scenario::parse(&with(&[], ""), "s.toml").unwrap().build();
    let lma = anchor(&built);
    built.network.run_until(Time(900_000_000));
    let order = |built: &mut Built, order| {
        built.network.command(lma, |agent: &mut RoleAgent<LmaRole>, io| agent.obey(io, order));
    };
    order(&mut built, Order::Own(LmaInput::Deciding(true)));
    while waiting(&built, lma) == 0 {
        let next = built.network.now() + Span::from_millis(1);
        built.network.run_until(next);
    }
    order(&mut built, Order::Restart(Span::ZERO));
    built.run(|_, _| ()).unwrap();
    assert_eq!(int(&built.network.results(), "lma.flows_nowhere"), 1);
}

/// The function that reports events of the Wi-Fi cell.
const FUNCTION: &str = "[[mih]]\nname = \"air\"\nnode = \"left\"\nlinks = [\"wifi\"]\n";
/// Makes the gateway of that cell use the function.
const TOLD: (&str, &str) = ("\"wlan\"\n[[mag]]", "\"wlan\"\nattach = \"mih\"\n[[mag]]");

#[test]
fn a_gateway_is_told_by_a_function_who_comes_and_who_leaves() {
    let leaves = event("8s", "detach = \"phone:wifi\"\ncell = \"wifi\"");
    let returns = event("14s", "attach = \"phone:wifi\"\ncell = \"wifi\"");
    let more = format!("{FUNCTION}{leaves}{returns}");
    let results = run(&with(&[TOLD], &more));
    assert_eq!((int(&results, "wlan.hosts"), int(&results, "air.stations")), (1, 1));
    assert_eq!((int(&results, "wlan.registrations"), int(&results, "wlan.refused")), (2, 0));
    let handovers = rows(&results, "lma.handovers");
    let causes: Vec<&str> = handovers.iter().map(|row| text(row, "cause")).collect();
    assert_eq!(causes, ["left", "back"], "{results:?}");
    let (down, up) = (lost(&results, "down"), lost(&results, "up"));
    assert!(down <= 2 && up <= 3, "{down} {up}");
    // While the function is down, no arrival is reported. The gateway requests its events at 11.7 and 14.7 s.
    let away = event("9s", "restart = \"air\"\nfor = \"5500ms\"");
    let results = run(&with(&[TOLD], &format!("{more}{away}")));
    let [_, back] = rows(&results, "lma.handovers") else { panic!("{results:?}") };
    let Some(Value::Float(at_s)) = back.get("at_s") else { panic!("{back:?}") };
    assert!((14.5..15.0).contains(at_s), "{at_s}");
}

#[test]
fn a_walk_that_begins_in_a_cell_is_told_as_well_and_its_end_foretold() {
    let walk = "[[walk]]\nnode = \"phone:wifi\"\ncells = [\"wifi\"";
    let walks = (
        "[[walk]]\nnode = \"phone:wifi\"\ncells = [\"wifi\"]\n",
        &*format!(
            "{walk}, \"den\"]\nfirst = \"8s\"\nperiod = \"20s\"\ngap = \"1s\"\nnotice = \"300ms\"\n"
        ),
    );
    let den = (
        "[[walk]]\nnode = \"phone:lte\"",
        "[[cell]]\nname = \"den\"\nrouter = \"right\"\n[[walk]]\nnode = \"phone:lte\"",
    );
    let hears = ("2001:db8::/48\"", "2001:db8::/48\"\nfunctions = [\"air\"]");
    let short = (
        "[[mobile_node]]",
        "[[mag.access]]\ninterface = \"den\"\nproxy_coa = \"fd00:3::2\"\n[[mobile_node]]",
    );
    let second = ("\"fd00:3::1\"]", "\"fd00:3::1\", \"fd00:3::2\"]");
    let changes = [walks, den, short, second, TOLD, hears];
    let results = run(&with(&changes, FUNCTION));
    assert_eq!((lost(&results, "down"), lost(&results, "up")), (0, 0));
    let counted = ["going_down", "left"].map(|c| int(&results, &format!("lma.handovers_{c}")));
    assert_eq!(counted, [1, 1]);
    // Without it, the host sends until the other gateway has advertised itself.
    assert!(lost(&run(&with(&changes[..5], FUNCTION)), "up") >= 1);
}

#[test]
fn what_tells_of_links_may_be_wrong_as_well() {
    let more = |more: &str| with(&[TOLD], more);
    let hears = ("2001:db8::/48\"", "2001:db8::/48\"\nfunctions = [\"aer\"]");
    for (text, expected) in [
        (
            more(""),
            "mag.wlan.access.1.interface: nobody tells of wifi: write a [[mih]] for its node",
        ),
        (with(&[hears], FUNCTION), "lma.lma.functions: there is no mih aer (known: air)"),
        (
            more(&FUNCTION.replace("\"wifi\"", "\"lte\"")),
            "mih.air.links: the cell lte is not one of left",
        ),
        (
            more(&FUNCTION.replace("\"wifi\"", "\"wfi\"")),
            "mih.air.links: left has no interface wfi",
        ),
        (
            more(&FUNCTION.replace("\"wifi\"", "\"wifi\", \"wifi\"")),
            "mih.air.links: wifi is there twice",
        ),
        (more(&FUNCTION.replace("\"left\"", "\"lef\"")), "mih.air.node: there is no node lef"),
        (more(&FUNCTION.replace("links", "link")), "mih.air.link: unknown key"),
        (more(&FUNCTION.replace("[\"wifi\"]", "[]")), "mih.air.links: it needs one at least"),
        (more(&FUNCTION.repeat(2)), "mih.air.name: "),
    ] {
        let error = Scenario::parse(&text, "s.toml").err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("taken: {expected}"));
        assert!(error.contains(expected), "{error}\n  {expected}");
    }
}

/// Text in the scenario, its replacement, and the expected error.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "2001:db8::/48",
        "2001:db8::/80",
        "48: lma.lma.pool: 2001:db8::/80 must be an IPv6 network with prefixes of 64 bits",
    ),
    ("2001:db8::/48", "10.0.0.0/8", "48: lma.lma.pool: 10.0.0.0/8 must be an IPv6 network"),
    (
        "node = \"core\"",
        "node = \"left\"",
        "51: mag.wlan.node: lma is at left: an anchor or a gateway has a node alone",
    ),
    (
        "node = \"core\"",
        "node = \"desk\"",
        "47: lma.lma.node: desk carries nothing for others: give it transit = true",
    ),
    (
        "node = \"left\"\nanchor = \"lma\"",
        "node = \"left\"\nanchor = \"lna\"",
        "52: mag.wlan.anchor: there is no lma lna (known: lma)",
    ),
    (
        "interface = \"wifi\"",
        "interface = \"lte\"",
        "54: mag.wlan.access.1.interface: the cell lte is not one of left",
    ),
    (
        "interface = \"wifi\"",
        "interface = \"wlan\"",
        "54: mag.wlan.access.1.interface: left has no interface wlan (known: l, phone.wifi)",
    ),
    (
        "\"wlan\"\n[[mag]]",
        "\"wlan\"\nproxy_coa = \"fd00:3::1\"\n[[mag]]",
        "56: mag.wlan.access.1.proxy_coa: fd00:3::1 is no IPv6 address of left",
    ),
    (
        "\"wlan\"\n[[mag]]",
        "\"wlan\"\n[[mag.access]]\ninterface = \"l\"\n[[mag]]",
        "57: mag.wlan.access.2.interface: the gateway's node has no IPv6 address left",
    ),
    (
        "\"wlan\"\n[[mag]]",
        "\"wifi\"\n[[mag]]",
        "55: mag.wlan.access.1.technology: unknown variant `wifi`",
    ),
    (
        "[[mag.access]]\ninterface = \"wifi\"\ntechnology = \"wlan\"\n",
        "",
        "50: mag.wlan.name: it has no access: write a [[mag.access]]",
    ),
    (
        "addresses = [\"fd00:2::1\"]\n",
        "",
        "53: mag.wlan.access.1.interface: the gateway's node has no IPv6 address left",
    ),
    (
        "anchor = \"lma\"\n[[mag.access]]\ninterface = \"wifi\"",
        "anchor = \"lma\"\nadvertise_every = \"1s\"\n[[mag.access]]\ninterface = \"wifi\"",
        "53: mag.wlan.advertise_every: must lie between 4s and 30min",
    ),
    (
        "anchor = \"lma\"\n[[mag.access]]\ninterface = \"wifi\"",
        "anchor = \"lma\"\nlifetime_min = \"2h\"\n[[mag.access]]\ninterface = \"wifi\"",
        "53: mag.wlan.lifetime_min: longer than lifetime_max",
    ),
    (
        "2001:db8::/48\"",
        "2001:db8::/48\"\nlifetime = \"1s\"",
        "49: lma.lma.lifetime: must lie between 8s and 262140s",
    ),
    (
        "2001:db8::/48\"",
        "2001:db8::/48\"\nflow_idle = \"1ms\"",
        "49: lma.lma.flow_idle: must be 1s or longer",
    ),
    (
        "2001:db8::/48\"",
        "2001:db8::/48\"\nmax_flows = 0",
        "49: lma.lma.max_flows: must lie between 1 and 262144",
    ),
    ("node = \"phone\"\n", "node = \"left\"\n", "65: mobile_node.alice.node: left is a router"),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\nanchor = \"lna\"\n",
        "66: mobile_node.alice.anchor: there is no lma lna",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\nmn_id = \"\"\n",
        "66: mobile_node.alice.mn_id: nobody is called that",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\ninterfaces = [\"wlan\"]\n",
        "66: mobile_node.alice.interfaces: phone has no interface wlan",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\ninterfaces = []\n",
        "66: mobile_node.alice.interfaces: it needs one at least",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\nprefixes = [\"2001:db8::/64\"]\n",
        "66: mobile_node.alice.prefixes: 1 prefixes for 2 interfaces",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\nprefixes = [\"fd00::/64\"]\n",
        "66: mobile_node.alice.prefixes: fd00::/64 is no prefix of 64 bits of its anchor's pool",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\n[[mobile_node]]\nname = \"bob\"\nnode = \"phone\"\n",
        "68: mobile_node.bob.node: alice is there already",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\n[[event]]\nat = \"1s\"\nrevoke = \"alcie\"\n",
        "68: event.1.revoke: there is no mobile node alcie (did you mean alice?)",
    ),
    (
        "node = \"phone\"\n",
        "node = \"phone\"\nid = \"x\"\n",
        "66: mobile_node.alice.id: unknown key",
    ),
    (
        "\"e-utran\"",
        "\"e-utran\"\n[[mag.access]]\ninterface = \"r\"\nproxy_coa = \"fd00:3::1\"",
        "65: mag.cellular.access.2.proxy_coa: fd00:3::1 is another access's",
    ),
    (
        "\"e-utran\"",
        "\"e-utran\"\n[[mag.access]]\ninterface = \"lte\"\nproxy_coa = \"fd00:3::1\"",
        "64: mag.cellular.access.2.interface: lte is an access already",
    ),
    ("\"e-utran\"", "\"e-utran\"\nmac = true", "63: mag.cellular.access.1.mac: unknown key"),
    (
        "interface = \"wifi\"",
        "interface = \"phone.wifi\"",
        "54: mag.wlan.access.1.interface: phone.wifi is a cell's: name the cell",
    ),
];

#[test]
fn mistakes_have_their_place() {
    let mut wrong = Vec::new();
    for (old, new, expected) in MISTAKES {
        assert_eq!(DOMAIN.matches(old).count(), 1, "{old}");
        let text = DOMAIN.replace(old, new);
        let error = Scenario::parse(&text, "s.toml").err().map(|e| e.to_string());
        let error = error.unwrap_or_else(|| panic!("taken: {new}"));
        if !error.starts_with(&format!("s.toml:{expected}")) {
            wrong.push(format!("{error}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
