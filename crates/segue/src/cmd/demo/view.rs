//! The live view: redrawn in place on a terminal, one line per event elsewhere.

use std::fmt::Write as _;

use super::Course;
use super::traffic::Traffic;
use super::watch::Watch;
use crate::cmd::look::path_figures;
use crate::daemon::events::sentence;

/// Draws the state of the play.
pub struct View {
    live: bool,
    quiet: bool,
    course: Course,
    lines: usize,
    events: usize,
    last: Option<(f64, u64)>,
    rate_mbit: f64,
}

/// Seconds between two drawings.
const REDRAW: f64 = 0.2;
/// Events shown at a time.
const EVENTS: usize = 6;

impl View {
    /// A view that redraws itself (`live`), prints lines, or says nothing (`quiet`).
    pub fn new(live: bool, quiet: bool, course: Course) -> View {
        View { live, quiet, course, lines: 0, events: 0, last: None, rate_mbit: 0.0 }
    }

    /// Shows the state at `t` seconds.
    pub fn show(&mut self, t: f64, watch: &Watch, traffic: &Traffic) {
        if self.quiet {
            return;
        }
        if !self.live {
            for (at, event) in &watch.host_events[self.events..] {
                eprintln!("{at:6.2} s  {}", sentence(event));
            }
            self.events = watch.host_events.len();
            return;
        }
        let bytes = traffic.tcp_bytes();
        let (since, before) = self.last.unwrap_or((t - 1.0, bytes));
        if self.last.is_some() && t - since < REDRAW {
            return;
        }
        self.rate_mbit = bytes.saturating_sub(before) as f64 * 8e-6 / (t - since);
        self.last = Some((t, bytes));
        let text = self.draw(t, watch, traffic);
        let up = if self.lines > 0 { format!("\x1b[{}A", self.lines) } else { String::new() };
        self.lines = text.lines().count();
        eprint!("{up}{}", text.replace('\n', "\x1b[K\n"));
    }

    /// Leaves the last drawing where it is.
    pub fn end(&self) {
        if self.live {
            eprintln!();
        }
    }

    fn draw(&self, t: f64, watch: &Watch, traffic: &Traffic) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.bar(t));
        let scene = if t < self.course.silent_at {
            "both networks work"
        } else if t < self.course.back_at {
            "the Wi-Fi's backhaul is SILENT (its link stays up)"
        } else {
            "the Wi-Fi's backhaul is back"
        };
        let _ = writeln!(text, "{t:5.1} s  {scene}\n");
        let _ = writeln!(text, "path   state      rtt         loss up   loss down  carries");
        if let Some(look) = watch.looks.last() {
            for path in &look.paths {
                let [rtt, up, down] = path_figures(path);
                let carries: Vec<&str> = look
                    .classes
                    .iter()
                    .filter(|(_, to)| *to == path.name)
                    .map(|(class, _)| class.as_str())
                    .collect();
                let _ = writeln!(
                    text,
                    "{:<6} {:<9} {rtt:>9} {up:>10} {down:>10}   {}",
                    path.name,
                    path.state,
                    carries.join(" ")
                );
            }
        }
        let [up, down] = traffic.voice();
        let lost = |(sent, received): (usize, usize)| sent.saturating_sub(received);
        let _ = writeln!(
            text,
            "\nTCP download {:6.1} Mbit/s   voice packets lost: {} up, {} down (or under way)\n",
            self.rate_mbit,
            lost(up),
            lost(down)
        );
        let skip = watch.host_events.len().saturating_sub(EVENTS);
        for (at, event) in &watch.host_events[skip..] {
            let _ = writeln!(text, "{at:6.2} s  {}", sentence(event));
        }
        text
    }

    fn bar(&self, t: f64) -> String {
        const WIDTH: usize = 60;
        let column = |at: f64| ((at / self.course.until) * WIDTH as f64) as usize;
        let cells: String = (0..WIDTH)
            .map(|cell| {
                let silent =
                    (column(self.course.silent_at)..column(self.course.back_at)).contains(&cell);
                match (cell < column(t), silent) {
                    (true, false) => '█',
                    (true, true) => '▒',
                    (false, true) => '·',
                    (false, false) => '─',
                }
            })
            .collect();
        format!("{cells} {:.0} s", self.course.until)
    }
}
