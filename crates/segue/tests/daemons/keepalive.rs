//! Switches a path's probing on and off, and adapts its rate to the path's use.

use crate::over_both;
use crate::traffic::{Voice, correspondents};
use crate::world::{World, path, paths_up, text, wait_for};

over_both! { alone:
    a_path_whose_keepalive_is_off_is_unwatched_at_both_ends_and_keeps_its_flows
    k_and_period_follow_what_is_measured_at_both_ends
    what_a_host_reports_is_what_its_anchor_shows
    how_many_probes_rode_and_how_many_went_alone_is_shown_at_both_ends
}

fn a_path_whose_keepalive_is_off_is_unwatched_at_both_ends_and_keeps_its_flows(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    let port = format!(":{}", voice.host.port());
    wait_for("wifi", || host.flow(&[&port]).is_some_and(|flow| flow["path"] == "wifi"));
    let switch = |to: &str| {
        let done = host.cli(&["keepalive", "wifi", to]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    switch("off");
    for daemon in [&host, &anchor] {
        daemon.wait("unwatched", |status| path(status, "wifi")["state"] == "unwatched");
    }
    let sent = || path(&host.status(), "wifi")["probes_sent"].as_u64();
    let before = sent();
    voice.flows_on(50);
    assert_eq!(sent(), before);
    assert!(host.flow(&[&port]).is_some_and(|flow| flow["path"] == "wifi"));
    switch("on");
    for daemon in [&host, &anchor] {
        daemon.wait("up", |status| path(status, "wifi")["state"] == "up");
    }
    wait_for("probes", || sent() > before);
    assert_eq!(voice.finish().lost, [0, 0]);
    let why = host.cli(&["paths", "--why"]);
    assert!(text(&why.stdout).contains("mode both"), "{}", text(&why.stdout));
    for (args, part) in
        [(["wlan7", "off"], "the paths are wifi, lte"), (["wifi", "maybe"], "maybe")]
    {
        let refused = host.cli(&["keepalive", args[0], args[1]]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
}

fn k_and_period_follow_what_is_measured_at_both_ends(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    let join = world.enroll(&anchor, "laptop");
    let config = "[keepalive]\nidle_responsiveness = \"700ms\"\n";
    let host = world.host_in(world.net.host(), "adaptive", &join, config);
    host.wait("both paths", |status| paths_up(status) == 2);
    let status = host.wait("a choice", |status| {
        let wifi = path(status, "wifi");
        wifi["why"]["active"] == false && wifi["k"] == wifi["why"]["k"]
    });
    let wifi = path(&status, "wifi");
    println!("{datapath}: {}", wifi["why"]["text"]);
    assert!(wifi["why"]["detection_ms"].as_f64() <= Some(701.0), "{wifi}");
    assert!(wifi["t_ka_ms"].as_f64() > Some(900.0), "{wifi}");
    assert!(wifi["why"]["questions"].as_u64() >= Some(3), "{wifi}");
    anchor.wait("the same settings", |status| {
        let host = host.status();
        let (here, there) = (path(&host, "wifi"), path(status, "wifi"));
        (&here["k"], &here["t_ka_ms"]) == (&there["k"], &there["t_ka_ms"])
    });
}

fn what_a_host_reports_is_what_its_anchor_shows(datapath: &'static str) {
    for mode in ["reports", "round-trip-loss"] {
        let Some(world) = World::new(datapath) else { return };
        let anchor = world.anchor();
        let join = world.enroll(&anchor, "laptop");
        // A path without data sends one request every five seconds.
        let config = format!("[keepalive]\nmode = \"{mode}\"\nloss_interval = 2\n");
        let host = world.host_in(world.net.host(), "reporting", &join, &config);
        host.wait("both paths", |status| paths_up(status) == 2);
        for daemon in [&host, &anchor] {
            let status = daemon.wait("a loss of the round trip", |status| {
                path(status, "wifi")["rtl"].as_array().is_some_and(|rtl| !rtl.is_empty())
            });
            let wifi = path(&status, "wifi");
            assert_eq!(wifi["mode"], mode);
            assert!(wifi["rtl"][0].as_f64() < Some(0.5), "{wifi}");
            assert!(wifi["rtt_ms"][0].as_f64() > Some(1.0), "{wifi}");
        }
        // An end that adopts averages takes no samples itself.
        let own = !path(&anchor.status(), "wifi")["rtt_last_ms"].is_null();
        assert_eq!(own, mode == "round-trip-loss");
    }
}

fn how_many_probes_rode_and_how_many_went_alone_is_shown_at_both_ends(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    let join = world.enroll(&anchor, "laptop");
    let host = world.host_in(world.net.host(), "riding", &join, "[keepalive]\nrides = true\n");
    host.wait("both paths", |status| paths_up(status) == 2);
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    let port = format!(":{}", voice.host.port());
    wait_for("a path", || host.flow(&[&port]).is_some());
    let name = host.flow(&[&port]).unwrap()["path"].as_str().unwrap().to_owned();
    for daemon in [&host, &anchor] {
        let status = daemon.wait("rides", |s| path(s, &name)["probes_rode"].as_u64() >= Some(3));
        let count = |field: &str| path(&status, &name)[field].as_u64().unwrap();
        let (rode, alone) = (count("probes_rode"), count("probes_alone"));
        assert!(alone > 0 && rode + alone == count("probes_sent"), "{status}");
        let table = daemon.cli(&["paths", "--why"]);
        println!("{datapath}:\n{}", text(&table.stdout));
        let shown = text(&table.stdout);
        let (_, of_path) = shown.split_once(&format!("{name} ")).expect("its row");
        let (_, probes) = of_path.split_once("probes: ").expect("what was probed");
        let numbers: Vec<u64> =
            probes.split_whitespace().filter_map(|word| word.parse().ok()).take(2).collect();
        assert!(numbers[0] >= alone && numbers[1] >= rode, "{numbers:?}: {probes}");
    }
    voice.finish();
}
