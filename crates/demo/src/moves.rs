//! The demonstration of network-based mobility: a stock host with a call and a download loses and regains its accesses.

mod page;

use std::time::Duration;

use anyhow::bail;
use segue_linux::clock::monotonic;
use serde::Serialize;

use crate::domain::{Check, Domain, LTE2, WLAN, WLAN1, WLAN2};
use crate::traffic::{Seen, Traffic, Voice};

pub use page::render;

/// How long the effects of a step are observed, in seconds.
const WATCHED: f64 = 2.5;
/// How far ahead the loss of an attachment is announced.
const FORETOLD: Duration = Duration::from_millis(300);
/// The longest pause in a call that is hardly noticeable, in ms (paper 3: a handover takes 50 to 150 ms).
pub const PAUSE_MAX_MS: f64 = 150.0;

/// A change of the host's attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Goes,
    Returns,
    Foretold,
    Moves,
}

/// The schedule: seconds from the start, and the step.
const COURSE: [(f64, Step); 5] = [
    (3.0, Step::Goes),
    (6.0, Step::Returns),
    (9.0, Step::Foretold),
    (12.5, Step::Returns),
    (15.5, Step::Moves),
];
/// End of the demonstration, in seconds from the start.
pub const END: f64 = 18.5;
/// The access that carries the host's flows at the beginning.
const FIRST: &str = WLAN1.name;

impl Step {
    fn words(self) -> &'static str {
        match self {
            Step::Goes => "Wi-Fi goes without a word",
            Step::Returns => "Wi-Fi is back",
            Step::Foretold => "Wi-Fi goes, as was foretold",
            Step::Moves => "to Wi-Fi of the other node",
        }
    }

    /// The access that carries the flows after the step.
    fn to(self) -> &'static str {
        match self {
            Step::Goes | Step::Foretold => LTE2.name,
            Step::Returns => WLAN1.name,
            Step::Moves => WLAN2.name,
        }
    }
}

/// A step and its effects.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// When it happened, in seconds from the start.
    pub at_s: f64,
    /// The step, in words.
    pub what: &'static str,
    /// The access that the flows moved to.
    pub to: &'static str,
    /// The anchor's reason for moving them (`left`, `back`, `going_down`, `moved`).
    pub cause: String,
    /// Number of flows that moved.
    pub flows: usize,
    /// Time from the anchor's notification until it redirected the flows, in ms.
    pub rebinding_ms: f64,
    /// Longest pause of the call at the host and at the correspondent, in ms. Packets are sent every 20 ms.
    pub pause_ms: [f64; 2],
    /// Lost packets of the call: to the host, and from it.
    pub lost: [usize; 2],
    /// Longest time during which the download received no byte, in ms.
    pub download_pause_ms: f64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The steps.
    pub steps: Vec<Row>,
    /// The host's address at the beginning.
    pub address: String,
    /// True if the host still has this address at the end.
    pub address_kept: bool,
    /// Download connections that broke.
    pub broken: u32,
    /// Bytes downloaded.
    pub bytes: u64,
    /// Packets of the call, `[sent, lost]`, to the host and from it.
    pub call: [[usize; 2]; 2],
}

impl Outcome {
    /// Returns true if no connection broke, the address stayed, and no pause of the call to the host exceeded
    /// [`PAUSE_MAX_MS`].
    #[must_use]
    pub fn holds(&self) -> bool {
        self.address_kept && self.broken == 0 && self.steps.iter().all(Row::holds)
    }

    /// The verdict in a sentence.
    #[must_use]
    pub fn verdict(&self) -> String {
        let verdict = if self.holds() { "Holds" } else { "Does NOT hold" };
        format!(
            "{verdict}: no connection broke, the address stayed, and no pause of the call to the host was longer than \
             {PAUSE_MAX_MS} ms"
        )
    }
}

impl Row {
    /// True if the call to the host paused for at most [`PAUSE_MAX_MS`].
    #[must_use]
    pub fn holds(&self) -> bool {
        self.pause_ms[0] <= PAUSE_MAX_MS
    }
}

/// A completed step, with the anchor's record of the handover.
struct Done {
    at: f64,
    step: Step,
    cause: String,
    flows: usize,
    rebinding_ms: f64,
}

/// Runs the demonstration, and calls `say` with the time and a description of each step.
///
/// # Errors
/// A step has no effect, a daemon has ended, or the user wants to stop.
pub fn perform(
    domain: &mut Domain,
    check: Check<'_>,
    mut say: impl FnMut(f64, &str),
) -> anyhow::Result<(Outcome, Seen)> {
    domain.attach(check, &WLAN1)?;
    domain.attach(check, &LTE2)?;
    domain.await_mobility(check, [&WLAN1, &LTE2])?;
    let address = domain.address(WLAN)?;
    let start = monotonic();
    let traffic = Traffic::start(&domain.ends(WLAN)?, start)?;
    let now = || monotonic().since(start).as_secs_f64();
    say(0.0, "a call and a download run over Wi-Fi");
    let mut done = Vec::new();
    for (due, step) in COURSE {
        pause(domain, check, due - now())?;
        let (at, before) = (now(), domain.anchor()?.handovers.len());
        say(at, step.words());
        match step {
            Step::Goes => domain.detach(WLAN)?,
            Step::Returns => domain.lab().attach("host:wlan", WLAN1.name)?,
            Step::Moves => domain.lab().attach("host:wlan", WLAN2.name)?,
            Step::Foretold => {
                domain.lab().announce_leaving("host:wlan", WLAN1.name, FORETOLD);
                pause(domain, check, FORETOLD.as_secs_f64())?;
                domain.detach(WLAN)?;
            }
        }
        domain.wait(check, "another way for what is for the host", |domain| {
            Ok(domain.anchor()?.handovers.len() > before)
        })?;
        let handovers = domain.anchor()?.handovers;
        let Some(first) = handovers.get(before) else { bail!("the anchor has forgotten its last") };
        let (cause, flows, rebinding_ms) = (first.cause.clone(), first.flows, first.rebinding_ms);
        done.push(Done { at, step, cause, flows, rebinding_ms });
    }
    pause(domain, check, END - now())?;
    let seen = traffic.stop();
    let kept = domain.address(WLAN).is_ok_and(|now| now == address);
    Ok((judge(&done, &seen, (address.to_string(), kept)), seen))
}

fn pause(domain: &mut Domain, check: Check<'_>, seconds: f64) -> anyhow::Result<()> {
    let until = monotonic().as_secs_f64() + seconds;
    while monotonic().as_secs_f64() < until {
        check()?;
        domain.check_alive()?;
        let left = (until - monotonic().as_secs_f64()).clamp(0.0, 0.05);
        std::thread::sleep(Duration::from_secs_f64(left));
    }
    Ok(())
}

/// The longest interval between consecutive instants whose later one is in the window, in ms.
fn longest_ms(instants: impl Iterator<Item = f64>, window: (f64, f64)) -> f64 {
    let (mut before, mut longest) = (None, 0.0_f64);
    for at in instants {
        if let Some(before) = before.filter(|_| (window.0..window.1).contains(&at)) {
            longest = longest.max(at - before);
        }
        before = Some(at);
    }
    longest * 1e3
}

/// Number of packets sent in the window that never arrived.
fn lost(voice: &Voice, window: (f64, f64)) -> usize {
    let mut arrived = vec![false; voice.sent.len()];
    for (number, _) in &voice.received {
        if let Some(place) = arrived.get_mut(*number as usize) {
            *place = true;
        }
    }
    let sent = voice.sent.iter().zip(arrived);
    sent.filter(|(at, arrived)| (window.0..window.1).contains(*at) && !arrived).count()
}

fn judge(done: &[Done], seen: &Seen, (address, address_kept): (String, bool)) -> Outcome {
    let both = [&seen.down, &seen.up];
    // The last packets may still be under way.
    let all = (0.0, END - 0.2);
    let steps = done.iter().map(|done| {
        let window = (done.at, done.at + WATCHED);
        let arrivals = |voice: &Voice| longest_ms(voice.received.iter().map(|(_, at)| *at), window);
        Row {
            at_s: done.at,
            what: done.step.words(),
            to: done.step.to(),
            cause: done.cause.clone(),
            flows: done.flows,
            rebinding_ms: done.rebinding_ms,
            pause_ms: both.map(arrivals),
            lost: both.map(|voice| lost(voice, window)),
            download_pause_ms: longest_ms(seen.tcp.reads.iter().map(|(at, _)| *at), window),
        }
    });
    Outcome {
        steps: steps.collect(),
        address,
        address_kept,
        broken: seen.tcp.broken,
        bytes: seen.tcp.bytes,
        call: both.map(|voice| [voice.sent.len(), lost(voice, all)]),
    }
}
