//! Access to a listener, padding, DSCP, and the error bounds of samples.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_linux::udp::{Datagram, Leave, TimestampedSocket};
use segue_wire::{Header, PacketType, Probe, ProbeKey};
use serde_json::Value;

use super::page::scrape;
use super::{Listener, client, key_file, segue_json, targets};

/// Sends the requests of one session.
struct Asker {
    socket: TimestampedSocket,
    key: ProbeKey,
    seq: u32,
}

impl Asker {
    fn new() -> Asker {
        let socket = TimestampedSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        socket.receive_traffic_class().unwrap();
        Asker { socket, key: ProbeKey::default(), seq: 0 }
    }

    fn send(&mut self, listener: &Listener, length: usize, class: Option<u8>) {
        self.seq += 1;
        let header = Header::new(PacketType::Request, 3, 7, 9);
        let probe = Probe { seq: self.seq, t_sc: self.seq, sc: self.seq, ..Probe::default() };
        let mut packet = probe.seal(&header, &self.key).to_vec();
        packet.resize(length, 0xaa);
        self.socket.send(&packet, listener.address, Leave { class, ..Leave::default() }).unwrap();
    }

    /// The datagram that arrives within this time, with its bytes.
    fn receive(&self, within: Duration) -> Option<(Datagram, Vec<u8>)> {
        let until = Instant::now() + within;
        let mut buffer = vec![0; 65_536];
        loop {
            if let Some(datagram) = self.socket.recv(&mut buffer).unwrap() {
                return Some((datagram, buffer[..datagram.len].to_vec()));
            }
            let left = until.checked_duration_since(Instant::now())?;
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::try_from(left).unwrap()).unwrap();
        }
    }

    fn answer(&self) -> (Datagram, Vec<u8>) {
        self.receive(Duration::from_secs(20)).expect("an answer")
    }
}

#[test]
fn an_answer_has_the_length_and_the_dscp_of_its_request() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let mut asker = Asker::new();
    for (length, class) in [(56, 46 << 2), (57, 8 << 2), (1_472, 0), (9_000, 1 << 2), (65_507, 0)] {
        // An answer must not repeat congestion marks.
        asker.send(&listener, length, Some(class | 3));
        let (datagram, bytes) = asker.answer();
        assert_eq!((bytes.len(), datagram.class), (length, Some(class)));
        let probe = Probe::open(&bytes[..56], &asker.key).unwrap();
        assert_eq!(probe.seq, asker.seq);
        assert!(bytes[56..].iter().all(|byte| *byte == 0), "padding is not sent back");
    }
    assert_eq!(listener.stop()["drops"], serde_json::json!({}));

    let plain = Listener::start(&["--listen", "127.0.0.1:0", "--no-dscp-echo"]);
    asker.send(&plain, 56, Some(46 << 2));
    assert_eq!(asker.answer().0.class, Some(0));
}

#[test]
fn the_client_pads_and_marks_its_requests() {
    let server = Asker::new();
    let address = server.socket.local_addr().unwrap().to_string();
    let (status, _) = segue_json(&[
        "probe", &address, "-c", "1", "--size", "1200", "--dscp", "af41", "-w", "100ms", "-k", "1",
        "--json",
    ]);
    assert_eq!(status, 1, "nobody answers");
    let (request, bytes) = server.answer();
    assert_eq!((bytes.len(), request.class), (1_200, Some(34 << 2)));

    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let address = listener.address.to_string();
    let (status, lines) = client(&[&address, "-c", "3", "--size", "8000", "--dscp", "ef"]);
    assert_eq!((status, &targets(&lines)[0]["received"]), (0, &3.into()));
}

#[test]
fn where_a_key_is_set_who_does_not_have_it_gets_nothing() {
    let (_directory, key) = key_file("000102030405060708090a0b0c0d0e0f");
    let listener = Listener::start(&["--listen", "127.0.0.1:0", "--key", &key]);
    let mut asker = Asker::new();
    for length in [56, 56, 500, 9_000] {
        asker.send(&listener, length, None);
    }
    // Answers have the order of requests, so this answer shows that there were none before.
    asker.key = ProbeKey(std::array::from_fn(|i| i as u8));
    asker.send(&listener, 56, None);
    let (_, bytes) = asker.answer();
    assert_eq!(Probe::open(&bytes, &asker.key).unwrap().seq, 5);
    assert_eq!(asker.receive(Duration::from_millis(50)), None);
    let told = listener.stop();
    assert_eq!(told["drops"], serde_json::json!({"mac": 4}));
    assert_eq!(told["clients"].as_array().unwrap().len(), 1);
}

#[test]
fn who_is_not_on_the_list_gets_nothing() {
    let closed = Listener::start(&["--listen", "127.0.0.1:0", "--allow", "192.0.2.0/24,::1"]);
    let mut asker = Asker::new();
    for _ in 0..3 {
        asker.send(&closed, 56, None);
    }
    assert_eq!(asker.receive(Duration::from_millis(200)), None);
    let told = closed.stop();
    assert_eq!(told["drops"], serde_json::json!({"not_allowed": 3}));
    assert_eq!(told["clients"], serde_json::json!([]));

    let open = Listener::start(&["--listen", "127.0.0.1:0", "--allow", "192.0.2.0/24,127.0.0.0/8"]);
    asker.send(&open, 56, None);
    asker.answer();
}

#[test]
fn above_the_rate_requests_are_counted_and_not_answered() {
    for limit in ["--rate-limit", "--rate-limit-total"] {
        let options = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", limit, "5"];
        let listener = Listener::start(&options);
        let refused = || {
            let page = scrape(listener.metrics.as_deref().unwrap());
            let drops = ("segue_drops_total".into(), "reason=\"rate_limit\"".into());
            page.get(&drops).map_or(0, |count| *count as u64)
        };
        let mut asker = Asker::new();
        let start = Instant::now();
        for _ in 0..200 {
            asker.send(&listener, 56, None);
        }
        let mut answers = 0;
        // Each request is answered or refused, however long the listener takes.
        while answers + refused() < 200 {
            while asker.receive(Duration::from_millis(50)).is_some() {
                answers += 1;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{answers} answers");
        }
        let told = listener.stop();
        let most = 5 + (start.elapsed().as_secs_f64() * 5.0).ceil() as u64;
        assert!((5..=most).contains(&answers), "{answers} of at most {most}");
        assert_eq!(told["drops"]["rate_limit"], 200 - answers, "{told}");
        assert_eq!(told["clients"][0]["sent"], answers);
    }
}

#[test]
fn every_sample_says_how_its_stamps_were_taken_and_how_far_it_may_be_off() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let address = listener.address.to_string();
    let (status, lines) = client(&[&address, "-c", "10"]);
    assert_eq!(status, 0);
    let samples: Vec<&Value> = lines.iter().filter(|line| line["type"] == "sample").collect();
    for sample in &samples {
        let ms = |key: &str| sample[key].as_f64().unwrap();
        assert!(ms("error_ms") > 0.0 && ms("wakeup_ms") >= 0.0, "{sample}");
        for (key, names) in
            [("tx", ["kernel", "user"]), ("rx", ["kernel", "user"]), ("far", ["stated", "unknown"])]
        {
            assert!(names.contains(&sample["stamps"][key].as_str().unwrap()), "{sample}");
        }
        let kernel = sample["stamps"]["tx"] == "kernel" && sample["stamps"]["rx"] == "kernel";
        assert_eq!(sample["stamp"] == "kernel", kernel, "{sample}");
    }
    // The first answer cannot know its delay. The loopback device takes timestamps, so later ones
    // do.
    assert_eq!(samples[0]["stamps"]["far"], "unknown");
    assert!(samples.iter().skip(1).any(|sample| sample["stamps"]["far"] == "stated"));
    for told in [targets(&lines)[0], &listener.stop()["clients"][0]] {
        for key in ["error_ms", "wakeup_ms"] {
            let [p50, p99] = ["p50", "p99"].map(|p| told[key][p].as_f64().unwrap());
            assert!(0.0 <= p50 && p50 <= p99, "{told}");
        }
    }
}

#[test]
fn a_client_that_was_stopped_for_a_while_finds_no_loss_and_no_outage() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let address = listener.address.to_string();
    let mut probing = super::Probing::start(&[&address, "-i", "100ms", "-k", "20"]);
    let until = |probing: &mut super::Probing, seq| {
        probing.until(|line| line["type"] == "sample" && line["seq"].as_u64() >= Some(seq));
    };
    until(&mut probing, 3);
    probing.signal(nix::sys::signal::Signal::SIGSTOP);
    // Longer than the timeout of 2.05 s.
    std::thread::sleep(Duration::from_millis(2_500));
    probing.signal(nix::sys::signal::Signal::SIGCONT);
    until(&mut probing, 6);
    let lines = probing.interrupt();
    let [target] = targets(&lines)[..] else { panic!("{lines:?}") };
    assert_eq!((&target["state"], &target["transitions"]), (&"up".into(), &0.into()), "{target}");
    assert_eq!(target["rtl"], 0.0, "{target}");
}
