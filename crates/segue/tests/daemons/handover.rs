//! Planned handovers by the operator: make before break, nothing lost.

use crate::over_both;
use crate::traffic::{Voice, correspondents};
use crate::world::{Daemon, World, text, wait_for};

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
    }
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
