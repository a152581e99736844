//! Proxy Mobile IPv6 with servers that know its hosts: gateways and anchors before FreeRADIUS.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;

use crate::pmip::{Domain, FIRST, OTHER, binding, example};
use crate::radius_server::{Capture, RadiusServer, SECRET, installed};
use crate::world::{Daemon, wait_for};

/// The address of the node with the servers, as gateways and the anchor reach it.
const AT_GATEWAYS: &str = "fd00:2::1";
const AT_ANCHOR: &str = "fd00:1::2";

/// The domain's hosts, at a gateway and at the anchor.
const USERS: &str = r#"
02-5E-67-01-00-00 Cleartext-Password := "02-5E-67-01-00-00"
  Mobile-Node-Identifier = "alice@example.org",
  PMIP6-Home-HN-Prefix = 2001:db8:0:77::/64,
  Session-Timeout = 3600
"#;

fn secret(domain: &Domain, name: &str, text: &str) -> String {
    let path = domain.dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A `[[radius.server]]`.
fn server(domain: &Domain, address: &str, port: u16) -> String {
    let file = secret(domain, "secret", SECRET);
    let accounting = port + 1;
    format!(
        "[[radius.server]]\naddress = \"{address}\"\nsecret_file = \"{file}\"\n\
         authentication = {port}\naccounting = {accounting}\n"
    )
}

/// A gateway's file without the hosts of the example.
fn gateway(name: &str, tables: &str) -> String {
    let text = std::fs::read_to_string(example(&format!("{name}.toml"))).unwrap();
    let (text, _) = text.split_once("# The radios").unwrap();
    format!("{text}\n{tables}")
}

fn radius<'a>(status: &'a Value, n: usize) -> &'a Value {
    &status["radius"]["servers"][n]
}

#[test]
fn a_host_has_the_name_and_the_prefix_that_freeradius_says() {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty("user").filter(|_| installed()) else { return };
    let freeradius = RadiusServer::start(domain.node("core"), domain.dir.path(), 1812, USERS);
    domain.lma = Some(domain.start_with(
        "lma",
        "lma",
        &std::fs::read_to_string(example("lma.toml")).unwrap(),
    ));
    let tables = format!("[radius]\ninterim = \"1s\"\n{}", server(&domain, AT_GATEWAYS, 1812));
    let mag = domain.start_with("mag", "wlan1", &gateway("wlan1", &tables));
    let capture = Capture::start(domain.node("core"), domain.dir.path(), "left");
    domain.attach("host:wlan", "wlan1");
    let status = domain.is_bound(FIRST, "fd00:2::2");
    let found = binding(&status, FIRST).unwrap();
    assert_eq!(found["mn_id"], "alice@example.org");
    assert_eq!(found["prefixes"], serde_json::json!(["2001:db8:0:77::/64"]));
    domain.address("host", "wlan");
    let status = mag.status();
    assert_eq!(radius(&status, 0)["answers"], 1, "{status:#}");
    drop((capture, freeradius));
}
