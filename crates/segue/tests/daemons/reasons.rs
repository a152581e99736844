//! The reason why a host cannot reach its anchor is logged at the default level and shown in the
//! status.

use nix::sys::signal::Signal;

use crate::several::Two;
use crate::world::{Daemon, registered, text};

/// Number of warnings in the log that contain `part`.
fn warnings(host: &Daemon, part: &str) -> usize {
    host.log().lines().filter(|line| line.contains(" WARN ") && line.contains(part)).count()
}

fn trouble(host: &Daemon, part: &str) {
    host.wait(part, |status| {
        status["trouble"]["why"].as_str().is_some_and(|why| why.contains(part))
    });
    let shown = text(&host.cli(&["status"]).stdout);
    assert!(shown.contains("trouble ") && shown.contains(part), "{shown}");
}

#[test]
fn an_anchor_that_does_not_answer_or_is_another_one_is_named_at_once_and_then_seldom() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let mut anchor = two.anchor();
    let line = two.enroll(&anchor, 1, "a");
    anchor.end(Signal::SIGTERM);
    let args = two.host_args("a", &line);
    let host = two.start("a", &args.each_ref().map(String::as_str));
    let silent = "no answer from the anchor at 10.61.1.1:5006 over up0";
    trouble(&host, silent);
    assert_eq!(warnings(&host, silent), 1, "{}", host.log());

    let mut other = two.anchor_at(&two.directory().join("other.db"));
    let wrong =
        "another anchor than the one of this host's join line answers at 10.61.1.1:5006 over up0";
    trouble(&host, wrong);
    assert_eq!(warnings(&host, wrong), 1, "{}", host.log());
    other.end(Signal::SIGTERM);
    trouble(&host, silent);
    assert_eq!(warnings(&host, silent), 1, "a minute has not passed: {}", host.log());

    let _anchor = two.anchor();
    host.wait("registered", registered);
    assert_eq!(host.status()["trouble"], serde_json::Value::Null);
    assert!(host.log().contains("the anchor is reached"), "{}", host.log());
    assert!(!text(&host.cli(&["status"]).stdout).contains("trouble"));
}
