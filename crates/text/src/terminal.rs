//! Terminal output: terminal detection and size, colours, and lines that are redrawn in place.
//!
//! Escape sequences are sent only to terminals that support them: not if `TERM` is `dumb` or unset. Redrawn lines never
//! exceed the terminal's width or height.

mod drawing;
pub mod layout;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};

pub use drawing::Drawing;

/// A standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters per line.
    pub columns: usize,
    /// Number of lines.
    pub rows: usize,
}

/// Size of a terminal that does not report one.
const USUAL: Size = Size { columns: 80, rows: 24 };

impl Stream {
    /// Returns whether lines can be redrawn in place.
    #[must_use]
    pub fn is_live(self) -> bool {
        self.is_terminal() && understands(std::env::var("TERM").ok().as_deref())
    }

    /// The size of the terminal; `None` if the stream is no terminal.
    #[must_use]
    pub fn size(self) -> Option<Size> {
        if !self.is_terminal() {
            return None;
        }
        let told = match self {
            Stream::Output => terminal_size::terminal_size_of(io::stdout()),
            Stream::Error => terminal_size::terminal_size_of(io::stderr()),
        };
        let size = |(width, height): (terminal_size::Width, terminal_size::Height)| Size {
            columns: width.0.into(),
            rows: height.0.into(),
        };
        Some(told.map_or(USUAL, size))
    }

    /// Enables colours if the terminal supports them and the user has not disabled them (`NO_COLOR`, see no-color.org).
    #[must_use]
    pub fn colours(self) -> Colours {
        let declined = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Colours(self.is_live() && !declined)
    }

    /// Characters in a line: the terminal's; elsewhere what `COLUMNS` says, or 80.
    #[must_use]
    pub fn room(self) -> usize {
        let told = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
        self.size().map(|size| size.columns).or_else(told).unwrap_or(USUAL.columns)
    }

    fn is_terminal(self) -> bool {
        match self {
            Stream::Output => io::stdout().is_terminal(),
            Stream::Error => io::stderr().is_terminal(),
        }
    }

    fn write(self, text: &str) -> io::Result<()> {
        match self {
            Stream::Output => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Stream::Error => io::stderr().lock().write_all(text.as_bytes()),
        }
    }
}

/// Prints text to standard output, in lines that [fit](Stream::room). Panics as `println!` does.
pub fn say(text: &str) {
    println!("{}", layout::wrap(text, Stream::Output.room()));
}

/// Prints an error of the program to standard error. A terminal gets lines that fit it, a log or a pipe one line.
pub fn complain(text: &str) {
    let text = text.lines().map(visible).collect::<Vec<_>>().join("\n");
    let text = format!("segue: {text}");
    match Stream::Error.size() {
        Some(size) => eprintln!("{}", layout::wrap(&text, size.columns)),
        None => eprintln!("{text}"),
    }
}

/// Text of unknown origin with its control characters escaped, so that it cannot control the terminal.
#[must_use]
pub fn visible(text: &str) -> String {
    let escaped = |c: char| c.is_control().then(|| c.escape_default().to_string());
    text.chars().map(|c| escaped(c).unwrap_or_else(|| c.to_string())).collect()
}

/// As `println!`, for text that people read: see [`terminal::say`](crate::terminal::say).
#[macro_export]
macro_rules! say {
    () => { $crate::terminal::say("") };
    ($($text:tt)*) => { $crate::terminal::say(&format!($($text)*)) };
}

/// Returns whether a terminal of this type supports escape sequences.
fn understands(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| !kind.is_empty() && kind != "dumb")
}

/// Colours, enabled or disabled.
#[derive(Clone, Copy, Debug)]
pub struct Colours(bool);

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Working.
    Good,
    /// Needs attention.
    Doubtful,
    /// Not working.
    Bad,
}

impl Colours {
    /// Disabled.
    pub const NONE: Colours = Colours(false);

    /// `text` in the colour of `tone`, if colours are enabled.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let colour = match tone {
            Tone::Good => AnsiColor::Green,
            Tone::Doubtful => AnsiColor::Yellow,
            Tone::Bad => AnsiColor::Red,
        };
        let style = Style::new().fg_color(Some(colour.into()));
        format!("{style}{text}{style:#}")
    }

    /// A path's state in its colour. Unknown states are not coloured.
    #[must_use]
    pub fn state(self, state: &str) -> String {
        match state {
            "up" => self.paint(Tone::Good, state),
            "in doubt" | "lossy" => self.paint(Tone::Doubtful, state),
            "down" => self.paint(Tone::Bad, state),
            _ => state.to_owned(),
        }
    }
}

/// Lines that are redrawn in place.
pub struct Live {
    stream: Stream,
    drawing: Drawing,
}

impl Live {
    /// Creates an empty display, for a stream that [is live](Stream::is_live).
    #[must_use]
    pub fn new(stream: Stream) -> Live {
        Live { stream, drawing: Drawing::default() }
    }

    /// The terminal's current size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.stream.size().unwrap_or(USUAL)
    }

    /// Replaces the lines drawn before by these.
    ///
    /// # Errors
    /// If the output is closed.
    pub fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let size = self.size();
        self.stream.write(&self.drawing.draw(lines, size))
    }

    /// Removes the lines.
    ///
    /// # Errors
    /// Like [`Live::show`].
    pub fn clear(&mut self) -> io::Result<()> {
        self.show(&[])
    }
}

/// Progress of a long task, on standard error: one changing line on a terminal, otherwise a new line at intervals.
pub struct Progress {
    live: Option<Live>,
    every: Duration,
    told: Option<Instant>,
}

impl Progress {
    /// Sets the interval between reports: on a terminal, and otherwise.
    #[must_use]
    pub fn new(on_terminal: Duration, elsewhere: Duration) -> Progress {
        let live = Stream::Error.is_live().then(|| Live::new(Stream::Error));
        let every = if live.is_some() { on_terminal } else { elsewhere };
        Progress { live, every, told: Some(Instant::now()) }
    }

    /// Reports the first line immediately.
    #[must_use]
    pub fn at_once(self) -> Progress {
        Progress { told: None, ..self }
    }

    /// Shows the line if the interval has passed. Write errors are ignored.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told.is_some_and(|told| told.elapsed() < self.every) {
            return;
        }
        self.told = Some(Instant::now());
        let _ = match &mut self.live {
            Some(live) => live.show(&[line()]),
            None => Stream::Error.write(&(line() + "\n")),
        };
    }

    /// Prints a permanent line.
    pub fn say(&mut self, line: &str) {
        self.clear();
        let _ = Stream::Error.write(&format!("{line}\n"));
    }

    /// Removes the changing line.
    pub fn clear(&mut self) {
        if let Some(live) = &mut self.live {
            let _ = live.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_kind_or_a_dumb_one_gets_text_alone() {
        for kind in [None, Some(""), Some("dumb")] {
            assert!(!understands(kind), "{kind:?}");
        }
        assert!(understands(Some("xterm-256color")) && understands(Some("linux")));
    }

    #[test]
    fn states_have_colours_and_no_colours_leave_the_text_alone() {
        let on = Colours(true);
        assert_eq!(on.state("up"), "\x1b[32mup\x1b[0m");
        assert_eq!(on.state("in doubt"), "\x1b[33min doubt\x1b[0m");
        assert_eq!(on.state("down"), "\x1b[31mdown\x1b[0m");
        assert_eq!(on.state("starting"), "starting");
        assert_eq!(Colours::NONE.state("down"), "down");
    }
}
