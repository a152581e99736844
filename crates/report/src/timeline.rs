//! What was in use when.

use plotters::style::text_anchor::{HPos, VPos};

use crate::canvas::{self, BELOW, FONT, LINE, LegendEntry, RIGHT, Sample, WIDTH};
use crate::palette::Palette;
use crate::scale::{Scale, widened};

/// A row of stretches of time, each with a label that says what it was.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Band {
    /// The row's name.
    pub name: String,
    /// From, to, label. The label gives the colour.
    pub intervals: Vec<(f64, f64, String)>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Mark {
    /// Where on the horizontal axis.
    pub x: f64,
    /// What happened, in a word or two.
    pub label: String,
}

const ROW: i32 = 64;
/// The part of the width that names of rows may take.
const WIDEST_NAME: i32 = WIDTH / 3;

/// Rows of stretches one below the other, as an SVG element.
pub(crate) fn svg(
    rows: &[Band],
    marks: &[Mark],
    x_range: (f64, f64),
    x_label: &str,
    palette: &mut Palette,
) -> String {
    let widest = rows.iter().map(|row| canvas::text_width(&row.name)).max().unwrap_or(0);
    let left = 32 + widest.min(WIDEST_NAME);
    let (low, high) = widened(crate::scale::extent([x_range.0, x_range.1].into_iter()));
    let pixels = (f64::from(left), f64::from(WIDTH - RIGHT));
    let x = Scale { low, high, pixels, log: false };
    let legend = legend(rows, palette);
    let top = 8 + canvas::legend_height(&legend, left) + canvas::marks_height(marks, &x) + FONT / 2;
    let bottom = top + ROW * rows.len() as i32;

    canvas::draw(bottom + BELOW, |canvas| {
        canvas.legend(&legend, left, 8);
        canvas.x_axis(&x, x_label, top, bottom);
        for (y, row) in (0..).map(|i| top + i * ROW).zip(rows) {
            canvas.text(&row.name, (left - 16, y + ROW / 2), (HPos::Right, VPos::Center));
            for (from, to, label) in &row.intervals {
                if from.is_nan() || to.is_nan() || *from > x.high || *to < x.low {
                    continue;
                }
                // At least two pixels, so that a short stretch can be seen.
                let (from, to) = (x.pixel(*from), x.pixel(*to));
                let corners = [(from, y + 10), (to.max(from + 2), y + ROW - 10)];
                canvas.area(corners, palette.colour(label), 0.85);
            }
        }
        canvas.marks(marks, &x, top, bottom);
    })
}

fn legend(rows: &[Band], palette: &mut Palette) -> Vec<LegendEntry> {
    let mut entries: Vec<LegendEntry> = Vec::new();
    for (_, _, label) in rows.iter().flat_map(|row| &row.intervals) {
        if !entries.iter().any(|entry| entry.name == *label) {
            let colour = palette.colour(label);
            entries.push(LegendEntry { name: label.clone(), colour, sample: Sample::Area });
        }
    }
    entries
}

// The distance of rows must leave room for their names.
const _: () = assert!(ROW >= LINE);
