//! Tables as CSV.

use core::fmt::Write;

/// A table as CSV (RFC 4180, but with line feeds only). Fields with commas, quotes or line breaks are quoted.
#[must_use]
pub fn csv<H: AsRef<str>, R: AsRef<[C]>, C: AsRef<str>>(header: &[H], rows: &[R]) -> String {
    let mut out = String::new();
    push_row(&mut out, header);
    for row in rows {
        push_row(&mut out, row.as_ref());
    }
    out
}

fn push_row<C: AsRef<str>>(out: &mut String, cells: &[C]) {
    for (i, cell) in cells.iter().enumerate() {
        let (comma, cell) = (if i == 0 { "" } else { "," }, cell.as_ref());
        // Writing to a string cannot fail.
        let _ = if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "{comma}\"{}\"", cell.replace('"', "\"\""))
        } else {
            write!(out, "{comma}{cell}")
        };
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_would_break_the_table_are_quoted() {
        let rows = [["plain", "1,5"], ["say \"so\"", "two\nlines"]];
        assert_eq!(
            csv(&["a", "b"], &rows),
            "a,b\nplain,\"1,5\"\n\"say \"\"so\"\"\",\"two\nlines\"\n"
        );
    }
}
