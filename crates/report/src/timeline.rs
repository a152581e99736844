//! Timelines: which item was in use at which time.

use plotters::style::text_anchor::{HPos, VPos};

use crate::canvas::{self, AREA, Canvas, FONT, LINE, LegendEntry, RIGHT, Sample};
use crate::csv::csv;
use crate::palette::Palette;
use crate::scale::{Scale, extent, short, widened};

/// A row of time intervals, each with a label.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Band {
    /// The row's name.
    pub name: String,
    /// Start, end and label of each interval. The label determines the colour.
    pub intervals: Vec<(f64, f64, String)>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Mark {
    /// Position on the horizontal axis.
    pub x: f64,
    /// The event in one or two words.
    pub label: String,
}

/// Maximum number of intervals per row that the description lists.
const TOLD: usize = 12;

/// Rows of intervals, one below another. Unused fields may come from `Default`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Timeline {
    /// Heading of the figure.
    pub title: String,
    /// Quantity and unit of the horizontal axis.
    pub x_label: String,
    /// Range of the horizontal axis.
    pub x_range: (f64, f64),
    /// The rows, from top to bottom.
    pub rows: Vec<Band>,
    /// Events.
    pub marks: Vec<Mark>,
}

impl Timeline {
    /// The intervals as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        let rows: Vec<[String; 4]> = self
            .rows
            .iter()
            .flat_map(|row| {
                let cells = |(from, to, label): &(f64, f64, String)| {
                    [row.name.clone(), from.to_string(), to.to_string(), label.clone()]
                };
                row.intervals.iter().map(cells)
            })
            .collect();
        csv(&["row", "from", "to", "what"], &rows)
    }

    /// A description for readers who cannot see the figure: each row with its intervals, if they are few.
    pub(crate) fn in_words(&self) -> String {
        let mut words = format!("{}, over {}", self.title, self.x_label);
        for row in &self.rows {
            let told = |(from, to, label): &(f64, f64, String)| {
                format!("{label} from {} to {}", short(*from), short(*to))
            };
            words += &match row.intervals.len() {
                0..=TOLD => {
                    let told: Vec<_> = row.intervals.iter().map(told).collect();
                    format!("; {}: {}", row.name, told.join(", "))
                }
                many => format!("; {}: {many} stretches", row.name),
            };
        }
        words + "."
    }

    /// The figure as an SVG element of this width.
    pub(crate) fn svg_with(&self, palette: &mut Palette, width: i32) -> String {
        let Timeline { rows, marks, x_range, .. } = self;
        let names: Vec<Vec<String>> =
            rows.iter().map(|row| canvas::lines(&row.name, width / 3)).collect();
        let widest = names.iter().flatten().map(|line| canvas::text_width(line)).max().unwrap_or(0);
        let left = 32 + widest;
        let (low, high) = widened(extent([x_range.0, x_range.1].into_iter()));
        let pixels = (f64::from(left), f64::from(width - RIGHT));
        let x = Scale { low, high, pixels, log: false };
        let title = canvas::lines(&self.title, width - RIGHT);
        let x_name = canvas::lines(&self.x_label, width - RIGHT - left);
        let legend = legend(rows, palette);
        let head = if title.is_empty() { 8 } else { LINE * title.len() as i32 + 16 };
        let legend_end = head + canvas::legend_height(&legend, left, width);
        let top = legend_end + canvas::marks_height(marks, &x, width) + FONT / 2;
        let row_height =
            names.iter().map(|lines| LINE * lines.len() as i32 + 20).max().unwrap_or(0);
        let bottom = top + row_height * rows.len() as i32;

        canvas::draw(width, bottom + canvas::below(&x_name), |canvas| {
            canvas.title(&title);
            canvas.legend(&legend, left, head);
            canvas.x_axis(&x, &x_name, top, bottom);
            let places = (top..).step_by(row_height.max(1) as usize);
            for ((y, row), name) in places.zip(rows).zip(&names) {
                draw_row(canvas, palette, row, name, &x, (y, y + row_height));
            }
            canvas.marks(marks, &x, top, bottom);
        })
    }
}

/// Draws the name and the intervals of a row, between two heights.
fn draw_row(
    canvas: &Canvas,
    palette: &mut Palette,
    row: &Band,
    name: &[String],
    x: &Scale,
    (top, bottom): (i32, i32),
) {
    let first = (top + bottom - LINE * (name.len() as i32 - 1)) / 2;
    for (y, line) in (first..).step_by(LINE as usize).zip(name) {
        canvas.text(line, (x.pixel(x.low) - 16, y), (HPos::Right, VPos::Center));
    }
    for (from, to, label) in &row.intervals {
        if from.is_nan() || to.is_nan() || *from > x.high || *to < x.low {
            continue;
        }
        // At least two pixels wide, so that a short interval remains visible.
        let (from, to) = (x.pixel(*from), x.pixel(*to));
        let corners = [(from, top + 10), (to.max(from + 2), bottom - 10)];
        canvas.area(corners, palette.colour(label), AREA);
    }
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
