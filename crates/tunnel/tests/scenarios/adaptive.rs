//! K and T_KA follow the flows and what is measured.

use segue_clock::Span;
use segue_keepalive::{Aims, State};
use segue_tunnel::{HostConfig, HostInput, Report};

use crate::net::{Net, Way, host_config, ms, secs};

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
        net.tell_host(host, HostInput::Flows(seen));
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

/// T_Ravg by eq. 2 of a path with a round trip of 20 ms.
fn average(settings: (u8, Span)) -> Span {
    settings.1 * u64::from(settings.0) + settings.1.half() + ms(10)
}

fn downs(net: &Net, host: usize, name: &str) -> usize {
    let down = |report: &Report| matches!(report, Report::PathState { path, state: State::Down, .. } if path == name);
    net.hosts[host].reports.iter().filter(|(_, report)| down(report)).count()
}

#[test]
fn a_call_has_quick_detection_within_a_period_and_its_end_gives_it_back() {
    for seed in 0..10 {
        let (mut net, host) = Net::two_paths(seed, adaptive());
        run(&mut net, host, secs(60));
        let idle = settings(&net, host, "wifi");
        assert_eq!(idle[0], idle[1], "seed {seed}: both ends agree");
        assert!(average(idle[0]) > ms(1_000) && average(idle[0]) <= ms(2_010), "{idle:?}");

        let voice = net.add_voice(host);
        net.run_for(ms(1));
        let call = settings(&net, host, "wifi");
        assert!(average(call[0]) <= ms(150), "seed {seed}: {call:?}");
        // The next request, at most a period from here, tells the other end.
        net.run_for(call[0].1 + ms(20));
        let call = settings(&net, host, "wifi");
        assert_eq!(call[0], call[1], "seed {seed}");
        let standby = settings(&net, host, "lte");
        assert!(average(standby[0]) > ms(1_000), "the path without a call: {standby:?}");
        run(&mut net, host, secs(20));
        assert!(average(settings(&net, host, "wifi")[0]) <= ms(151));

        // The silence is found in the time promised, and the other path takes the target over.
        let at = net.now;
        net.set_alive(host, "wifi", Way::Both, false);
        assert!(net.run_while_not(ms(400), |net| net.flows_use(voice, "lte")), "seed {seed}");
        let found = net.now.since(at);
        let (k, t_ka) = call[0];
        assert!(found <= t_ka * (u64::from(k) + 1) + ms(20) + ms(60), "seed {seed}: {found}");
        net.run_for(secs(1));
        assert!(settings(&net, host, "lte")[0].1 < ms(60), "{:?}", settings(&net, host, "lte"));

        net.set_alive(host, "wifi", Way::Both, true);
        net.stop_apps();
        run(&mut net, host, secs(120));
        for name in ["wifi", "lte"] {
            let after = settings(&net, host, name);
            assert!(average(after[0]) > ms(1_000), "seed {seed} {name}: {after:?}");
            assert_eq!(after[0], after[1], "seed {seed} {name}");
        }
        assert_eq!(downs(&net, host, "wifi"), 1, "seed {seed}: what was imposed, and no false one");
    }
}

#[test]
fn a_loss_that_rises_raises_k_so_that_false_alarms_stay_as_rare_as_promised() {
    let (mut early, mut idle) = (0, 0);
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
        let before = settings(&net, host, "wifi")[0];
        set_loss(&mut net, 0.08);
        // Some dozen packets must be lost before anybody can know: until then K is that of before.
        run(&mut net, host, secs(2));
        let ignorant = downs(&net, host, "wifi");
        run(&mut net, host, secs(60));
        let after = settings(&net, host, "wifi")[0];
        assert!(after.0 > before.0, "seed {seed}: {before:?} {after:?}");
        assert!(after.1 >= ms(20), "the budget of 50 probes a second: {after:?}");
        let (_, path) =
            net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
        let (why, _) = path.why().unwrap();
        assert_eq!((why.plan.k, path.keepalive().k), (after.0, after.0));
        assert!(why.known.loss_up > 0.04, "{why}");
        // 10⁵ s are promised between two; ten runs have twenty minutes.
        assert_eq!(downs(&net, host, "wifi"), ignorant, "seed {seed}: {after:?} {why}");
        early += ignorant;
        // The path without a call has two probes a second to learn from.
        idle += downs(&net, host, "lte");
    }
    println!("false alarms in the first 2 s after the step: {early} in 10 runs; idle path: {idle}");
    assert!(early <= 5);
}

#[test]
fn a_call_has_the_same_detection_where_probes_ride() {
    let found = [false, true].map(|rides| {
        let mut config = adaptive();
        config.path.keepalive.rides = rides;
        let (mut net, host) = Net::two_paths(1, config);
        run(&mut net, host, secs(60));
        net.add_voice(host);
        run(&mut net, host, secs(20));
        let (_, path) =
            net.hosts[host].end.machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
        let keepalive = path.keepalive();
        assert_eq!(keepalive.rides, rides);
        assert!(path.why().unwrap().0.known.rides == rides);
        let average = keepalive.t_r_avg(ms(20));
        assert!(average > ms(100) && average <= ms(151), "rides {rides}: {average}");
        assert_eq!(downs(&net, host, "wifi"), 0, "rides {rides}");
        keepalive.t_ka
    });
    assert!(found[1] < found[0], "{found:?}");
}

#[test]
fn interactive_flows_count_once_they_last() {
    let (mut net, host) = Net::two_paths(1, adaptive());
    run(&mut net, host, secs(60));
    let question = net.add_app(host, 1_234, 0, secs(1_000));
    net.apps[question].key.dport = 53;
    run(&mut net, host, secs(10));
    assert!(average(settings(&net, host, "wifi")[0]) > ms(1_000));
    let session = net.add_app(host, 1_235, 18, ms(100));
    run(&mut net, host, secs(10));
    assert!(average(settings(&net, host, "wifi")[0]) <= ms(150), "{session}");
}
