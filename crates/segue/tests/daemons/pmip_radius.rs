//! Proxy Mobile IPv6 with RADIUS servers that authorize hosts: gateways and anchors as clients of FreeRADIUS.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use segue_wire::mobility::Status;
use serde_json::{Value, json};

use crate::pmip::{Domain, FIRST, OTHER, binding, cn, example};
use crate::radius_server::{Capture, RadiusServer, SECRET, installed};
use crate::traffic::Stream;
use crate::world::{Daemon, wait_for};

/// The address of the servers' node, as gateways and the anchor reach it.
const AT_GATEWAYS: &str = "fd00:2::1";
const AT_ANCHOR: &str = "fd00:1::2";

/// A user that a gateway may serve.
const ALICE: &str = r#"
02-5E-67-01-00-00 Cleartext-Password := "02-5E-67-01-00-00"
  Mobile-Node-Identifier = "alice@example.org",
  PMIP6-Home-HN-Prefix = 2001:db8:0:77::/64,
  Class = "gold",
  Session-Timeout = 3600
"#;

/// Short timeouts, to notice quickly whether a server answers.
const HASTY: &str = "timeout = \"200ms\"\ntries = 2\nhold_off = \"1s\"\n";

/// The domain over user space; `None` if the requirements are missing.
fn domain() -> Option<Domain> {
    domain_over("user")
}

fn domain_over(datapath: &'static str) -> Option<Domain> {
    installed().then(|| Domain::empty(datapath)).flatten()
}

fn server_at(domain: &Domain, port: u16, users: &str) -> RadiusServer {
    RadiusServer::start(domain.node("core"), domain.dir.path(), port, users)
}

fn secret(domain: &Domain, name: &str, text: &str) -> String {
    let path = domain.dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A `[[radius.server]]` table with accounting at the next port.
fn table(domain: &Domain, address: &str, port: u16) -> String {
    table_with(&secret(domain, "secret", &format!("{SECRET}\n")), address, port)
}

fn table_with(secret_file: &str, address: &str, port: u16) -> String {
    let accounting = port + 1;
    format!(
        "[[radius.server]]\naddress = \"{address}\"\nsecret_file = \"{secret_file}\"\n\
         authentication = {port}\naccounting = {accounting}\n"
    )
}

fn anchor(domain: &mut Domain, tables: &str) {
    let text = std::fs::read_to_string(example("lma.toml")).unwrap();
    domain.lma = Some(domain.start_with("lma", "lma", &format!("{text}\n{tables}")));
}

/// A gateway at the first access, without the hosts listed in its example.
fn gateway(domain: &Domain, tables: &str) -> Daemon {
    let text = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let (text, _) = text.split_once("# The radios").unwrap();
    domain.start_with("mag", "wlan1", &format!("{text}\n{tables}"))
}

fn server(status: &Value, n: usize) -> &Value {
    &status["radius"]["servers"][n]
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The records of one status type, such as `Start`.
fn of_status(server: &RadiusServer, status: &str) -> Vec<String> {
    let line = format!("\tAcct-Status-Type = {status}\n");
    server.records().into_iter().filter(|record| record.contains(&line)).collect()
}

/// The value of an attribute in a record.
fn value(record: &str, attribute: &str) -> Option<String> {
    let prefix = format!("\t{attribute} = ");
    record.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

/// The octets that a record reports for a session: from the host and to it.
fn octets(record: &str) -> [u64; 2] {
    ["Input", "Output"].map(|way| {
        let number = |of: &str| value(record, &format!("Acct-{way}-{of}"));
        let number = |of| number(of).unwrap_or_else(|| panic!("{record}")).parse::<u64>().unwrap();
        number("Gigawords") << 32 | number("Octets")
    })
}

crate::over_both! { among_others:
    a_host_has_the_name_and_the_prefix_that_freeradius_says_and_is_accounted_for
    what_a_host_carries_is_accounted_for_at_the_anchor_over_moves
}

fn a_host_has_the_name_and_the_prefix_that_freeradius_says_and_is_accounted_for(
    datapath: &'static str,
) {
    let Some(mut domain) = domain_over(datapath) else { return };
    let freeradius = server_at(&domain, 1812, ALICE);
    anchor(&mut domain, "");
    let capture = Capture::start(domain.node("core"), domain.dir.path(), "left");
    let tables = format!("[radius]\ninterim = \"1s\"\n{}", table(&domain, AT_GATEWAYS, 1812));
    let mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    let status = domain.is_bound(FIRST, "fd00:2::2");
    let found = binding(&status, FIRST).unwrap();
    assert_eq!(found["mn_id"], "alice@example.org");
    assert_eq!(found["prefixes"], json!(["2001:db8:0:77::/64"]));
    domain.address("host", "wlan");
    let status = mag.status();
    assert_eq!(
        (&server(&status, 0)["answers"], &status["radius"]["sessions"]),
        (&1.into(), &1.into())
    );
    wait_for("an interim update", || !of_status(&freeradius, "Interim-Update").is_empty());
    let stream = Stream::start(
        domain.node("host"),
        domain.node("cn"),
        cn(),
        std::time::Duration::from_millis(1),
    );
    stream.flows_on(300_000);
    drop(stream);
    domain.lab.detach("host:wlan", None).unwrap();
    wait_for("the stop", || !of_status(&freeradius, "Stop").is_empty());
    let records = freeradius.records();
    let told: Vec<String> =
        records.iter().filter_map(|record| value(record, "Acct-Status-Type")).collect();
    assert_eq!(
        (&told[..2], told.last().unwrap().as_str()),
        (&["Accounting-On".into(), "Start".into()][..], "Stop")
    );
    let sessions: std::collections::BTreeSet<_> =
        records[1..].iter().map(|record| value(record, "Acct-Session-Id")).collect();
    assert_eq!(sessions.len(), 1, "{records:?}");
    let stop = records.last().unwrap();
    for (attribute, expected) in [
        ("User-Name", "\"02-5E-67-01-00-00\""),
        ("Calling-Station-Id", "\"02-5E-67-01-00-00\""),
        ("NAS-IPv6-Address", "fd00:2::2"),
        ("NAS-Port-Id", "\"wlan1\""),
        ("NAS-Port-Type", "Wireless-802.11"),
        ("Acct-Terminate-Cause", "User-Request"),
        ("PMIP6-Home-HN-Prefix", "2001:db8:0:77::/64"),
        ("Class", "0x676f6c64"),
    ] {
        assert_eq!(value(stop, attribute).as_deref(), Some(expected), "{attribute}: {stop}");
    }
    // The octets carried: the stream's data in both directions with its headers.
    let [input, output] = octets(stop);
    for octets in [input, output] {
        assert!((300_000..5_000_000).contains(&octets), "{stop}");
    }
    let interim = of_status(&freeradius, "Interim-Update");
    let so_far: Vec<[u64; 2]> = interim.iter().map(|record| octets(record)).collect();
    assert!(so_far.is_sorted(), "{so_far:?}");
    // All messages, checked by a dissector that knows the secret.
    let (all, wrong) = capture.read();
    assert!(all.len() >= 10, "{all:?}");
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn a_host_that_freeradius_refuses_is_not_registered_and_not_asked_about_in_a_storm() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let _freeradius = server_at(&domain, 1812, ALICE);
    anchor(&mut domain, "");
    let tables = format!("[radius]\n{}", table(&domain, AT_GATEWAYS, 1812));
    let mag = gateway(&domain, &tables);
    domain.attach("other:wlan", "wlan1");
    let status = mag.wait("it is refused", |status| count(&server(status, 0)["rejects"]) == 1);
    assert_eq!(status["hosts"], json!([]));
    let events = status["events"].as_array().unwrap();
    let refused = events.iter().find(|event| event["kind"] == "unauthorized").unwrap();
    assert_eq!(refused["mn_id"], "02-5E-67-01-00-02", "{refused}");
    mag.wait("it is heard again and not asked about", |s| count(&s["radius"]["held_back"]) > 0);
    assert_eq!(server(&mag.status(), 0)["requests"], 1);
    assert!(binding(&domain.lma().status(), OTHER).is_none());
    assert_eq!(domain.lma().status()["refused"], json!({}), "the anchor has heard nothing of it");
}

#[test]
fn with_a_wrong_secret_or_a_silent_server_the_next_one_is_asked() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let _wrong = server_at(&domain, 1822, ALICE);
    let _right = server_at(&domain, 1842, ALICE);
    let silent = domain.node("core").run(|| UdpSocket::bind("[::]:1832").unwrap()).unwrap();
    anchor(&mut domain, "");
    let another = secret(&domain, "another", "another secret");
    let tables = format!(
        "[radius]\n{HASTY}{}{}{}",
        table_with(&another, AT_GATEWAYS, 1822),
        table(&domain, AT_GATEWAYS, 1832),
        table(&domain, AT_GATEWAYS, 1842)
    );
    let mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    let status = domain.is_bound(FIRST, "fd00:2::2");
    assert_eq!(binding(&status, FIRST).unwrap()["mn_id"], "alice@example.org");
    let status = mag.status();
    let states: Vec<&Value> = (0..3).map(|n| &server(&status, n)["state"]).collect();
    assert_eq!(states, ["silent", "silent", "answers"], "{status:#}");
    for n in [0, 1] {
        assert_eq!(server(&status, n)["answers"], 0);
        assert_eq!(
            (count(&server(&status, n)["requests"]), count(&server(&status, n)["repeated"])),
            (1, 1)
        );
    }
    drop(silent);
}

#[test]
fn without_an_answer_nothing_is_served_and_the_host_is_asked_about_when_it_is_heard_again() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    anchor(&mut domain, "");
    let tables = format!("[radius]\n{HASTY}{}", table(&domain, AT_GATEWAYS, 1812));
    let mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    let status = mag.wait("nobody answers", |s| count(&server(s, 0)["unanswered"]) > 0);
    assert_eq!(binding(&domain.lma().status(), FIRST), None, "{status:#}");
    let _freeradius = server_at(&domain, 1812, ALICE);
    // The host attaches again, and is authorized.
    domain.lab.detach("host:wlan", None).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    assert_eq!(server(&mag.status(), 0)["state"], "answers");
}

#[test]
fn a_session_that_is_over_ends_and_the_host_has_another_one() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let users = ALICE.replace("Session-Timeout = 3600", "Session-Timeout = 2");
    let freeradius = server_at(&domain, 1812, &users);
    anchor(&mut domain, "");
    let tables = format!("[radius]\n{}", table(&domain, AT_GATEWAYS, 1812));
    let _mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    wait_for("two sessions", || of_status(&freeradius, "Start").len() >= 2);
    let stop = &of_status(&freeradius, "Stop")[0];
    assert_eq!(value(stop, "Acct-Terminate-Cause").as_deref(), Some("Session-Timeout"));
    // The session starts with the anchor's answer, which came a moment after the server's.
    let lasted: u64 = value(stop, "Acct-Session-Time").unwrap().parse().unwrap();
    assert!(lasted <= 2, "{stop}");
    let starts = of_status(&freeradius, "Start");
    assert_ne!(value(&starts[0], "Acct-Session-Id"), value(&starts[1], "Acct-Session-Id"));
    domain.is_bound(FIRST, "fd00:2::2");
}

#[test]
fn a_gateway_that_starts_again_asks_about_the_hosts_that_it_has() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let freeradius = server_at(&domain, 1812, ALICE);
    anchor(&mut domain, "");
    let tables = format!("[radius]\n{}", table(&domain, AT_GATEWAYS, 1812));
    let mut mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    wait_for("the start", || of_status(&freeradius, "Start").len() == 1);
    mag.end(Signal::SIGKILL);
    let mag = gateway(&domain, &tables);
    mag.wait("it has asked", |status| count(&server(status, 0)["answers"]) == 1);
    wait_for("another start", || of_status(&freeradius, "Start").len() == 2);
    assert_eq!(of_status(&freeradius, "Accounting-On").len(), 2);
    // The server no longer knows the host.
    drop((mag, freeradius));
    std::fs::remove_dir_all(domain.dir.path().join("radius1812")).unwrap();
    let _freeradius = server_at(&domain, 1812, "");
    let _mag = gateway(&domain, &tables);
    domain.lma().wait("the host is not served", |status| {
        binding(status, FIRST).is_none_or(|at| at["state"] == "leaving")
    });
}

#[test]
fn papers_gateway_is_let_in_with_its_name_and_its_password() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let users = r#"
0000025e67010000 Cleartext-Password := "linux", Service-Type == Authenticate-Only
  Mobile-Node-Identifier = "alice@example.org",
  Framed-IPv6-Prefix = 2001:db8:0:78::/64,
  Framed-Interface-Id = 0:0:0:1
"#;
    let _freeradius = server_at(&domain, 1812, users);
    anchor(&mut domain, "");
    let tables = format!("[radius]\nprofile = \"paper\"\n{}", table(&domain, AT_GATEWAYS, 1812));
    let _mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    let status = domain.is_bound(FIRST, "fd00:2::2");
    let found = binding(&status, FIRST).unwrap();
    assert_eq!(found["mn_id"], "alice@example.org");
    assert_eq!(found["prefixes"], json!(["2001:db8:0:78::/64"]));
}

#[test]
fn answers_without_message_authenticator_are_passed_over_where_it_is_required() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let with = format!("{ALICE}  , Message-Authenticator = 0x00\n");
    let with = with.replace("3600\n  ,", "3600,\n ");
    let _plain = server_at(&domain, 1822, ALICE);
    let _signed = server_at(&domain, 1832, &with);
    anchor(&mut domain, "");
    let tables = format!(
        "[radius]\nrequire_message_authenticator = true\n{HASTY}{}{}",
        table(&domain, AT_GATEWAYS, 1822),
        table(&domain, AT_GATEWAYS, 1832)
    );
    let mag = gateway(&domain, &tables);
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    let status = mag.status();
    let refused = &server(&status, 0)["refused"]["no_message_authenticator"];
    assert!(count(refused) > 0, "{status:#}");
    assert_eq!(
        (&server(&status, 0)["answers"], &server(&status, 1)["answers"]),
        (&0.into(), &1.into())
    );
}

#[test]
fn an_anchor_has_hosts_authorized_and_ends_bindings_that_are_not_any_more() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let users = r#"
alice@example.org Service-Type == Authorize-Only, Auth-Type := Accept
  PMIP6-Home-HN-Prefix = 2001:db8:0:79::/64,
  Session-Timeout = 2
"#;
    let freeradius = server_at(&domain, 1812, users);
    let capture = Capture::start(domain.node("core"), domain.dir.path(), "lma");
    let tables = format!("[radius]\n{HASTY}{}", table(&domain, AT_ANCHOR, 1812));
    anchor(&mut domain, &tables);
    let text = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let mag = domain.start_with("mag", "wlan1", &text);
    domain.attach("host:wlan", "wlan1");
    domain.attach("other:wlan", "wlan1");
    let status = domain.is_bound(FIRST, "fd00:2::2");
    assert_eq!(binding(&status, FIRST).unwrap()["prefixes"], json!(["2001:db8:0:79::/64"]));
    let name = Status::PROXY_REG_NOT_ENABLED.name().unwrap();
    let status =
        domain.lma().wait("the other is refused", |status| count(&status["refused"][name]) > 0);
    assert!(binding(&status, OTHER).is_none());
    mag.wait("it is not served", |status| {
        status["hosts"].as_array().unwrap().iter().all(|host| host["llid"] != OTHER)
    });
    // The anchor asks again when the session time ends; the host may stay.
    domain
        .lma()
        .wait("it is asked about again", |status| count(&server(status, 0)["answers"]) >= 3);
    assert!(binding(&domain.lma().status(), FIRST).is_some());
    let (all, wrong) = capture.read();
    assert!(all.len() >= 8, "{all:?}");
    assert_eq!(wrong, [""; 0]);
    drop(freeradius);
    std::fs::remove_dir_all(domain.dir.path().join("radius1812")).unwrap();
    let _freeradius = server_at(&domain, 1812, "");
    domain.lma().wait("its binding ends", |status| binding(status, FIRST).is_none());
}

#[test]
fn while_no_server_answers_an_anchor_registers_nobody_and_says_nothing() {
    let _turn = crate::among_others();
    let Some(mut domain) = domain() else { return };
    let tables = format!("[radius]\n{HASTY}{}", table(&domain, AT_ANCHOR, 1812));
    anchor(&mut domain, &tables);
    let text = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let mag = domain.start_with("mag", "wlan1", &text);
    domain.attach("host:wlan", "wlan1");
    domain.lma().wait("it is counted", |status| count(&status["refused"]["unanswered"]) > 0);
    let status = mag.status();
    assert_eq!(status["hosts"][0]["state"], "registering", "{status:#}");
    let _freeradius = server_at(&domain, 1812, "alice@example.org Auth-Type := Accept\n\n");
    domain.is_bound(FIRST, "fd00:2::2");
}

fn what_a_host_carries_is_accounted_for_at_the_anchor_over_moves(datapath: &'static str) {
    let Some(mut domain) = domain_over(datapath) else { return };
    let users = "alice@example.org Service-Type == Authorize-Only, Auth-Type := Accept\n\n";
    let freeradius = server_at(&domain, 1812, users);
    let tables = format!("[radius]\n{}", table(&domain, AT_ANCHOR, 1812));
    let text = std::fs::read_to_string(example("lma.toml")).unwrap();
    // Flows are counted separately, and end before the session does.
    let keys = "every_flow = true\nflow_idle = \"1s\"\ndelete_delay = \"3s\"\n";
    domain.lma = Some(domain.start_with("lma", "lma", &format!("{keys}{text}\n{tables}")));
    for access in ["wlan1", "wlan2"] {
        domain.mags.insert(access, domain.start("mag", access, ""));
    }
    let pause = std::time::Duration::from_millis(1);
    for (access, coa) in [("wlan1", "fd00:2::2"), ("wlan2", "fd00:3::2")] {
        domain.attach("host:wlan", access);
        domain.is_bound(FIRST, coa);
        domain.address("host", "wlan");
        Stream::start(domain.node("host"), domain.node("cn"), cn(), pause).flows_on(300_000);
    }
    domain.lma().wait("flows end", |status| status["flow_count"] == 0);
    domain.lab.detach("host:wlan", None).unwrap();
    wait_for("the stop", || !of_status(&freeradius, "Stop").is_empty());
    assert_eq!(of_status(&freeradius, "Start").len(), 1, "one session all along");
    let stop = &of_status(&freeradius, "Stop")[0];
    for octets in octets(stop) {
        assert!((600_000..10_000_000).contains(&octets), "{stop}");
    }
}
