//! The live view: redrawn in place on a terminal, one line per event elsewhere.

use segue_daemon::control::{EventRecord, Tunnels};
use segue_demo::Course;
use segue_demo::traffic::Traffic;
use segue_demo::watch::{Look, Watch};
use segue_text::terminal::layout::{self, Column, Table};
use segue_text::terminal::{Colours, Live, Size, Stream};

use crate::cmd::control::path_figures;

/// Draws the state of the play.
pub(super) struct View {
    output: Output,
    course: Course,
    last: Option<(f64, u64)>,
    rate_mbit: f64,
}

enum Output {
    Nothing,
    /// One line per event, and every few seconds a line about the course.
    Lines(Lines),
    Drawing(Live, Colours),
}

/// Number of events printed, and the last line about the course with its time.
#[derive(Default)]
struct Lines {
    events: usize,
    told: Option<(f64, &'static str)>,
}

/// The data to draw.
struct Scene<'a> {
    t: f64,
    look: Option<&'a Look>,
    events: &'a [(f64, EventRecord<Tunnels>)],
    rate_mbit: f64,
    /// Packets of the voice-like flow that have not arrived: up and down.
    missing: [usize; 2],
}

/// Seconds between two lines about the course where nothing is drawn.
const TELL: f64 = 5.0;
/// Seconds between two drawings.
const REDRAW: f64 = 0.2;
/// Maximum number of events shown.
const EVENTS: usize = 6;
/// Maximum length of a bar.
const BAR: usize = 60;

impl View {
    /// A view on standard error, or nothing (`quiet`).
    pub(super) fn new(quiet: bool, course: Course) -> View {
        let output = match (quiet, Stream::Error.is_live()) {
            (true, _) => Output::Nothing,
            (false, true) => Output::Drawing(Live::new(Stream::Error), Stream::Error.colours()),
            (false, false) => Output::Lines(Lines::default()),
        };
        View { output, course, last: None, rate_mbit: 0.0 }
    }

    /// Shows the state at `t` seconds.
    pub(super) fn show(&mut self, t: f64, watch: &Watch, traffic: &Traffic) {
        let (live, colours) = match &mut self.output {
            Output::Nothing => return,
            Output::Lines(lines) => {
                for (at, event) in &watch.host_events[lines.events..] {
                    eprintln!("{at:6.2} s  {}", event.text);
                }
                lines.events = watch.host_events.len();
                let act = act(t, self.course);
                if lines.told.is_none_or(|(at, last)| last != act || t - at >= TELL) {
                    let megabytes = traffic.tcp_bytes() as f64 / 1e6;
                    eprintln!("{t:6.2} s  {act}; {megabytes:.1} MB downloaded");
                    lines.told = Some((t, act));
                }
                return;
            }
            Output::Drawing(live, colours) => (live, *colours),
        };
        let bytes = traffic.tcp_bytes();
        let (since, before) = self.last.unwrap_or((t - 1.0, bytes));
        if self.last.is_some() && t - since < REDRAW {
            return;
        }
        self.rate_mbit = bytes.saturating_sub(before) as f64 * 8e-6 / (t - since);
        self.last = Some((t, bytes));
        let scene = Scene {
            t,
            look: watch.looks.last(),
            events: &watch.host_events,
            rate_mbit: self.rate_mbit,
            missing: traffic.voice().map(|(sent, received)| sent.saturating_sub(received)),
        };
        let lines = draw(&scene, self.course, live.size(), colours);
        // The demonstration goes on even if the output is closed.
        let _ = live.show(&lines);
    }

    /// Leaves the last drawing in place.
    pub(super) fn end(&self) {
        if let Output::Drawing(..) = self.output {
            eprintln!();
        }
    }
}

/// Describes the scene at this second.
fn act(t: f64, course: Course) -> &'static str {
    if t < course.silent_at {
        "both networks work"
    } else if t < course.back_at {
        "the Wi-Fi's backhaul is SILENT (its link stays up)"
    } else {
        "the Wi-Fi's backhaul is back"
    }
}

/// Draws the scene as lines for a terminal of this size. On a low terminal it leaves out the oldest
/// events.
fn draw(scene: &Scene<'_>, course: Course, size: Size, colours: Colours) -> Vec<String> {
    let room = size.columns.saturating_sub(1);
    let mut lines = vec![bar(scene.t, course, room)];
    let act = act(scene.t, course);
    lines.extend(layout::sentence(&format!("{:.1} s  {act}", scene.t), room));
    lines.push(String::new());
    if let Some(look) = scene.look {
        lines.extend(paths(look, room, colours));
    }
    let [up, down] = scene.missing;
    lines.push(String::new());
    let traffic = [
        format!("TCP download {:.1} Mbit/s", scene.rate_mbit),
        format!("voice packets lost: {up} up, {down} down (or under way)"),
    ];
    lines.extend(layout::flow(&traffic, "   ", room));
    lines.push(String::new());
    let mut left = size.rows.saturating_sub(1 + lines.len());
    let mut events = Vec::new();
    for (at, event) in scene.events.iter().rev().take(EVENTS) {
        let told = layout::sentence(&format!("{at:6.2} s  {}", event.text), room);
        if told.len() > left {
            break;
        }
        left -= told.len();
        events.push(told);
    }
    lines.extend(events.into_iter().rev().flatten());
    lines
}

fn paths(look: &Look, room: usize, colours: Colours) -> Vec<String> {
    // Columns as wide as the values may become, so that they do not move.
    let mut table = Table::new(&[
        Column::left("path", 4),
        Column::left("state", 8).apart(),
        Column::right("rtt", 9).apart(),
        Column::right("loss up", 8).apart(),
        Column::right("loss down", 9).apart(),
        Column::left("carries", 0).apart(),
    ]);
    for path in &look.paths {
        let [rtt, up, down] = path_figures(path);
        let carries: Vec<&str> = look
            .classes
            .iter()
            .filter(|(_, to)| *to == path.name)
            .map(|(class, _)| class.as_str())
            .collect();
        let state = colours.state(path.shown_state());
        table.row(vec![path.name.clone(), state, rtt, up, down, carries.join(" ")]);
    }
    let laid = table.lay(room);
    laid.head.into_iter().chain(laid.rows.into_iter().flatten()).collect()
}

fn bar(t: f64, course: Course, room: usize) -> String {
    let end = format!(" {:.0} s", course.until);
    let length = room.saturating_sub(end.len()).min(BAR);
    let column = |at: f64| ((at / course.until) * length as f64) as usize;
    let cells: String = (0..length)
        .map(|cell| {
            let silent = (column(course.silent_at)..column(course.back_at)).contains(&cell);
            match (cell < column(t), silent) {
                (true, false) => '█',
                (true, true) => '▒',
                (false, true) => '·',
                (false, false) => '─',
            }
        })
        .collect();
    cells + &end
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_daemon::control::{PathStatus, TunnelEvent};

    const COURSE: Course = Course { silent_at: 10.0, back_at: 20.0, until: 30.0 };

    fn look() -> Look {
        let path = |name: &str, state: &str| PathStatus {
            name: name.into(),
            state: state.into(),
            rtt_ms: vec![122.25],
            owl_up: vec![1.0],
            owl_down: vec![0.0063],
            ..PathStatus::default()
        };
        let classes =
            ["bulk", "default", "interactive", "voice"].map(|c| (c.into(), "wifi".into()));
        Look {
            at: 9.0,
            paths: vec![path("wifi", "up"), path("lte", "starting")],
            classes: classes.into(),
        }
    }

    fn events() -> Vec<(f64, EventRecord<Tunnels>)> {
        let event = |n: usize| EventRecord {
            number: n as u64,
            at_ns: 0,
            unix_s: 0.0,
            kind: "handover".into(),
            host: String::new(),
            text: format!("{n} interactive flows moved from wifi to lte (down)"),
            about: TunnelEvent::default(),
        };
        (0..9).map(|n| (n as f64, event(n))).collect()
    }

    /// What a terminal of this size shows after three drawings.
    fn screen(columns: usize, rows: usize) -> String {
        let size = Size { columns, rows };
        let cells = |n: usize| (n as u16).try_into().unwrap();
        let mut terminal = vt100::Parser::new(cells(rows), cells(columns), 0);
        let mut drawing = segue_text::terminal::Drawing::default();
        let (look, events) = (look(), events());
        for t in [1.0, 12.0, 15.0] {
            let scene =
                Scene { t, look: Some(&look), events: &events, rate_mbit: 16.4, missing: [3, 12] };
            terminal
                .process(drawing.draw(&draw(&scene, COURSE, size, Colours::NONE), size).as_bytes());
        }
        terminal.screen().contents()
    }

    #[test]
    fn on_eighty_columns_everything_is_in_its_column() {
        let screen = screen(80, 24);
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(
            lines,
            [
                "████████████████████▒▒▒▒▒▒▒▒▒▒··········──────────────────── 30 s",
                "15.0 s  the Wi-Fi's backhaul is SILENT (its link stays up)",
                "",
                "path  state           rtt   loss up  loss down  carries",
                "wifi  up        122.25 ms  100.00 %     0.63 %  bulk default interactive voice",
                "lte   starting  122.25 ms  100.00 %     0.63 %",
                "",
                "TCP download 16.4 Mbit/s   voice packets lost: 3 up, 12 down (or under way)",
                "",
                "  3.00 s  3 interactive flows moved from wifi to lte (down)",
                "  4.00 s  4 interactive flows moved from wifi to lte (down)",
                "  5.00 s  5 interactive flows moved from wifi to lte (down)",
                "  6.00 s  6 interactive flows moved from wifi to lte (down)",
                "  7.00 s  7 interactive flows moved from wifi to lte (down)",
                "  8.00 s  8 interactive flows moved from wifi to lte (down)",
            ]
        );
    }

    #[test]
    fn on_forty_columns_nothing_is_cut_and_nothing_piles_up() {
        let screen = screen(40, 24);
        assert_eq!(screen.matches("30 s").count(), 1, "{screen}");
        for part in ["state up", "loss up 100.00 %", "loss down 0.63 %", "12 down", "voice"] {
            assert!(screen.contains(part), "{part}: {screen}");
        }
        assert!(!screen.contains('…'), "{screen}");
        assert!(screen.contains("  8.00 s  8 interactive"), "{screen}");
    }

    #[test]
    fn on_a_low_terminal_the_newest_events_stay() {
        let screen = screen(80, 12);
        let events: Vec<&str> = screen.lines().filter(|line| line.contains("moved")).collect();
        assert_eq!(events.len(), 2, "{screen}");
        assert!(events[1].starts_with("  8.00 s"), "{screen}");
    }
}
