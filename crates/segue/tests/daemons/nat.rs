//! Paths behind address translation.

use std::time::Duration;

use crate::over_both;
use crate::traffic::{Stream, Voice, correspondents};
use crate::world::{World, path, paths_up};

over_both! { among_others:
    flows_go_on_behind_nat_and_through_a_rebinding
}

fn flows_go_on_behind_nat_and_through_a_rebinding(datapath: &'static str) {
    let Some(mut world) = World::with(datapath, true) else { return };
    let (anchor, host) = world.running();
    let [v4, v6] = correspondents();
    let (node, cn) = (world.net.host(), world.net.cn());
    let stream = Stream::start(node, cn, v4, Duration::from_millis(10));
    let voice = Voice::start(node, cn, v6);
    stream.flows_on(40_000);
    let remote = |status: &serde_json::Value, name: &str| {
        path(status, name)["remote"].as_str().unwrap().to_owned()
    };
    let before = anchor.status();
    assert!(remote(&before, "wifi").starts_with("10.61.9.11:"), "{before:#}");
    assert!(remote(&before, "lte").starts_with("10.61.9.12:"), "{before:#}");
    for access in ["wifi", "lte", "wifi"] {
        let before = remote(&anchor.status(), access);
        world.net.rebind(access).unwrap();
        let status = anchor.wait("the anchor follows", |status| {
            path(status, access)["state"] == "up" && remote(status, access) != before
        });
        println!("{datapath}: {access} from {before} to {}", remote(&status, access));
        stream.flows_on(40_000);
        voice.flows_on(20);
        host.wait("both paths", |status| paths_up(status) == 2);
    }
}
