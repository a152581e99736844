//! The compact probe and its user-space listener.

use super::{Listening, check, may_run, measure, network};

#[test]
fn loss_counters_equal_the_emulators_drops_and_rtt_is_the_delay_it_imposed() {
    if !may_run() {
        return;
    }
    for (tag, near, far) in
        [("probea", "10.61.4.1/24", "10.61.4.2/24"), ("probeb", "fd61:4::1/64", "fd61:4::2/64")]
    {
        let lab = network(tag, [near, far], 30, [0.05, 0.1]);
        let to = far.split('/').next().unwrap();
        let mut listener = Listening::start(&lab, &[]);
        let summary = measure(&lab, &[to, "-c", "500"]);
        let told = listener.stop();
        let log = lab.emulator("link").unwrap().take_log();
        check(&summary["targets"][0], &told["clients"][0], &log);
    }
}
