//! A path that uses UPMT's packet formats beside one that uses Segue's.

use crate::traffic::{Voice, correspondents};
use crate::world::{World, path, paths_up, text};

#[test]
fn a_path_with_upmts_packets_serves_beside_another() {
    let Some(world) = World::new("user") else { return };
    let config = world.file("upmt-anchor.toml", "allow_upmt = true\n");
    let anchor = world.anchor_with(&["-c", &config]);
    let join = world.enroll(&anchor, "laptop");
    let config = "[path.wifi]\nencapsulation = \"upmt\"\n";
    let host = world.host_in(world.net.host(), "upmt", &join, config);
    host.wait("both paths", |status| paths_up(status) == 2);
    anchor.wait("both paths", |status| paths_up(status) == 2);
    for daemon in [&host, &anchor] {
        let status = daemon.status();
        assert_eq!(path(&status, "wifi")["encapsulation"], "upmt");
        assert_eq!(path(&status, "lte")["encapsulation"], "segue");
    }
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    let port = format!(":{}", voice.host.port());
    host.wait("wifi", |_| host.flow(&[&port]).is_some_and(|flow| flow["path"] == "wifi"));
    voice.flows_on(50);
    assert_eq!(voice.finish().lost, [0, 0]);
    assert!(path(&host.status(), "wifi")["rtt_ms"][0].as_f64() > Some(0.0));
    let shown = host.cli(&["paths", "--why"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
}
