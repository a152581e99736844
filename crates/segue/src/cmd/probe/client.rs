//! The client's loop.

use std::os::fd::AsFd;
use std::process::ExitCode;

use segue_clock::{Span, Time};
use segue_keepalive::Config;
use segue_linux::clock;

use super::screen::{Output, Screen};
use super::signals::Signals;
use super::target::Target;

/// How to measure.
pub struct Options {
    /// Settings of each measurement.
    pub config: Config,
    /// Requests for each target.
    pub count: Option<u32>,
    /// How long to send.
    pub deadline: Option<Span>,
    /// How to print.
    pub output: Output,
}

/// Measures until all is sent and answered, or until interrupted.
///
/// # Errors
/// If the system refuses signals, sockets or output.
pub fn run(mut targets: Vec<Target>, options: &Options) -> anyhow::Result<ExitCode> {
    let signals = Signals::take()?;
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
        wake = wake.into_iter().chain(screen.deadline()).min();
        if all_done || signals.wait(targets.iter().map(AsFd::as_fd), wake)? {
            break;
        }
    }
    let now = clock::monotonic();
    for target in &mut targets {
        for news in target.settle(now, grace) {
            screen.news(now, target, &news)?;
        }
    }
    screen.summary(now, grace, &targets)?;
    Ok(exit_code(&targets))
}

/// What a target does next.
enum Step {
    /// It sends, next at this instant.
    Send(Time),
    /// It waits for answers until this instant.
    Drain(Time),
    /// All is sent, and answered or given up.
    Done,
}

fn all_sent(target: &Target, options: &Options, now: Time, end: Option<Time>) -> bool {
    options.count.is_some_and(|count| target.sent >= count) || end.is_some_and(|end| now >= end)
}

fn step(target: &mut Target, options: &Options, now: Time, end: Option<Time>) -> Step {
    let grace = grace(&options.config);
    if !all_sent(target, options, now, end) {
        return Step::Send(target.deadline().unwrap_or(now + grace));
    }
    if target.outstanding(now - grace) == 0 {
        return Step::Done;
    }
    Step::Drain(target.last_sent() + grace)
}

/// For how long an answer is waited for: the longest time-out of the measurement.
fn grace(config: &Config) -> Span {
    config.t_ka * (u64::from(config.k) + 1)
}

fn exit_code(targets: &[Target]) -> ExitCode {
    let silent = || targets.iter().filter(|target| target.received == 0);
    if silent().any(|target| target.error.is_some()) {
        ExitCode::from(2)
    } else if silent().next().is_some() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    }
}
