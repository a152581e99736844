//! A host that hears nothing while its requests arrive. The server's average of the downlink, like the
//! client's, includes of such an outage only the losses before the host reported it.

use super::judge::Verdict;
use super::*;

const K: u64 = 3;

/// Means over time of the long downlink averages: the programs' at the server and at the client, and the
/// server's in floating point.
#[derive(Debug, Default)]
struct Means {
    server: f64,
    client: f64,
    reference: f64,
    looks: f64,
    deaf: u32,
}

/// An hour with this downlink loss; the downlink is dead for `dead_us` of every two minutes.
fn hour(loss: f64, dead_us: u64, seed: u64) -> Means {
    let probing = Probing { taus: plain(), ..Config::default().probing(Encapsulation::Segue) };
    let mut kernels = [Kernel::new(false, probing), Kernel::new(true, probing)];
    let (mut reference, mut client, mut means) =
        (Reference::default(), Verdict::default(), Means::default());
    let mut world = World { idle: true, ..World::new(seed) };
    world.loss = [1e-9, loss].map(|loss| Walk { at: loss, low: loss, high: loss });
    let (start_us, mut next_us, mut is_deaf) = (10_000_000, 10_000_000, false);
    let mut averages = [None; 3];
    while next_us < start_us + 3_600_000_000 {
        let Some(landed) = world.land(next_us) else {
            world.heard = client.hears(&mut kernels[1], K, next_us).into();
            world.request(next_us, None, false);
            next_us += T_KA_MS * 1_000;
            if let ([Some(server), Some(client), Some(reference)], true) =
                (averages, next_us > start_us + 120_000_000)
            {
                means.server += server;
                means.client += client;
                means.reference += reference;
                means.looks += 1.0;
            }
            continue;
        };
        let Landed { now_us, to_client, report, arrival, .. } = landed;
        let (way, probe) = (usize::from(to_client), arrival.probe);
        let kernel = &mut kernels[way];
        let (late, estimates) = kernel.take(&arrival, report, world.requests).unwrap();
        assert!(!late, "delays stay below T_KA");
        averages[way] = estimates.owl_down.get(1).copied();
        if to_client {
            client.heard(kernel, probe.seq, now_us);
        } else {
            reference.take(kernel, &probing, &arrival, report, late, world.requests);
            averages[2] = reference.owl_down.ewma.values().get(1).copied();
            let says_deaf = probe.heard == 0 && world.requests > 10;
            if says_deaf != is_deaf {
                is_deaf = says_deaf;
                means.deaf += u32::from(is_deaf);
                kernel.set_deaf(is_deaf, world.sent[1]);
                match is_deaf {
                    true => reference.down.declare_deaf(arrival.at),
                    false => reference.down.over(),
                }
            }
        }
        let dead = (now_us - start_us) % 120_000_000 < dead_us;
        world.answer(&landed, dead);
    }
    for mean in [&mut means.server, &mut means.client, &mut means.reference] {
        *mean /= means.looks;
    }
    means
}

#[test]
fn an_outage_of_the_way_down_is_in_no_average_of_either_end() {
    if !may_load() {
        return;
    }
    for (loss, seed) in [(1e-9, 1), (0.02, 2), (0.1, 3)] {
        let means = hour(loss, 20_000_000, seed);
        println!("loss {loss}, 20 s of 120 dead: {means:.4?}");
        assert!(means.deaf >= 29, "{means:?}");
        // Of 500 packets between two outages, the three to four before the verdict are included.
        let most = loss + 5.0 / 500.0;
        for mean in [means.server, means.client, means.reference] {
            assert!((0.9 * loss..most * 1.1).contains(&mean), "loss {loss}: {means:?}");
        }
        assert!((means.server - means.reference).abs() < 0.1 * means.reference, "{means:?}");
    }
}

#[test]
fn losses_that_make_a_host_say_that_it_hears_nothing_are_in_the_servers_average() {
    if !may_load() {
        return;
    }
    let means = hour(0.3, 0, 4);
    println!("loss 0.3: {means:.4?}");
    assert!(means.deaf > 100, "{means:?}");
    // An hour has 18 000 probes: four standard deviations are 1.4 percentage points.
    for mean in [means.server, means.reference] {
        assert!((mean - 0.3).abs() < 0.014, "{means:?}");
    }
}
