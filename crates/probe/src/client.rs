//! The main loop of the client.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use segue_clock::{Span, Time};
use segue_keepalive::Config;
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;

use super::opening::Opening;
use super::running::Running;
use super::screen::{Output, Screen, exit_code};
use super::target::Target;
use crate::metrics::{Page, Server as Metrics};

/// Options of the client.
pub(crate) struct ClientOptions<'a> {
    /// Settings of each measurement.
    pub config: Config,
    /// Number of requests per target.
    pub count: Option<u32>,
    /// How long to send requests.
    pub deadline: Option<Span>,
    /// Send over this interface.
    pub interface: Option<&'a str>,
    /// Requests are authenticated with the operator's key.
    pub keyed: bool,
    /// Output format.
    pub output: Output,
    /// Metrics and scheduling of the process.
    pub running: Running,
}

/// Measures until all requests are sent and answered, or until interrupted.
///
/// # Errors
/// Signals, sockets or output fail.
pub(crate) fn run(
    mut targets: Vec<Target>,
    options: &ClientOptions<'_>,
) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let metrics = options.running.told_metrics(options.output)?;
    for target in &targets {
        opening(target, options).tell(options.output)?;
    }
    let scheduling = options.running.scheduling();
    let start = clock::monotonic();
    let end = options.deadline.map(|length| start + length);
    let grace = grace(&options.config);
    let mut screen = Screen::new(options.output, start);
    loop {
        let now = clock::monotonic();
        let mut wake = None;
        let mut all_done = true;
        for target in &mut targets {
            if all_sent(target, options, now, end) {
                target.end();
            }
            for news in target.receive()? {
                screen.news(now, target, &news)?;
            }
            // Answers in the queue have already arrived, however late this process runs: take them before timeouts are
            // judged.
            let now = clock::monotonic();
            let at = match step(target, options, now, end) {
                Step::Done => continue,
                Step::Drain(until) => until,
                Step::Send(at) => {
                    if at <= now {
                        for news in target.tick(now) {
                            screen.news(now, target, &news)?;
                        }
                    }
                    at.max(now)
                }
            };
            all_done = false;
            wake = [wake, end.filter(|end| *end > now), Some(at)].into_iter().flatten().min();
        }
        screen.draw(now, &targets)?;
        if let Some(metrics) = &metrics {
            metrics.answer(|| page(&targets, &options.config));
        }
        wake = wake.into_iter().chain(screen.deadline()).min();
        if all_done || wait(&signals, &targets, metrics.as_ref(), wake)? {
            break;
        }
    }
    let now = clock::monotonic();
    for target in &mut targets {
        for news in target.settle(now, grace) {
            screen.news(now, target, &news)?;
        }
    }
    screen.summary(now, grace, &targets, scheduling)?;
    Ok(exit_code(targets.iter().map(|target| (target.received, target.error.is_some()))))
}

fn opening<'a>(target: &'a Target, options: &'a ClientOptions<'_>) -> Opening<'a> {
    Opening {
        name: &target.name,
        address: target.address,
        interface: options.interface,
        protocol: "segue",
        size: target.length(),
        interval: options.config.t_ka,
        count: options.count,
        deadline: options.deadline,
        keyed: options.keyed,
    }
}

fn wait(
    signals: &StopSignals,
    targets: &[Target],
    metrics: Option<&Metrics>,
    until: Option<Time>,
) -> io::Result<bool> {
    signals.wait(targets.iter().map(AsFd::as_fd).chain(metrics.map(AsFd::as_fd)), until)
}

/// The page of metrics.
fn page(targets: &[Target], config: &Config) -> String {
    let mut page = Page::default();
    let views: Vec<_> = targets.iter().map(|target| target.view(config)).collect();
    page.paths(&views);
    for target in targets {
        page.drops(&[("target", target.name.clone())], target.drops.by_reason());
    }
    page.text()
}

/// The next action for a target.
enum Step {
    /// Send requests, the next one at this time.
    Send(Time),
    /// Wait for answers until this time.
    Drain(Time),
    /// All requests are sent, and answered or given up.
    Done,
}

fn all_sent(target: &Target, options: &ClientOptions<'_>, now: Time, end: Option<Time>) -> bool {
    options.count.is_some_and(|count| target.sent >= count) || end.is_some_and(|end| now >= end)
}

fn step(target: &mut Target, options: &ClientOptions<'_>, now: Time, end: Option<Time>) -> Step {
    let grace = grace(&options.config);
    if !all_sent(target, options, now, end) {
        return Step::Send(target.deadline().unwrap_or(now + grace));
    }
    if target.outstanding(now - grace) == 0 {
        return Step::Done;
    }
    Step::Drain(target.last_sent() + grace)
}

/// How long to wait for an answer: the longest timeout of the measurement.
pub(crate) fn grace(config: &Config) -> Span {
    config.t_ka * (u64::from(config.k) + 1)
}
