use segue_sim::{Results, Value};

use crate::file::Scenario;

/// A host with Wi-Fi and cellular, a gateway at each, and an anchor in front of the correspondent; the host's table is
/// left open.
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
    // Each of its gateways knows both prefixes.
    let there = &rows(&calm, "cellular.hosts_at_end")[0];
    let own = (text(there, "prefixes"), text(there, "off_link"), text(there, "mn_id"));
    assert_eq!(own, ("2001:db8:0:1::/64", "2001:db8::/64", "alice@segue.invalid"));
    assert_eq!(int(&calm, "lma.flows"), 2, "of the call, media and its report");
}
