//! Fits text into the available width. Colour sequences have no width.

/// Alignment of a value in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A column of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading. Without one, it belongs to the column before it.
    pub name: &'static str,
    /// Alignment of its values.
    pub side: Side,
    /// Minimum width.
    pub least: usize,
    /// Spaces before it.
    pub gap: usize,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub const fn left(name: &'static str, least: usize) -> Column {
        Column { name, side: Side::Left, least, gap: 1 }
    }

    /// A column of numbers.
    #[must_use]
    pub const fn right(name: &'static str, least: usize) -> Column {
        Column { name, side: Side::Right, least, gap: 1 }
    }

    /// The same column with two spaces before it.
    #[must_use]
    pub const fn apart(self) -> Column {
        Column { gap: 2, ..self }
    }
}

/// Rows in columns. If the columns do not fit, each row becomes a list of names and values.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A formatted table.
pub struct Laid {
    /// The column names; `None` if the rows are lists.
    pub head: Option<String>,
    /// The lines of each row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one value per column.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Formats the table in lines of at most `room` characters.
    #[must_use]
    pub fn lay(&self, room: usize) -> Laid {
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, column)| self.width(i, column)).collect();
        let gaps: usize = self.columns.iter().skip(1).map(|column| column.gap).sum();
        if widths.iter().sum::<usize>() + gaps > room {
            let rows = self.rows.iter().map(|row| self.list(row, room)).collect();
            return Laid { head: None, rows };
        }
        let head: Vec<String> = self.columns.iter().map(|column| column.name.to_owned()).collect();
        let rows = self.rows.iter().map(|row| vec![self.line(row, &widths)]).collect();
        Laid { head: Some(self.line(&head, &widths)), rows }
    }

    /// The width of column `i`. A left-aligned last column needs no minimum.
    fn width(&self, i: usize, column: &Column) -> usize {
        let ends = i + 1 == self.columns.len() && column.side == Side::Left;
        let least = if ends { 0 } else { column.least };
        let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell));
        cells.chain([width(column.name), least]).max().unwrap_or(0)
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, ((cell, column), wide)) in cells.iter().zip(&self.columns).zip(widths).enumerate() {
            let gap = " ".repeat(if i > 0 { column.gap } else { 0 });
            let pad = " ".repeat(wide.saturating_sub(width(cell)));
            line += &match column.side {
                Side::Left => format!("{gap}{cell}{pad}"),
                Side::Right => format!("{gap}{pad}{cell}"),
            };
        }
        line.trim_end().to_owned()
    }

    fn list(&self, cells: &[String], room: usize) -> Vec<String> {
        let mut items: Vec<String> = Vec::new();
        for (cell, column) in cells.iter().zip(&self.columns).filter(|(cell, _)| !cell.is_empty()) {
            match items.last_mut() {
                None => items.push(cell.clone()),
                Some(before) if column.name.is_empty() => *before += &format!(" {cell}"),
                Some(_) => items.push(format!("{} {cell}", column.name)),
            }
        }
        flow(&items, "  ", room)
    }
}

/// Number of visible characters.
#[must_use]
pub fn width(text: &str) -> usize {
    seen(text).filter(|(_, seen)| *seen).count()
}

/// `text` in at most `columns` characters; an ellipsis marks a cut.
#[must_use]
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut out, mut left) = (String::new(), columns.saturating_sub(1));
    let mut coloured = false;
    for (c, seen) in seen(text) {
        coloured |= !seen;
        if seen && left == 0 {
            break;
        }
        left -= usize::from(seen);
        out.push(c);
    }
    out + if coloured { "\x1b[0m…" } else { "…" }
}

/// Joins items in lines of at most `columns` characters, with lines after the first indented. An item longer than a
/// line is broken between words, and a word longer than a line stays whole.
#[must_use]
pub fn flow(items: &[String], gap: &str, columns: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for item in items {
        let room = columns.saturating_sub(INDENT.len()).max(1);
        let parts: Vec<&str> =
            if width(item) > room { item.split(' ').collect() } else { vec![item.as_str()] };
        for (n, part) in parts.into_iter().enumerate() {
            let gap = if n == 0 { gap } else { " " };
            if line.is_empty() && lines.is_empty() {
                line = part.to_owned();
            } else if width(&line) + gap.len() + width(part) <= columns {
                line = format!("{line}{gap}{part}");
            } else {
                lines.push(line);
                line = format!("{INDENT}{part}");
            }
        }
    }
    lines.push(line);
    lines
}

/// Breaks a sentence into lines of at most `columns` characters, as [`wrap`] does.
#[must_use]
pub fn sentence(text: &str, columns: usize) -> Vec<String> {
    wrap(text, columns).split('\n').map(str::to_owned).collect()
}

/// Text with its long lines broken between words. What goes on stands below the last column of its line, if that column
/// begins in the left half, else two characters further in than the line. A word that is longer than a line stays whole.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> String {
    let lines = text.split('\n').map(|line| wrap_line(line, columns));
    lines.collect::<Vec<_>>().join("\n")
}

fn wrap_line(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let text = text.trim_end();
    let words = text.trim_start_matches(' ');
    let mut before = text.len() - words.len();
    let hang = column_of(text, columns / 2).unwrap_or(before + 2);
    let (mut out, mut used) = (String::new(), 0);
    for word in words.split(' ') {
        // Spaces beside one another are empty words. At a break they are left out.
        let wide = width(word);
        if word.is_empty() {
            before += 1;
        } else if used > 0 && used + before + wide > columns {
            out += &format!("\n{:hang$}{word}", "");
            (used, before) = (hang + wide, 1);
        } else {
            out += &format!("{:before$}{word}", "");
            (used, before) = (used + before + wide, 1);
        }
    }
    out
}

/// Where the last column of a line begins that begins within so many characters.
fn column_of(text: &str, within: usize) -> Option<usize> {
    let visible: Vec<char> = seen(text).filter(|(_, seen)| *seen).map(|(c, _)| c).collect();
    let first = visible.iter().position(|c| *c != ' ')?;
    let begins = |n: &usize| visible[n - 2..=*n].iter().map(|c| *c == ' ').eq([true, true, false]);
    (first + 3..visible.len().min(within + 1)).rev().find(begins)
}

/// Each character, and whether it is visible: characters of colour sequences are not.
fn seen(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    let mut inside = false;
    text.chars().map(move |c| {
        let escape = inside || c == '\x1b';
        inside = escape && c != 'm';
        (c, !escape)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::left("path", 6),
            Column::left("state", 0),
            Column::right("rtt", 9).apart(),
            Column::left("to", 20).apart(),
        ]);
        let red = "\x1b[31mdown\x1b[0m".to_owned();
        table.row(vec!["wifi".into(), red, "22.25 ms".into(), "10.61.9.2:5005".into()]);
        table
    }

    #[test]
    fn a_table_with_room_has_columns_and_colours_take_none() {
        let laid = table().lay(80);
        assert_eq!(laid.head.unwrap(), "path   state        rtt  to");
        assert_eq!(laid.rows, [["wifi   \x1b[31mdown\x1b[0m    22.25 ms  10.61.9.2:5005"]]);
    }

    #[test]
    fn a_table_without_room_loses_nothing() {
        let laid = table().lay(30);
        assert!(laid.head.is_none());
        assert_eq!(
            laid.rows,
            [["wifi  state \x1b[31mdown\x1b[0m  rtt 22.25 ms", "  to 10.61.9.2:5005"]]
        );
    }

    #[test]
    fn what_is_too_long_ends_with_a_mark_and_without_colour() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefg", 6), "abcde…");
        assert_eq!(fit("ab\x1b[31mcdefg\x1b[0m", 4), "ab\x1b[31mc\x1b[0m…");
        assert_eq!(fit("ab", 0), "…");
    }

    #[test]
    fn sentences_break_between_words_and_words_that_are_longer_than_a_line_stay_whole() {
        assert_eq!(sentence("one two three", 9), ["one two", "  three"]);
        assert_eq!(sentence("one two three", 13), ["one two three"]);
        assert_eq!(sentence("a 0123456789", 6), ["a", "  0123456789"]);
        assert_eq!(sentence("  9.0 s one two", 10), ["  9.0 s", "    one", "    two"]);
        let items = ["host:5005".to_owned(), "a sentence of words".to_owned()];
        assert_eq!(flow(&items, "  ", 14), ["host:5005  a", "  sentence of", "  words"]);
    }

    #[test]
    fn long_lines_go_on_below_their_column_and_others_stay_as_they_are() {
        assert_eq!(wrap("a  b\n\none two  three", 9), "a  b\n\none two\n  three");
        assert_eq!(wrap("K*  one two three", 12), "K*  one two\n    three");
        assert_eq!(wrap("  a few: one two", 11), "  a few:\n    one two");
        let red = "\x1b[31mdown\x1b[0m";
        assert_eq!(wrap(&format!("p  {red} of late"), 10), format!("p  {red} of\n   late"));
        assert_eq!(wrap("at /a/very/long/path it is", 8), "at\n  /a/very/long/path\n  it is");
    }
}
