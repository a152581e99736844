//! IEEE 802.21 end to end: service access points, functions, and the gateways and anchors that they inform about links.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use segue_wire::mih::{Frame, OctetString, Profile, Tlv};
use serde_json::Value;

use crate::pmip::{Domain, FIRST, SECOND, binding, cn, example, told};
use crate::radius_server::{Capture, RadiusServer, SECRET, installed};
use crate::traffic::{Stream, Voice};
use crate::world::{Daemon, text};

/// The links of the accesses: name in the test network, link-layer address and technology.
const LINKS: [(&str, &str, &str); 4] = [
    ("wlan1", "02:5e:67:02:00:00", "wlan"),
    ("lte1", "02:5e:67:02:00:01", "e-utran"),
    ("wlan2", "02:5e:67:02:00:02", "wlan"),
    ("lte2", "02:5e:67:02:00:03", "e-utran"),
];

/// A user that a gateway may serve.
const ALICE: &str = r#"
02-5E-67-01-00-00 Cleartext-Password := "02-5E-67-01-00-00"
  Mobile-Node-Identifier = "alice@example.org",
  PMIP6-Home-HN-Prefix = 2001:db8:0:77::/64
"#;

/// A domain in which functions report hosts: one function per node, with a service access point for all its accesses.
struct Told {
    functions: Vec<Daemon>,
    saps: Vec<Daemon>,
    domain: Domain,
    transport: &'static str,
    /// Further keys for accesses.
    access: &'static str,
}

impl Told {
    fn new(transport: &'static str, accesses: &[&'static str]) -> Option<Told> {
        Told::with(transport, accesses, "", "")
    }

    /// Starts a domain with further keys for accesses and for the anchor.
    fn with(
        transport: &'static str,
        accesses: &[&'static str],
        access: &'static str,
        anchor: &str,
    ) -> Option<Told> {
        let domain = Domain::new("ebpf", &[])?;
        let (functions, saps) = (Vec::new(), Vec::new());
        let mut all = Told { functions, saps, domain, transport, access };
        for node in ["left", "right"] {
            all.functions.push(all.function(node));
            all.saps.push(all.sap(node));
        }
        let more = format!(
            "[mih]\nfunctions = [\"fd00:2::2\", \"fd00:3::2\"]\ntransport = \"{transport}\"\n"
        );
        let content = std::fs::read_to_string(example("lma.toml")).unwrap();
        let content = format!("{anchor}{content}");
        drop(all.domain.lma.take());
        all.domain.lma = Some(all.domain.start_with("lma", "lma", &format!("{content}{more}")));
        for access in accesses {
            let gateway = all.gateway(access);
            all.domain.mags.insert(access, gateway);
        }
        Some(all)
    }

    fn run(&self, node: &str, what: &str, name: &str, content: &str) -> Daemon {
        let config = self.domain.config(name, content);
        self.domain.run(node, name, &["mih", what, "-c", config.to_str().unwrap()])
    }

    fn function(&self, node: &str) -> Daemon {
        let content = format!("name = \"mihf@{node}\"\npeers = [\"fd00::/16\"]\n");
        self.run(node, "function", &format!("function-{node}"), &content)
    }

    /// Starts the service access point for both accesses of a node. The test network reports its radios to it.
    fn sap(&self, node: &str) -> Daemon {
        let socket = self.domain.lab.announcements().unwrap().to_str().unwrap();
        let links = if node == "left" { &LINKS[..2] } else { &LINKS[2..] };
        let of = |(interface, address, technology): &(&str, &str, &str)| {
            format!(
                "[[link]]\ninterface = \"{interface}\"\naddress = \"{address}\"\n\
                 technology = \"{technology}\"\nsource = \"lab\"\nsocket = \"{socket}\"\n"
            )
        };
        let links: String = links.iter().map(of).collect();
        let transport = self.transport;
        let content = format!("name = \"link-sap@{node}\"\ntransport = \"{transport}\"\n{links}");
        self.run(node, "link-sap", &format!("sap-{node}"), &content)
    }

    fn gateway(&self, access: &str) -> Daemon {
        let (_, link, _) = LINKS.iter().find(|(name, ..)| *name == access).unwrap();
        let content = std::fs::read_to_string(example(&format!("{access}.toml"))).unwrap();
        let technology = content.lines().find(|line| line.starts_with("technology")).unwrap();
        let by = format!("{technology}\nattach = \"mih\"\nlink = \"{link}\"\n{}", self.access);
        let transport = self.transport;
        let content =
            content.replace(technology, &by) + &format!("\n[mih]\ntransport = \"{transport}\"\n");
        self.domain.start_with("mag", access, &content)
    }

    fn is_subscribed(&self, node: usize, link: &str, count: usize) {
        self.functions[node].wait("the link has its subscribers", |status| {
            let links = status["links"].as_array().unwrap();
            let of = links.iter().find(|of| of["link"] == link);
            of.is_some_and(|of| of["subscribed"].as_object().unwrap().len() >= count)
        });
    }
}

fn hosts_come_and_go(transport: &'static str) {
    let _turn = crate::among_others();
    let Some(told) = Told::new(transport, &["wlan1", "wlan2"]) else { return };
    let (host, far) = (told.domain.node("host"), told.domain.node("cn"));
    told.is_subscribed(0, LINKS[0].1, 2);
    told.is_subscribed(1, LINKS[2].1, 2);
    told.domain.attach("host:wlan", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
    told.domain.address("host", "wlan");
    let attach = &told.domain.mags["wlan1"].status()["hosts"][0]["attach"];
    println!("attaching over {transport}: {attach}");
    for step in ["mih_ms", "aaa_ms", "pba_ms", "ra_ms"] {
        let took = attach[step].as_f64().unwrap_or_else(|| panic!("{step}: {attach}"));
        assert!((0.0..5_000.0).contains(&took), "{step}: {attach}");
    }
    let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
    stream.flows_on(100_000);
    told.domain.attach("host:wlan", "wlan2");
    told.domain.is_bound(FIRST, "fd00:3::2");
    stream.flows_on(100_000);
    told.domain.lab.detach("host:wlan", None).unwrap();
    told.domain.lma().wait("it has left", |status| {
        binding(status, FIRST).is_none_or(|binding| binding["state"] == "leaving")
    });
    told.domain.attach("host:wlan", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
    stream.flows_on(100_000);
    for function in &told.functions {
        assert_eq!(function.status()["refused"], serde_json::json!({}));
    }
    let page = text(&told.functions[0].cli(&["status"]).stdout);
    for part in ["mih-function mihf@left, up ", "registered pmip-mag-wlan1@", FIRST, "attached"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = text(&told.saps[0].cli(&["status"]).stdout);
    assert!(page.contains("mih-link-sap link-sap@left") && page.contains("this daemon"), "{page}");
    assert!(page.contains("mihf@left (registered there)"), "{page}");
}

#[test]
fn gateways_serve_hosts_that_a_function_tells_of() {
    hosts_come_and_go("udp");
}

#[test]
fn gateways_serve_hosts_that_a_function_tells_of_over_tcp() {
    hosts_come_and_go("tcp");
}

#[test]
fn a_host_that_was_told_of_before_its_access_was_there_is_served() {
    let _turn = crate::among_others();
    let Some(mut told) = Told::new("udp", &[]) else { return };
    told.domain.rename("wlan1", "later");
    let gateway = told.gateway("wlan1");
    told.is_subscribed(0, LINKS[0].1, 2);
    told.domain.attach("host:wlan", "wlan1");
    told.functions[0].wait("the station is known", |status| {
        let links = status["links"].as_array().unwrap();
        links.iter().any(|link| link["stations"][0]["station"] == FIRST)
    });
    assert_eq!(gateway.status()["host_count"], 0);
    told.domain.rename("later", "wlan1");
    told.domain.mags.insert("wlan1", gateway);
    told.domain.is_bound(FIRST, "fd00:2::2");
    told.domain.address("host", "wlan");
    // The interface disappears, and another one takes its name.
    told.domain.rename("wlan1", "later");
    told.domain.mags["wlan1"].wait("no host", |status| status["host_count"] == 0);
    told.domain.rename("later", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
}

#[test]
fn any_of_those_who_tell_may_be_killed_and_hosts_keep_what_they_have() {
    let _turn = crate::among_others();
    for transport in ["udp", "tcp"] {
        let Some(mut told) = Told::new(transport, &["wlan1"]) else { return };
        let (host, far) = (told.domain.node("host"), told.domain.node("cn"));
        told.domain.attach("host:wlan", "wlan1");
        told.domain.is_bound(FIRST, "fd00:2::2");
        told.domain.address("host", "wlan");
        let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
        stream.flows_on(100_000);
        told.functions[0].end(Signal::SIGKILL);
        told.functions[0] = told.function("left");
        stream.flows_on(100_000);
        told.is_subscribed(0, LINKS[0].1, 2);
        told.saps[0].end(Signal::SIGKILL);
        told.saps[0] = told.sap("left");
        stream.flows_on(100_000);
        told.is_subscribed(0, LINKS[0].1, 2);
        // Both know the station, and learn when it leaves.
        for daemon in [&told.functions[0], &told.saps[0]] {
            daemon.wait("the station is known", |status| {
                let links = status["links"].as_array().unwrap();
                links.iter().any(|link| link["stations"][0]["station"] == FIRST)
            });
        }
        let status = told.domain.mags["wlan1"].status();
        assert_eq!(status["hosts"][0]["state"], "active", "{status}");
        let left = |status: &Value| {
            status["events"].as_array().unwrap().iter().any(|event| event["kind"] == "left")
        };
        assert!(!left(&told.domain.lma().status()), "{transport}");
        told.domain.lab.detach("host:wlan", None).unwrap();
        told.domain.lma().wait("it has left", |status| {
            binding(status, FIRST).is_none_or(|binding| binding["state"] == "leaving")
        });
    }
}

/// Each round moves the host's flows to the other access before the first one goes away.
fn told_in_time(rounds: usize) {
    let Some(told) = Told::new("udp", &["wlan1", "lte2"]) else { return };
    told.is_subscribed(0, LINKS[0].1, 2);
    told.is_subscribed(1, LINKS[3].1, 2);
    // Attach one after the other, so that the host sends from the prefix of the first.
    told.domain.attach("host:wlan", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
    told.domain.address("host", "wlan");
    told.domain.attach("host:wwan", "lte2");
    told.domain.is_bound(SECOND, "fd00:3::3");
    told.domain.address("host", "wwan");
    self::told(&told.domain, &["wlan1", "lte2"]);
    let mut gaps = [Vec::new(), Vec::new()];
    let (mut lost, mut sent) = ([0, 0], [0, 0]);
    for round in 0..rounds {
        let voice = Voice::start(told.domain.node("host"), told.domain.node("cn"), cn());
        voice.flows_on(25);
        voice.mark();
        let within = Duration::from_millis(300);
        told.domain.lab.announce_leaving("host:wlan", "wlan1", within);
        let caused = |cause: &'static str| {
            move |status: &Value| {
                let last = status["handovers"].as_array().unwrap().last();
                last.is_some_and(|last| last["cause"] == cause)
            }
        };
        told.domain.lma().wait("the flows are on the other access", caused("going_down"));
        std::thread::sleep(within);
        told.domain.lab.detach("host:wlan", None).unwrap();
        voice.flows_on(10);
        for (all, gap) in gaps.iter_mut().zip(voice.gap_ms()) {
            all.push(gap);
        }
        println!("round {round}: longest distances {:?} ms", voice.gap_ms());
        // Count the losses of this handover only, without those when the access returns.
        let heard = voice.finish();
        for way in 0..2 {
            lost[way] += heard.lost[way];
            sent[way] += heard.sent[way];
        }
        told.domain.attach("host:wlan", "wlan1");
        told.domain.lma().wait("the flow is back", caused("back"));
        self::told(&told.domain, &["wlan1", "lte2"]);
    }
    gaps.iter_mut().for_each(|all| all.sort_unstable());
    let [up, down] = gaps.map(|all| (all[all.len() / 2], all[all.len() * 95 / 100]));
    println!(
        "{rounds} handovers that were foretold; distances of packets of 20 ms, median and 95 %:"
    );
    println!("up {up:?} ms, down {down:?} ms; lost {lost:?} of {sent:?}");
    assert_eq!(lost[1], 0, "towards the host");
}

#[test]
fn no_packet_to_the_host_is_lost_when_the_end_of_an_attachment_is_foretold() {
    let _turn = crate::among_others();
    told_in_time(3);
}

#[test]
#[ignore = "a minute of handovers: make soak"]
fn soak_of_thirty_handovers_that_were_foretold() {
    let _turn = crate::alone();
    told_in_time(30);
}

/// Packets that the anchor sent to a gateway, and received from it.
fn carried(status: &Value, proxy_coa: &str) -> [u64; 2] {
    let mut all = status["tunnels"].as_array().unwrap().iter();
    let tunnel = all.find(|tunnel| tunnel["proxy_coa"] == proxy_coa).unwrap();
    [0, 1].map(|n| tunnel["packets"][n].as_u64().unwrap())
}

/// A host that combines its two interfaces in a bridge.
#[test]
fn a_logical_interface_sends_where_its_flows_come_from() {
    let _turn = crate::among_others();
    let socket = tempfile::tempdir().unwrap();
    let socket = socket.path().join("decisions.sock");
    let keys = format!("decisions = {:?}\n", socket.to_str().unwrap());
    let accesses = ["wlan1", "lte2"];
    let Some(told) = Told::with("udp", &accesses, "handoff = \"sharing\"", &keys) else { return };
    let (host, far) = (told.domain.node("host"), told.domain.node("cn"));
    let ip = |args: &str| {
        let mut command = host.command("ip");
        assert!(command.arg("link").args(args.split(' ')).status().unwrap().success(), "{args}");
    };
    ip("add name sgbr type bridge");
    let accept = || std::fs::write("/proc/sys/net/ipv6/conf/sgbr/accept_ra", "1");
    host.run(accept).unwrap().unwrap();
    ["set wlan master sgbr", "set wwan master sgbr", "set sgbr up"].into_iter().for_each(ip);
    told.is_subscribed(0, LINKS[0].1, 2);
    told.is_subscribed(1, LINKS[3].1, 2);
    told.domain.attach("host:wlan", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
    told.domain.attach("host:wwan", "lte2");
    let status = told.domain.is_bound(SECOND, "fd00:3::3");
    let bindings = [FIRST, SECOND].map(|llid| binding(&status, llid).unwrap().clone());
    assert_eq!(bindings[0]["prefixes"], bindings[1]["prefixes"]);
    let address = told.domain.address("host", "sgbr");
    let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
    let voice = Voice::start(host, far, cn());
    stream.flows_on(100_000);
    let orders = UnixStream::connect(&socket).unwrap();
    orders.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let lines = BufReader::new(orders.try_clone().unwrap()).lines();
    let events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let flows: Vec<Value> = events.filter(|event| event["event"] == "flow").take(2).collect();
    for (to, from) in [(1, 0), (0, 1), (1, 0)] {
        for told in &flows {
            let bid = &bindings[to]["bid"];
            let order = serde_json::json!({ "order": "move", "flow": told["flow"], "bid": bid });
            (&orders).write_all(format!("{order}\n").as_bytes()).unwrap();
        }
        let [to, from] = [to, from].map(|n| bindings[n]["proxy_coa"].as_str().unwrap());
        told.domain.lma().wait("flows go there", |status| {
            status["flows"].as_array().unwrap().iter().all(|flow| flow["why"] == "decision")
        });
        stream.flows_on(100_000);
        let before = told.domain.lma().status();
        stream.flows_on(500_000);
        voice.flows_on(25);
        let after = told.domain.lma().status();
        let more = |coa| {
            let [before, after] = [&before, &after].map(|status| carried(status, coa));
            [after[0] - before[0], after[1] - before[1]]
        };
        let (there, elsewhere) = (more(to), more(from));
        println!("over {to}: {there:?}, over {from}: {elsewhere:?}");
        assert!(there.iter().all(|packets| *packets > 50), "{there:?}");
        // Only packets in flight at the move go the old way.
        assert!((0..2).all(|n| elsewhere[n] * 20 < there[n]), "{elsewhere:?}");
    }
    // Remove the access that carries everything.
    told.domain.lab.detach("host:wwan", None).unwrap();
    stream.flows_on(100_000);
    voice.flows_on(25);
    assert_eq!(told.domain.address("host", "sgbr"), address);
    let heard = voice.finish();
    println!("lost {:?} of {:?}, gaps {:?} ms", heard.lost, heard.sent, heard.gap_ms);
    assert!(heard.lost.iter().all(|lost| *lost < 50), "{:?}", heard.lost);
}

fn said(output: &std::process::Output) -> (Option<i32>, String) {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), crate::world::text(&all))
}

#[test]
fn an_operator_asks_and_orders_links_over_their_function() {
    let _turn = crate::among_others();
    let Some(told) = Told::new("udp", &[]) else { return };
    let wire = "02:5e:67:02:00:09";
    let content = format!(
        "name = \"link-sap@wire\"\n[[link]]\ninterface = \"wlan1\"\naddress = \"{wire}\"\norders = true\n"
    );
    let mut sap = told.run("left", "link-sap", "sap-wire", &content);
    told.is_subscribed(0, wire, 1);
    told.is_subscribed(0, LINKS[0].1, 1);
    let ask = |args: &[&str]| said(&told.functions[0].cli(&[&["mih"][..], args].concat()));
    let up = || {
        let args = ["-o", "link", "show", "dev", "wlan1"];
        let output = told.domain.node("left").command("ip").args(args).output().unwrap();
        crate::world::text(&output.stdout).contains(",UP")
    };
    for (args, code, words) in [
        // No station is attached, so no parameters are known.
        (&["get", wire][..], 0, "nothing is known of 02:5e:67:02:00:09 (link-sap@wire)"),
        (&["get", wire, "--json"], 0, "\"parameters\": []"),
        (&["get", wire, "colour"], 2, "invalid value 'colour'"),
        (&["get", "02:00:00:00:00:99"], 2, "no link \"02:00:00:00:00:99\"; known: 02:5e:67:02:00:"),
        (&["threshold", wire, "signal"], 2, "--below"),
        (&["threshold", wire, "sinr", "--below", "-1"], 2, "sinr: -1 dB is out of range"),
        (&["threshold", wire, "signal", "--every", "1ms"], 2, "must lie between"),
        (
            &["threshold", wire, "signal", "--below", "-70", "--every", "1s"],
            0,
            "signal of 02:5e:67:02:00:09 is reported below -70 dBm, every 1.000 s",
        ),
        (&["threshold", wire, "signal", "--below", "-70", "--cancel", "--json"], 0, "\"cancel\""),
        (&["act", wire, "disconnect"], 2, "--station"),
        (
            &["act", wire, "disconnect", "--station", "host"],
            2,
            "is no station's link-layer address",
        ),
        (&["act", wire, "low-power"], 2, "cannot do that"),
        (&["act", LINKS[0].1, "power-down"], 2, "orders = true"),
    ] {
        let (status, text) = ask(args);
        assert!(status == Some(code) && text.contains(words), "{args:?}: {text}");
        assert!(code == 0 || text.lines().count() == 1, "{args:?}: {text}");
    }
    assert!(up(), "nothing has been done yet");
    assert_eq!(ask(&["act", wire, "power-down"]), (Some(0), format!("{wire} is down\n")));
    assert!(!up());
    assert_eq!(ask(&["act", wire, "power-up"]), (Some(0), format!("{wire} is up\n")));
    assert!(up());
    // The service access point accepts the same orders directly.
    assert_eq!(said(&sap.cli(&["mih", "act", wire, "power-up"])).0, Some(0));
    // The service access point of the link hangs, or is gone.
    sap.signal(Signal::SIGSTOP);
    let (status, text) = ask(&["act", wire, "power-down"]);
    sap.signal(Signal::SIGCONT);
    assert!(status == Some(2) && text.contains("link-sap@wire"), "{text}");
    assert!(text.contains("does not answer"), "{text}");
    sap.end(Signal::SIGTERM);
    told.functions[0].wait("it has deregistered", |status| {
        let all = status["registered"].as_array().unwrap();
        !all.iter().any(|one| one["mihf_id"] == "link-sap@wire")
    });
    let (status, text) = ask(&["get", wire]);
    assert!(status == Some(2) && text.contains("nobody tells of 02:5e:67:02:00:09"), "{text}");
}

/// Paper 3, Fig. 6: registration, capabilities, subscription; then attachment, name and prefix of a host. The step
/// numbers are the paper's.
#[test]
fn a_host_attaches_in_the_fifteen_steps_of_the_papers_figure() {
    let _turn = crate::among_others();
    if !installed() {
        return;
    }
    let Some(mut told) = Told::new("udp", &[]) else { return };
    let dir = told.domain.dir.path().to_owned();
    let secret = dir.join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let _server = RadiusServer::start(told.domain.node("core"), &dir, 1812, ALICE);
    // As in the paper, the anchor receives no link events.
    drop(told.domain.lma.take());
    told.domain.lma = Some(told.domain.start("lma", "lma", ""));
    // Restart function and service access point, which discards the subscriptions.
    told.saps[0].end(Signal::SIGTERM);
    told.functions[0].end(Signal::SIGTERM);
    told.functions[0] = told.function("left");
    told.saps[0] = told.sap("left");
    told.saps[0].wait("it is registered", |status| status["functions"][0]["registered"] == true);
    let filter = "udp port 4551 or udp port 1812 or ip6 proto 135 or icmp6[0] = 134";
    let capture = Capture::of(told.domain.node("left"), &dir, "any", filter);
    let content = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let (content, _) = content.split_once("# The radios").unwrap();
    let content =
        content.replace("technology", "attach = \"mih\"\nlink = \"02:5e:67:02:00:00\"\ntechnology");
    let servers = format!(
        "[mih]\n[radius]\n[[radius.server]]\naddress = \"fd00:2::1\"\nsecret_file = {:?}\n",
        secret.to_str().unwrap()
    );
    let mag = told.domain.start_with("mag", "wlan1", &format!("{content}\n{servers}"));
    told.is_subscribed(0, LINKS[0].1, 1);
    told.domain.attach("host:wlan", "wlan1");
    told.domain.is_bound(FIRST, "fd00:2::2");
    told.domain.address("host", "wlan");
    let fields = ["udp.payload", "udp.dstport", "radius.code", "mip6.mhtype", "icmpv6.type"];
    let said = capture.fields(&fields);
    let steps: Vec<String> = said.iter().filter_map(|line| step(line)).collect();
    let expected = [
        "pmip-mag: MIH_Register request",
        "mihf: MIH_Register response",
        "pmip-mag: MIH_Capability_Discover request",
        "mihf: MIH_Capability_Discover response",
        "pmip-mag: MIH_Event_Subscribe request",
        "mihf: MIH_Event_Subscribe request",
        "link-sap: MIH_Event_Subscribe response",
        "mihf: MIH_Event_Subscribe response",
        "link-sap: MIH_Link_Up indication",
        "mihf: MIH_Link_Up indication",
        "Access-Request",
        "Access-Accept",
        "Proxy Binding Update",
        "Proxy Binding Acknowledgement",
        "Router Advertisement",
    ];
    // Each step occurs once and in this order, regardless of renewals in between.
    let mut from = 0;
    for step in expected {
        let place = steps[from..].iter().position(|said| said == step);
        from +=
            1 + place.unwrap_or_else(|| panic!("{step} is not there from {from} on: {steps:#?}"));
    }
    assert_eq!(mag.status()["hosts"][0]["mn_id"], "alice@example.org");
}

/// The figure's name for a packet; `None` for acknowledgements alone.
fn step(line: &str) -> Option<String> {
    let [payload, port, radius, mobility, icmpv6] = line.split(';').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    let named = match (radius, mobility, icmpv6) {
        ("1", ..) => Some("Access-Request"),
        ("2", ..) => Some("Access-Accept"),
        (_, "5", _) => Some("Proxy Binding Update"),
        (_, "6", _) => Some("Proxy Binding Acknowledgement"),
        (_, _, "134") => Some("Router Advertisement"),
        _ => None,
    };
    if named.is_some() || port.is_empty() {
        return named.map(str::to_owned);
    }
    let bytes: Vec<u8> = (0..payload.len() / 2)
        .map(|n| u8::from_str_radix(&payload[2 * n..2 * n + 2], 16).unwrap())
        .collect();
    let frame = Frame::parse(&bytes, &Profile::STRICT).unwrap();
    let Some(Tlv::SourceMihfId(OctetString(name))) = frame.tlvs().first() else { panic!("{line}") };
    let name = String::from_utf8(name.clone()).unwrap();
    let who = ["pmip-mag", "mihf", "link-sap"].into_iter().find(|who| name.starts_with(who))?;
    (!frame.ack_rsp || frame.tlvs().len() > 2).then(|| format!("{who}: {}", frame.name().unwrap()))
}

#[test]
fn what_is_wrong_in_a_file_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let link = "[[link]]\ninterface = \"lo\"\naddress = \"02:00:00:00:00:01\"\n";
    for (verb, content, expected) in [
        ("function", "peers = [\"here\"]\n".to_owned(), "peers: \"here\""),
        ("function", "validity = \"1s\"\n".to_owned(), "validity: must lie"),
        ("function", "name = \"\"\n".to_owned(), "1 to 253 characters"),
        ("link-sap", String::new(), "link is missing"),
        ("link-sap", format!("{link}source = \"lab\"\n"), "socket is missing"),
        ("link-sap", format!("{link}{link}"), "lo is there twice"),
        ("link-sap", format!("{link}lost_dbm = 3\n"), "lost_dbm: must lie"),
        ("link-sap", format!("functions = []\n{link}"), "functions: at least one"),
        ("link-sap", "[[link]]\ninterface = \"none\"\naddress = \"x\"\n".to_owned(), "\"x\" is no"),
    ] {
        let file = dir.path().join("mih.toml");
        std::fs::write(&file, &content).unwrap();
        let args = ["mih", verb, "-c", file.to_str().unwrap()];
        let output = std::process::Command::new(crate::world::SEGUE).args(args).output().unwrap();
        let said = crate::world::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{content}: {said}");
    }
}
