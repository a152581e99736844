//! Planned handovers by the operator: make before break, without loss.

use segue_lab::Direction;

use crate::over_both;
use crate::traffic::{UdpEcho, Voice, correspondents, one_datagram};
use crate::world::{Daemon, World, path, text, wait_for};

over_both! { alone:
    no_packet_is_lost_when_the_operator_moves_a_flow_a_class_or_everything
}

fn handover(host: &Daemon, args: &[&str]) {
    let done = host.cli(&[&["handover"], args].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
}

fn no_packet_is_lost_when_the_operator_moves_a_flow_a_class_or_everything(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    for ip in correspondents() {
        let voice = Voice::start(world.net.host(), world.net.cn(), ip);
        let port = format!(":{}", voice.host.port());
        let wanted = |path: &str| {
            wait_for(path, || {
                [&host, &anchor].iter().all(|daemon| {
                    daemon.flow(&[&port]).is_some_and(|f| f["path"] == path && f["via"].is_null())
                })
            });
            voice.flows_on(15);
        };
        wanted("wifi");
        let flow = host.flow(&[&port]).unwrap();
        let name = flow["flow"].as_str().unwrap();
        let class = flow["class"].as_str().unwrap();
        for to in ["lte", "wifi", "lte"] {
            handover(&host, &["--flow", name, "--to", to]);
            wanted(to);
        }
        assert_eq!(host.flow(&[&port]).unwrap()["pinned"], true);
        handover(&host, &["--flow", name, "--auto"]);
        wanted("wifi");
        assert_eq!(host.flow(&[&port]).unwrap()["pinned"], false);
        for order in [&["--class", class][..], &[]] {
            handover(&host, &[order, &["--to", "lte"]].concat());
            wanted("lte");
            handover(&host, &[order, &["--auto"]].concat());
            wanted("wifi");
        }
        let heard = voice.finish();
        println!("{datapath} over {ip}: eight handovers, {} sent each way", heard.sent[0]);
        println!("  longest gaps up and down {:?} ms", heard.gap_ms);
        assert_eq!(heard.lost, [0, 0]);
        // Flow counters continue over eight moves. At each move a packet in flight may escape the count. The counters
        // also include the first packet of the call.
        let [up, down] = heard.sent;
        for (daemon, [sent, received]) in [(&host, [up, down]), (&anchor, [down, up])] {
            let flow = daemon.flow(&[&port]).unwrap();
            let counted =
                [("packets", "bytes", sent), ("received_packets", "received_bytes", received)];
            for (packets, bytes, wanted) in counted {
                let (packets, bytes) = (flow[packets].as_u64(), flow[bytes].as_u64());
                let near = |n: u64| (wanted.saturating_sub(8)..=wanted + 2).contains(&n);
                assert!(packets.is_some_and(near), "{wanted} packets: {flow:#}");
                assert!(bytes >= packets.map(|n| 28 * n), "{flow:#}");
            }
        }
    }
    let moves = host.events("handover", "wifi", 0);
    let scores = moves.last().unwrap()["scores"].as_object().unwrap();
    assert!(scores.keys().eq(["lte", "wifi"]), "on which the move rests: {scores:?}");
    for (args, part) in [
        (&["--to", "wlan7"][..], "the paths are wifi, lte"),
        (&["--flow", "nonsense", "--to", "lte"], "segue flows"),
        (&["--class", "nonsense", "--to", "lte"], "class"),
    ] {
        let refused = host.cli(&[&["handover"], args].concat());
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.lines().count() == 1, "{said}");
        assert!(said.contains(part), "{said}");
    }
}

/// The daemon's answer to an order.
fn answer(host: &Daemon, args: &[&str]) -> String {
    let done = host.cli(&[&["handover"], args].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

#[test]
fn an_order_is_answered_and_shown_as_it_is() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (_anchor, host) = world.running();
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let (local, _) = one_datagram(world.net.host(), echo.address).expect("through the tunnel");
    let port = format!(":{}", local.port());
    let why = || host.flow(&[&port]).unwrap()["why"].as_str().unwrap().to_owned();
    let shown = || text(&host.cli(&["status"]).stdout);

    assert_eq!(answer(&host, &["--auto"]), "no order stood\n");
    let said = answer(&host, &["--to", "lte"]);
    assert!(said.starts_with("bound to lte; ") && said.contains(" moved"), "{said}");
    assert_eq!(host.flow(&[&port]).unwrap()["path"], "lte");
    assert_eq!(why(), "bound to lte by an operator");
    assert!(shown().contains("lte (bound by an operator)"), "{}", shown());
    assert_eq!(answer(&host, &["--to", "lte"]), "bound to lte; no flow had to move\n");

    for way in Direction::ALL {
        world.net.lte().set_silent(way, true);
    }
    host.wait("lte is down", |status| path(status, "lte")["state"] == "down");
    let said = answer(&host, &["--to", "lte"]);
    assert!(said.starts_with("lte is down: the order stands until it is up; "), "{said}");
    assert!(why().starts_with("an operator wants lte, which is not up: "), "{}", why());
    assert!(shown().contains("wifi (an operator wants lte, which is not up)"), "{}", shown());
    let ended = answer(&host, &["--auto"]);
    assert!(ended.starts_with("the order has ended; "), "{ended}");
    assert_eq!(answer(&host, &["--auto"]), "no order stood\n");
    assert!(!why().contains("operator") && !shown().contains("operator"), "{} {}", why(), shown());

    assert!(!shown().contains("no path is up"));
    for way in Direction::ALL {
        world.net.wifi().set_silent(way, true);
    }
    host.wait("all are down", |status| path(status, "wifi")["state"] == "down");
    assert!(shown().contains("registered, no path is up, "), "{}", shown());
}
