//! `segue probe --listen --stamp --kernel`: the program in the kernel against the emulator's own record of
//! what it did to each packet. Needs root; without it the test says so and does nothing.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use segue_clock::Span;
use segue_lab::topology::End;
use segue_lab::{Direction, EmulatorSpec, Lab};
use segue_linux::link::Prefix;
use segue_netem::{LinkSpec, Loss};
use serde_json::Value;

#[test]
fn the_kernel_answers_plain_requests_and_user_space_the_others() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    for (tag, near, far, to) in [
        ("stampa", "10.61.9.1/24", "10.61.9.2/24", "10.61.9.2"),
        ("stampb", "fd61:9::1/64", "fd61:9::2/64", "fd61:9::2"),
    ] {
        let lab = network(tag, near, far);
        let mut reflector = Reflector::start(&lab);
        let plain = measure(&lab, to, &["-c", "300", "--session-id", "9"]);
        let log = lab.emulator("link").unwrap().take_log();
        let count = |direction, lost: Option<bool>| {
            let stamp = log.iter().filter(|r| r.direction == direction && r.is_udp(862));
            stamp.filter(|r| lost.is_none_or(|lost| r.delay().is_none() == lost)).count()
        };
        let target = &plain["targets"][0];
        assert_eq!(target["sent"], count(Direction::Up, None), "{target}");
        assert_eq!(count(Direction::Up, Some(false)), count(Direction::Down, None), "all answered");
        assert_eq!(target["received"], count(Direction::Down, Some(false)), "{target}");
        // Directions are those between the first and the last answer; losses before and after it are
        // in neither.
        let lost = |way: &str| {
            let packets = &target[way];
            packets["sent"].as_u64().unwrap() - packets["received"].as_u64().unwrap()
        };
        assert!(target["reflector"]["stateful"].as_bool().unwrap(), "{target}");
        assert!(lost("packets_up") <= count(Direction::Up, Some(true)) as u64, "{target}");
        let between = lost("packets_up") + lost("packets_down");
        let all = 300 - target["received"].as_u64().unwrap();
        assert!(between <= all && between + 20 > all, "{between} of {all}: {target}");
        assert_eq!(
            (&target["reflector"]["ttl"], &target["reflector"]["implausible"]),
            (&255.into(), &0.into())
        );
        // 20 ms each way; not more than the emulator and the machine add.
        let rtt = target["rtt_ms"]["min"].as_f64().unwrap();
        assert!((40.0..60.0).contains(&rtt), "{rtt} ms");

        let extended = measure(&lab, to, &["-c", "50", "--direct"]);
        let told = reflector.stop();
        assert_eq!(told["kernel_answers"], count(Direction::Down, None), "{told}");
        let session = &told["sessions"][0];
        assert!(
            session["received"].as_u64().unwrap()
                >= extended["targets"][0]["received"].as_u64().unwrap()
        );
        assert_eq!(
            told["sessions"].as_array().unwrap().len(),
            1,
            "only what has extensions: {told}"
        );
    }
}

/// Nothing is between the ends, so nothing hides what the turned packet still carries of its request.
#[test]
fn the_round_trip_time_of_a_link_within_the_machine_is_found() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let mut lab = Lab::new("stampc").unwrap();
    lab.add_node("a", false).unwrap();
    lab.add_node("b", false).unwrap();
    let prefixes = |texts: [&str; 2]| texts.map(|text| text.parse::<Prefix>().unwrap());
    let near = prefixes(["10.61.9.1/24", "fd61:9::1/64"]);
    let far = prefixes(["10.61.9.2/24", "fd61:9::2/64"]);
    let a = End { node: "a", device: "a0", addresses: &near };
    let b = End { node: "b", device: "b0", addresses: &far };
    lab.connect(a, b).unwrap();
    let mut reflector = Reflector::start(&lab);
    for to in ["10.61.9.2", "fd61:9::2"] {
        let target = measure(&lab, to, &["-c", "50"])["targets"][0].clone();
        assert_eq!((&target["sent"], &target["received"]), (&50.into(), &50.into()), "{target}");
        assert_eq!(target["reflector"]["implausible"], 0, "{target}");
        // Some microseconds on an idle machine; both stamps are the kernel's.
        let rtt = target["rtt_ms"]["min"].as_f64().unwrap();
        assert!((0.0..20.0).contains(&rtt), "{rtt} ms");
    }
    assert_eq!(reflector.stop()["kernel_answers"], 100);
}

fn measure(lab: &Lab, to: &str, options: &[&str]) -> Value {
    let mut command = lab.node("a").unwrap().command(env!("CARGO_BIN_EXE_segue"));
    command.args(["probe", "--stamp", to, "-i", "10ms", "-k", "200", "--json"]).args(options);
    last(&String::from_utf8(command.output().unwrap().stdout).unwrap())
}

fn network(tag: &str, near: &str, far: &str) -> Lab {
    let mut lab = Lab::new(tag).unwrap();
    lab.add_node("a", false).unwrap();
    lab.add_node("b", false).unwrap();
    let (near, far): ([Prefix; 1], [Prefix; 1]) = ([near.parse().unwrap()], [far.parse().unwrap()]);
    let a = End { node: "a", device: "a0", addresses: &near };
    let b = End { node: "b", device: "b0", addresses: &far };
    let link = |loss| LinkSpec {
        delay: Span::from_millis(20),
        loss: Loss::Bernoulli(loss),
        ..LinkSpec::default()
    };
    let spec = EmulatorSpec { up: link(0.1), down: link(0.05), seed: 9, log: true };
    lab.emulate("link", a, b, &spec).unwrap();
    lab
}

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// A reflector in node b, gone with the value.
struct Reflector(Child);

impl Reflector {
    fn start(lab: &Lab) -> Reflector {
        let mut command: Command = lab.node("b").unwrap().command(env!("CARGO_BIN_EXE_segue"));
        command.args(["probe", "--listen", "--stamp", "--kernel", "-I", "b0", "--json"]);
        let mut reflector = Reflector(command.stdout(Stdio::piped()).spawn().unwrap());
        // Byte by byte, so that nothing of what follows is taken away.
        let output = reflector.0.stdout.as_mut().unwrap();
        let mut ready = String::new();
        BufReader::with_capacity(1, output).read_line(&mut ready).unwrap();
        assert!(ready.contains("listening"), "{ready}");
        reflector
    }

    fn stop(&mut self) -> Value {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut text = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        last(&text)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
