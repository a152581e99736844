//! Redraws lines in place.

use std::fmt::Write as _;

use super::Size;
use super::layout::fit;

/// State of the lines drawn on the terminal.
#[derive(Default)]
pub struct Drawing {
    lines: usize,
    size: Option<Size>,
}

impl Drawing {
    /// The bytes that replace the previous lines by `lines` on a terminal of this size. The cursor ends below them.
    /// Lines that are too long are marked as cut, and excess lines are replaced by their number.
    pub fn draw(&mut self, lines: &[String], size: Size) -> String {
        let mut out = String::new();
        if lines.is_empty() && self.lines == 0 {
            return out;
        }
        if self.lines > 0 {
            // After a resize the position of the previous lines is unknown: some terminals rewrap them, others cut
            // them.
            if self.size.is_some_and(|before| before != size) {
                out.push_str("\x1b[H\x1b[2J");
            } else {
                let _ = write!(out, "\r\x1b[{}A", self.lines);
            }
        }
        // Keep the last column free because some terminals wrap as soon as it is written, and the last row for the
        // cursor.
        let columns = size.columns.saturating_sub(1).max(1);
        let rows = size.rows.saturating_sub(1).max(1);
        let shown = if lines.len() > rows { rows - 1 } else { lines.len() };
        for line in &lines[..shown] {
            let _ = writeln!(out, "\x1b[2K{}\r", fit(line, columns));
        }
        let left = lines.len() - shown;
        if left > 0 {
            let _ = writeln!(out, "\x1b[2K{}\r", fit(&format!("… {left} lines more"), columns));
        }
        out.push_str("\x1b[J");
        self.lines = shown + usize::from(left > 0);
        self.size = Some(size);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(n: usize) -> std::num::NonZeroU16 {
        (n as u16).try_into().unwrap()
    }

    /// A terminal with a drawing.
    struct Screen {
        terminal: vt100::Parser,
        drawing: Drawing,
        size: Size,
    }

    impl Screen {
        fn new(columns: usize, rows: usize) -> Screen {
            let size = Size { columns, rows };
            let mut terminal = vt100::Parser::new(cells(rows), cells(columns), 100);
            terminal.process(b"before\r\n");
            Screen { terminal, drawing: Drawing::default(), size }
        }

        fn draw(&mut self, lines: &[&str]) -> String {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let bytes = self.drawing.draw(&lines, self.size);
            // The terminal driver translates line feeds.
            self.terminal.process(bytes.replace('\n', "\r\n").as_bytes());
            self.terminal.screen().contents()
        }

        fn resize(&mut self, columns: usize, rows: usize) {
            self.size = Size { columns, rows };
            self.terminal.screen_mut().set_size(cells(rows), cells(columns));
        }
    }

    #[test]
    fn lines_take_the_place_of_former_lines_however_long_they_are() {
        let mut screen = Screen::new(20, 6);
        let long = "x".repeat(50);
        for _ in 0..10 {
            screen.draw(&[&long, "second", &long]);
        }
        let cut = format!("{}…", "x".repeat(18));
        assert_eq!(screen.draw(&[&long, "2nd"]), format!("before\n{cut}\n2nd"));
        assert_eq!(screen.draw(&["one"]), "before\none");
        assert_eq!(screen.draw(&[]), "before");
        assert_eq!(screen.draw(&["again"]), "before\nagain");
    }

    #[test]
    fn more_lines_than_rows_end_with_a_mark() {
        let mut screen = Screen::new(20, 5);
        for _ in 0..3 {
            screen.draw(&["a", "b", "c", "d", "e", "f"]);
        }
        assert_eq!(screen.draw(&["a", "b", "c", "d", "e", "f"]), "a\nb\nc\n… 3 lines more");
        assert_eq!(screen.draw(&["a", "b", "c", "d"]), "a\nb\nc\nd");
    }

    #[test]
    fn a_terminal_of_another_size_shows_the_lines_once() {
        let mut screen = Screen::new(40, 6);
        let line = "y".repeat(30);
        screen.draw(&[&line, &line]);
        screen.resize(20, 6);
        let cut = format!("{}…", "y".repeat(18));
        assert_eq!(screen.draw(&[&line, &line]), format!("{cut}\n{cut}"));
        screen.resize(60, 9);
        assert_eq!(screen.draw(&[&line, &line]), format!("{line}\n{line}"));
        screen.resize(1, 1);
        screen.draw(&[&line, &line]);
    }
}
