//! T_KA and the questions in doubt follow the use of a path and what is measured.

use segue_clock::{Machine, Span};
use segue_ip::Output::Own;
use segue_keepalive::{Aims, State};
use segue_tunnel::{HostConfig, HostInput, HostOutput, Output, Report};
use segue_wire::signal::{FromAnchor, FromHost};

use crate::net::{ANCHOR, Net, Way, host_config, ms, secs};

fn adaptive() -> HostConfig {
    let mut config = host_config(3, 200);
    config.path.adaptive = Some(Aims::default());
    config
}

/// Runs with a look at the flow table every five seconds, as the daemon has it.
fn run(net: &mut Net, host: usize, span: Span) {
    let end = net.now + span;
    while net.now < end {
        let seen =
            net.apps.iter().map(|app| (app.key, app.up.last_arrival.unwrap_or_default())).collect();
        net.tell_host(host, HostInput::Flows { seen, last: true });
        net.run_for(secs(5).min(Span(end.0 - net.now.0)));
    }
}

/// K and T_KA of a path at the host and at the anchor.
fn settings(net: &Net, host: usize, name: &str) -> [(u8, Span); 2] {
    let (_, path) = net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == name).unwrap();
    let at_host = (path.keepalive().k, path.keepalive().t_ka);
    let (_, path) = net.anchor.machine.paths().find(|(_, path)| path.name == name).unwrap();
    [at_host, path.keepalive()]
}

fn questions(net: &Net, host: usize, name: &str) -> u8 {
    let (_, path) = net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == name).unwrap();
    path.keepalive().doubt.unwrap().k
}

fn downs(net: &Net, host: usize, name: &str) -> usize {
    let down = |report: &Report| matches!(report, Report::PathState { path, state: State::Down, .. } if path == name);
    net.hosts[host].reports.iter().filter(|(_, report)| down(report)).count()
}

#[test]
fn a_flow_of_any_class_makes_its_path_used_and_its_end_gives_it_back() {
    for seed in 0..10 {
        let (mut net, host) = Net::two_paths(seed, adaptive());
        run(&mut net, host, secs(60));
        let idle = settings(&net, host, "wifi");
        assert_eq!(idle[0], idle[1], "seed {seed}: both ends agree");
        assert!(idle[0].1 > ms(4_500), "{idle:?}");

        let app =
            if seed % 2 == 0 { net.add_voice(host) } else { net.add_app(host, 1_234, 0, ms(20)) };
        run(&mut net, host, secs(3));
        let used = settings(&net, host, "wifi");
        assert_eq!(used[0].1, ms(250), "seed {seed}");
        assert_eq!(used[0], used[1], "seed {seed}");
        assert!(settings(&net, host, "lte")[0].1 > ms(4_500), "the path without data");

        let at = net.now;
        net.set_alive(host, "wifi", Way::Both, false);
        assert!(net.run_while_not(ms(400), |net| net.flows_use(app, "lte")), "seed {seed}");
        let found = net.now.since(at);
        assert!(found <= ms(150), "seed {seed}: {found}");
        net.run_for(secs(3));
        assert_eq!(settings(&net, host, "lte")[0].1, ms(250));

        net.set_alive(host, "wifi", Way::Both, true);
        net.stop_apps();
        run(&mut net, host, secs(120));
        for name in ["wifi", "lte"] {
            let after = settings(&net, host, name);
            assert!(after[0].1 > ms(4_500), "seed {seed} {name}: {after:?}");
            assert_eq!(after[0], after[1], "seed {seed} {name}");
        }
        assert_eq!(downs(&net, host, "wifi"), 1, "seed {seed}: what was imposed, and no false one");
    }
}

#[test]
fn a_loss_that_rises_asks_for_more_questions_so_that_false_alarms_stay_rare() {
    let mut early = 0;
    for seed in 0..10 {
        let (mut net, host) = Net::two_paths(seed, adaptive());
        let set_loss = |net: &mut Net, loss: f64| {
            for name in ["wifi", "lte"] {
                let link = net.link(host, name);
                (link.up.loss, link.down.loss) = (loss, loss);
            }
        };
        set_loss(&mut net, 0.005);
        net.add_voice(host);
        run(&mut net, host, secs(60));
        let before = questions(&net, host, "wifi");
        set_loss(&mut net, 0.08);
        // A few dozen packets must be lost before the loss can be known: until then the host asks as many questions as
        // before.
        run(&mut net, host, secs(2));
        let ignorant = downs(&net, host, "wifi");
        run(&mut net, host, secs(60));
        assert!(questions(&net, host, "wifi") > before, "seed {seed}");
        let (_, path) =
            net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
        let (why, _) = path.why().unwrap();
        assert!(why.known.loss_up > 0.04, "{why}");
        // 10⁵ s are promised between two; ten runs have twenty minutes.
        assert_eq!(downs(&net, host, "wifi"), ignorant, "seed {seed}: {why}");
        early += ignorant;
    }
    println!("false alarms in the first 2 s after the step: {early} in 10 runs");
    assert!(early <= 5);
}

#[test]
fn a_path_that_is_down_is_tried_often_at_first_and_seldom_after_a_minute() {
    let (mut net, host) = Net::two_paths(1, adaptive());
    run(&mut net, host, secs(30));
    net.set_alive(host, "wifi", Way::Both, false);
    run(&mut net, host, secs(10));
    assert_eq!(settings(&net, host, "wifi")[0].1, ms(500));
    run(&mut net, host, secs(70));
    assert!(settings(&net, host, "wifi")[0].1 > ms(4_500));
    net.set_alive(host, "wifi", Way::Both, true);
    run(&mut net, host, secs(20));
    let (_, path) = net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
    assert!(path.is_up());
}

#[test]
fn a_host_that_registers_again_offers_the_period_in_force_and_its_paths_stay_up_at_the_anchor() {
    let (mut net, host) = Net::two_paths(1, adaptive());
    run(&mut net, host, secs(60));
    let idle = settings(&net, host, "wifi");
    assert!(idle[0].1 > ms(4_500), "{idle:?}");
    let told = net.anchor_reports.len();
    net.break_signal(host);
    let registered = |net: &Net| net.hosts[host].end.machine.registered();
    assert!(net.run_while_not(secs(2), registered));
    net.run_for(secs(20));
    let down = |report: &Report| matches!(report, Report::PathState { state: State::Down, .. });
    assert!(!net.anchor_reports[told..].iter().any(|(_, report)| down(report)));
    // What it says then, to an anchor that may know nothing any more.
    let (now, before) = (net.now, settings(&net, host, "wifi")[0]);
    let machine = &mut net.hosts[host].end.machine;
    let (inner, anchor) = (machine.inner().to_vec(), ANCHOR.parse().unwrap());
    let message = FromAnchor::Registered { inner, anchor: vec![], tunnel_port: 5005 };
    machine.handle(now, HostInput::SignalUp { interface: "wifi".into(), anchor }.into());
    machine.handle(now, HostInput::Signal(message).into());
    let wifi = std::iter::from_fn(|| machine.poll()).find_map(|output| match output {
        Output::Driver(Own(HostOutput::Signal(FromHost::AddPath(offer))))
            if offer.name == "wifi" =>
        {
            Some(offer)
        }
        _ => None,
    });
    let offered = wifi.map(|offer| (offer.k, ms(offer.t_ka_ms.into())));
    assert_eq!(offered, Some(before));
    assert_ne!(before, (3, ms(200)), "not what is configured");
}
