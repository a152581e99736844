//! Streams get through, whole and once, whatever is lost.

use segue_clock::Span;
use segue_sim::Value;
use segue_sim::dumbbell::Dumbbell;
use segue_sim::tcp::{Config, Variant};

#[test]
fn without_loss_every_variant_fills_the_link_that_its_window_covers() {
    for variant in Variant::ALL {
        for config in [Config::ns2_35(variant), Config::ns2_2001(variant), Config::modern(variant)]
        {
            let outcome = dumbbell(Config { window: 30, ..config }, &[]);
            let goodput = outcome("goodput_bps");
            assert!(goodput > 9.4e6 && goodput <= 10e6, "{variant:?}: {goodput}");
            assert_eq!(
                (outcome("retransmissions"), outcome("timeouts")),
                (0.0, 0.0),
                "{variant:?}"
            );
        }
    }
}

fn dumbbell(tcp: Config, drop_at: &[(Span, u32)]) -> impl Fn(&str) -> f64 {
    let dumbbell = Dumbbell {
        tcp,
        rate_bps: 10_000_000,
        delay: Span::from_millis(16),
        queue: 50,
        drop_at: drop_at.to_vec(),
        duration: Span::from_secs(10),
        trace: false,
    };
    let results = dumbbell.run().expect("a link").results;
    move |name| match results.get(name) {
        Some(Value::Int(n)) => *n as f64,
        Some(Value::Float(x)) => *x,
        other => panic!("{name}: {other:?}"),
    }
}
