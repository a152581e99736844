//! Proxy Mobile IPv6 flows use the path with the best quality: paths to gateways are measured, and one may fall silent.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use segue_lab::Direction;
use serde_json::Value;

use crate::pmip::{Domain, FIRST, SECOND, binding, cn, told};
use crate::traffic::{Stream, Voice};

fn quality<'a>(status: &'a Value, proxy_coa: &str) -> &'a Value {
    let mut all = status["tunnels"].as_array().unwrap().iter();
    &all.find(|tunnel| tunnel["proxy_coa"] == proxy_coa).unwrap()["quality"]
}

/// Waits until `flows` flows use an interface.
fn go_over(domain: &Domain, llid: &str, flows: usize) {
    domain.lma().wait("all flows", |status| {
        let bid = binding(status, llid).map(|at| &at["bid"]);
        let all = status["flows"].as_array().unwrap();
        all.len() == flows && all.iter().all(|flow| Some(&flow["bid"]) == bid)
    });
}

crate::over_both! { among_others:
    flows_go_where_the_gateway_is_nearest_and_leave_one_that_is_not_reached
}

fn flows_go_where_the_gateway_is_nearest_and_leave_one_that_is_not_reached(datapath: &'static str) {
    let delays = [("to-left", "delay = \"25ms\""), ("to-right", "delay = \"5ms\"")];
    let Some(mut domain) = Domain::with_links(datapath, &delays) else { return };
    let socket = domain.dir.path().join("decisions.sock");
    let more = format!(
        "schedule = \"quality\"\nkeepalive = {{ responsiveness = \"300ms\" }}\ndecisions = {:?}\n",
        socket.to_str().unwrap()
    );
    domain.lma = Some(domain.start("lma", "lma", &more));
    for access in ["wlan1", "lte2"] {
        domain.mags.insert(access, domain.start("mag", access, ""));
    }
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    domain.address("host", "wlan");
    domain.attach("host:wwan", "lte2");
    domain.is_bound(SECOND, "fd00:3::3");
    domain.address("host", "wwan");
    told(&domain, &["wlan1", "lte2"]);
    let status = domain.lma().wait("both gateways are measured", |status| {
        ["fd00:2::2", "fd00:3::3"].iter().all(|coa| quality(status, coa)["state"] == "up")
    });
    for (coa, least) in [("fd00:2::2", 50.0), ("fd00:3::3", 10.0)] {
        let rtt_ms = quality(&status, coa)["rtt_ms"].as_f64().unwrap();
        assert!((least..least + 30.0).contains(&rtt_ms), "{coa}: {rtt_ms} ms");
    }
    // Decision programs receive the measurement.
    let lines = UnixStream::connect(&socket).unwrap();
    lines.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let lines = BufReader::new(lines).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let event =
        events.find(|event| event["proxy_coa"] == "fd00:2::2" && event["event"] == "quality");
    assert_eq!(event.unwrap()["state"], "up");
    drop(events);

    // The host sends from the address of its first interface, whose gateway is far.
    let (host, far) = (domain.node("host"), domain.node("cn"));
    let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
    let voice = Voice::start(host, far, cn());
    stream.flows_on(100_000);
    voice.flows_on(10);
    go_over(&domain, SECOND, 2);
    voice.mark();
    domain.lab.cut("to-right", &Direction::ALL).unwrap();
    go_over(&domain, FIRST, 2);
    let status = domain.lma().status();
    let last = status["handovers"].as_array().unwrap().last().unwrap();
    let way = ["cause", "from", "to", "flows"].map(|key| last[key].clone());
    assert_eq!(way, ["unreachable".into(), "fd00:3::3".into(), "fd00:2::2".into(), Value::from(2)]);
    assert_eq!(quality(&status, "fd00:3::3")["state"], "down");
    stream.flows_on(100_000);
    voice.flows_on(10);
    println!("{datapath}: a gateway is silent, gaps {:?} ms", voice.gap_ms());
    domain.lab.mend("to-right", &Direction::ALL).unwrap();
    go_over(&domain, SECOND, 2);
    stream.flows_on(100_000);
    voice.flows_on(10);
    let heard = voice.finish();
    println!("{datapath}: lost {:?} of {:?}", heard.lost, heard.sent);
}
