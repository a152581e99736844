//! Shared by all figures: text, axes, legend, marks. All lengths are in pixels of the drawing. The page shows a drawing
//! at about half its size, so the whole pixels of the SVG backend are fine enough.
//!
//! Each figure is drawn at two widths with the same font size, so that a phone need not shrink it.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{
    DashedPathElement, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontFamily, FontStyle, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle,
};

use crate::palette::{GRID, INK};
use crate::scale::Scale;
use crate::symbols;
use crate::timeline::Mark;

/// Width of a figure on a screen and on paper.
pub(crate) const WIDE: i32 = 1_600;
/// Width of a figure on a phone.
pub(crate) const NARROW: i32 = 800;
/// Font size.
pub(crate) const FONT: i32 = 30;
/// Distance between two lines of text.
pub(crate) const LINE: i32 = 44;
/// Space at the right, for half of the last tick's label.
pub(crate) const RIGHT: i32 = 40;

const FAMILY: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
/// The backend divides a font's size by this.
const BACKEND_SCALE: f64 = 1.24;
const LEGEND_SAMPLE: i32 = 56;
/// Width that a tick of the horizontal axis requires, including its label.
const TICK: f64 = 175.0;
/// A horizontal axis with fewer ticks is hard to read.
const FEWEST_TICKS: usize = 3;

/// A drawing under construction.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    /// Its width.
    pub(crate) width: i32,
}

/// Appearance of a series or a role in the legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LegendEntry {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    pub(crate) sample: Sample,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    Line,
    Dashed,
    Dot,
    Area,
    Shade,
    Above,
}

/// Draws a figure of this size as SVG.
pub(crate) fn draw(width: i32, height: i32, figure: impl FnOnce(&Canvas)) -> String {
    let mut svg = String::new();
    {
        let size = (width as u32, height.max(1) as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let canvas = Canvas { area, width };
        figure(&canvas);
        canvas.area.present().expect("a string takes what is written to it");
    }
    symbols::in_drawing(&svg, FONT)
}

impl Canvas<'_> {
    pub(crate) fn add<E>(&self, element: &E)
    where
        for<'b> &'b E: PointCollection<'b, (i32, i32)>,
        for<'b> E: Drawable<SVGBackend<'b>>,
    {
        self.area.draw(element).expect("a string takes what is written to it");
    }

    pub(crate) fn text(&self, text: &str, at: (i32, i32), anchor: (HPos, VPos)) {
        self.add(&Text::new(text.to_owned(), at, style(anchor, FontStyle::Normal)));
    }

    pub(crate) fn title(&self, lines: &[String]) {
        for (y, line) in (LINE / 2 + 4..).step_by(LINE as usize).zip(lines) {
            let style = style((HPos::Left, VPos::Center), FontStyle::Bold);
            self.add(&Text::new(line.clone(), (16, y), style));
        }
    }

    /// Draws the name of the vertical axis: lines that read upwards next to each other, centred at `y`.
    pub(crate) fn y_name(&self, lines: &[String], y: i32) {
        for (x, line) in (LINE / 2..).step_by(LINE as usize).zip(lines) {
            let font = FontFamily::Name(FAMILY).into_font().resize(f64::from(FONT) * BACKEND_SCALE);
            let style = TextStyle::from(font.transform(FontTransform::Rotate270))
                .color(&INK)
                .pos(Pos::new(HPos::Center, VPos::Center));
            self.add(&Text::new(line.clone(), (x, y), style));
        }
    }

    pub(crate) fn line(&self, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) {
        self.add(&PathElement::new(points, stroke(colour, width)));
    }

    pub(crate) fn dashed(&self, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) {
        self.add(&DashedPathElement::new(points, 14, 10, stroke(colour, width)));
    }

    pub(crate) fn area(&self, corners: [(i32, i32); 2], colour: RGBColor, opacity: f64) {
        self.add(&Rectangle::new(corners, colour.mix(opacity).filled()));
    }

    pub(crate) fn dot(&self, at: (i32, i32), colour: RGBColor) {
        self.add(&plotters::element::Circle::new(at, 8, colour.filled()));
    }

    /// Draws a triangle whose tip touches `at` from below: the value is further up.
    pub(crate) fn above(&self, at: (i32, i32), colour: RGBColor) {
        let (x, y) = at;
        let corners = vec![(x, y), (x - ABOVE / 2, y + ABOVE), (x + ABOVE / 2, y + ABOVE)];
        self.add(&Polygon::new(corners, colour.filled()));
    }

    /// Draws the horizontal axis below `bottom`, with grid lines up to `top`.
    pub(crate) fn x_axis(&self, x: &Scale, name: &[String], top: i32, bottom: i32) {
        for (value, label) in x_ticks(x) {
            let at = x.pixel(value);
            self.line(vec![(at, top), (at, bottom)], GRID, 2);
            self.text(&label, (at, bottom + 12), (HPos::Center, VPos::Top));
        }
        let (left, right) = (x.pixel(x.low), x.pixel(x.high));
        self.line(vec![(left, bottom), (right, bottom)], INK, 2);
        for (y, line) in (bottom + 16 + LINE..).step_by(LINE as usize).zip(name) {
            self.text(line, ((left + right) / 2, y), (HPos::Center, VPos::Top));
        }
    }

    /// Draws the legend from the left edge `left`, its first line at `top`.
    pub(crate) fn legend(&self, entries: &[LegendEntry], left: i32, top: i32) {
        for place in legend_places(entries, left, self.width) {
            let (entry, x) = (place.entry, place.x);
            let y = top + place.row * LINE + LINE / 2;
            let end = x + LEGEND_SAMPLE - 12;
            match entry.sample {
                Sample::Line => self.line(vec![(x, y), (end, y)], entry.colour, 5),
                Sample::Dashed => self.dashed(vec![(x, y), (end, y)], entry.colour, 4),
                Sample::Dot => self.dot(((x + end) / 2, y), entry.colour),
                Sample::Area => self.area([(x, y - 12), (end, y + 12)], entry.colour, AREA),
                Sample::Shade => self.area([(x, y - 12), (end, y + 12)], entry.colour, SHADE),
                Sample::Above => self.above(((x + end) / 2, y - ABOVE / 2), entry.colour),
            }
            for (y, line) in (y..).step_by(LINE as usize).zip(&place.lines) {
                self.text(line, (x + LEGEND_SAMPLE, y), (HPos::Left, VPos::Center));
            }
        }
    }

    /// Draws vertical lines with their labels above `top`, in as many rows as necessary to separate them.
    pub(crate) fn marks(&self, marks: &[Mark], x: &Scale, top: i32, bottom: i32) {
        for (mark, place) in mark_places(marks, x, self.width) {
            let at = x.pixel(mark.x);
            let y = top - place.row * LINE - LINE / 2;
            self.dashed(vec![(at, y - FONT / 2), (at, bottom)], INK, 2);
            self.text(&mark.label, (place.left, y), (HPos::Left, VPos::Center));
        }
    }
}

/// Size of the triangle that marks values above the axis.
pub(crate) const ABOVE: i32 = 22;
/// Opacity of an interval in a timeline.
pub(crate) const AREA: f64 = 0.85;
/// Opacity of a shaded background.
pub(crate) const SHADE: f64 = 0.16;

fn stroke(colour: RGBColor, width: u32) -> ShapeStyle {
    colour.stroke_width(width)
}

fn style(anchor: (HPos, VPos), weight: FontStyle) -> TextStyle<'static> {
    let font = FontFamily::Name(FAMILY).into_font().resize(f64::from(FONT) * BACKEND_SCALE);
    TextStyle::from(font.style(weight)).color(&INK).pos(Pos::new(anchor.0, anchor.1))
}

/// Ticks of the horizontal axis: as few as possible at a spacing that fits any label; but at least three, if short
/// labels leave space for them.
fn x_ticks(x: &Scale) -> Vec<(f64, String)> {
    let roomy = (x.pixels.1 - x.pixels.0) / TICK;
    let apart = |ticks: &Vec<(f64, String)>| {
        let widest = ticks.iter().map(|(_, label)| text_width(label)).max().unwrap_or(0);
        ticks.windows(2).all(|pair| x.pixel(pair[1].0) - x.pixel(pair[0].0) >= widest + FONT)
    };
    let counts = [8.0, 7.0, 6.0, 5.0, 4.0].map(|count| roomy.max(count));
    let choices = counts.into_iter().chain([roomy]).map(|count| x.ticks(count)).filter(apart);
    // If several are equal, the last one, which has the fewest ticks.
    choices.max_by_key(|ticks| ticks.len().min(FEWEST_TICKS)).unwrap_or_else(|| x.ticks(roomy))
}

/// Space below a plot for tick labels and the name of the axis.
pub(crate) fn below(x_name: &[String]) -> i32 {
    (1 + x_name.len() as i32) * LINE + 16
}

/// Approximate width of a character.
const CHAR: f64 = FONT as f64 * 0.56;

/// Approximate width of a text. The reader's font is unknown; this uses the mean of common fonts.
pub(crate) fn text_width(text: &str) -> i32 {
    (text.chars().count() as f64 * CHAR) as i32
}

/// Breaks a text into lines of approximately this width, between words if possible.
pub(crate) fn lines(text: &str, width: i32) -> Vec<String> {
    let most = (f64::from(width) / CHAR).max(1.0) as usize;
    let mut lines: Vec<String> = Vec::new();
    let mut room = 0;
    for word in text.split_whitespace() {
        let chars: Vec<char> = word.chars().collect();
        // Each part of a word that is longer than a line fills a line, except the last part.
        for part in chars.chunks(most) {
            match lines.last_mut().filter(|_| part.len() < room) {
                Some(line) => {
                    line.push(' ');
                    line.extend(part);
                    room -= part.len() + 1;
                }
                None => {
                    lines.push(part.iter().collect());
                    room = most - part.len();
                }
            }
        }
    }
    lines
}

/// Position of a legend entry, and its name split into lines.
struct LegendPlace<'e> {
    entry: &'e LegendEntry,
    lines: Vec<String>,
    x: i32,
    row: i32,
}

/// Positions of the entries in a figure of this width.
fn legend_places(entries: &[LegendEntry], left: i32, width: i32) -> Vec<LegendPlace<'_>> {
    let (mut x, mut row, mut next) = (left, 0, 1);
    let mut places = Vec::new();
    for entry in entries {
        let lines = lines(&entry.name, width - RIGHT - left - LEGEND_SAMPLE);
        let widest = lines.iter().map(|line| text_width(line)).max().unwrap_or(0);
        let taken = LEGEND_SAMPLE + widest + FONT;
        if x > left && x + taken > width - RIGHT + FONT {
            (x, row) = (left, next);
        }
        next = next.max(row + lines.len().max(1) as i32);
        places.push(LegendPlace { entry, lines, x, row });
        x += taken;
    }
    places
}

/// Height of the legend.
pub(crate) fn legend_height(entries: &[LegendEntry], left: i32, width: i32) -> i32 {
    let places = legend_places(entries, left, width);
    places.iter().map(|place| place.row + place.lines.len().max(1) as i32).max().unwrap_or(0) * LINE
}

/// Position of a mark's label: next to its line, in a row counted upwards from the plot.
#[derive(Clone, Copy)]
struct MarkPlace {
    left: i32,
    right: i32,
    row: i32,
}

const MARK_GAP: i32 = 8;

/// Marks in the range, placed so that labels cover neither each other nor a line.
///
/// A label is to the right of its line, and rows are assigned from right to left: a line from an upper row then only
/// passes labels that begin further right. A label without space at the right is to the left of its line; these labels
/// are assigned last, above the others.
fn mark_places<'m>(marks: &'m [Mark], x: &Scale, figure: i32) -> Vec<(&'m Mark, MarkPlace)> {
    let place = |mark: &'m Mark| {
        let (at, width) = (x.pixel(mark.x), text_width(&mark.label));
        let flipped = at + MARK_GAP + width > figure;
        let left = if flipped { (at - MARK_GAP - width).max(0) } else { at + MARK_GAP };
        (flipped, mark, MarkPlace { left, right: left + width, row: 0 })
    };
    let within = marks.iter().filter(|mark| mark.x >= x.low && mark.x <= x.high);
    let mut shown: Vec<_> = within.map(place).collect();
    shown.sort_by(|(flip_a, a, _), (flip_b, b, _)| {
        let by_x = if *flip_a { a.x.total_cmp(&b.x) } else { b.x.total_cmp(&a.x) };
        flip_a.cmp(flip_b).then(by_x)
    });
    let mut places: Vec<(&Mark, MarkPlace)> = Vec::new();
    for (_, mark, mut place) in shown {
        let overlaps = |(_, other): &&(&Mark, MarkPlace)| {
            other.left < place.right + FONT && place.left < other.right + FONT
        };
        let below = places.iter().filter(overlaps).map(|(_, other)| other.row).max();
        place.row = below.map_or(0, |row| row + 1);
        places.push((mark, place));
    }
    places
}

/// Height of the labels of the marks.
pub(crate) fn marks_height(marks: &[Mark], x: &Scale, figure: i32) -> i32 {
    mark_places(marks, x, figure).iter().map(|(_, place)| (place.row + 1) * LINE).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_marks_that_would_overlap_go_to_different_rows() {
        let mark = |x, label: &str| Mark { x, label: label.to_owned() };
        let marks = [
            mark(20.0, "wifi back"),
            mark(10.0, "wifi silent"),
            mark(10.2, "handover"),
            mark(99.0, "outside"),
        ];
        let x = Scale { low: 0.0, high: 30.0, pixels: (100.0, 1_500.0), log: false };
        let rows: Vec<_> = mark_places(&marks, &x, WIDE)
            .into_iter()
            .map(|(mark, place)| (mark.label.as_str(), place.row))
            .collect();
        assert_eq!(rows, [("wifi back", 0), ("handover", 0), ("wifi silent", 1)]);
        assert_eq!(marks_height(&marks, &x, WIDE), 2 * LINE);
    }

    #[test]
    fn a_narrow_axis_has_three_ticks_whose_labels_stand_apart() {
        let small = [(0.5, 20.0), (0.0, 9.4), (0.01, 0.095), (3.0, 12.9), (0.1, 1.4)];
        let large = [(0.0, 30.0), (2e5, 9.7e5)];
        for (low, high) in small.into_iter().chain(large) {
            let x = Scale { low, high, pixels: (230.0, 760.0), log: false };
            let ticks = x_ticks(&x);
            assert!((3..=7).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            labels_are_apart(&x, &ticks);
        }
        let decades = Scale { low: -3.0, high: 3.0, pixels: (230.0, 760.0), log: true };
        labels_are_apart(&decades, &x_ticks(&decades));
    }

    #[test]
    fn labels_without_room_for_three_are_fewer_rather_than_close() {
        let x = Scale { low: 0.0, high: 9.7e5, pixels: (400.0, 760.0), log: false };
        let ticks = x_ticks(&x);
        assert_eq!(ticks.len(), 2, "{ticks:?}");
        labels_are_apart(&x, &ticks);
    }

    fn labels_are_apart(x: &Scale, ticks: &[(f64, String)]) {
        for pair in ticks.windows(2) {
            let half = |tick: &(f64, String)| text_width(&tick.1) / 2;
            let (end, start) =
                (x.pixel(pair[0].0) + half(&pair[0]), x.pixel(pair[1].0) - half(&pair[1]));
            assert!(end < start, "{pair:?}");
        }
    }

    #[test]
    fn a_label_without_room_at_the_right_stands_at_the_left_of_its_line() {
        let marks = [29.0, 29.9].map(|x| Mark { x, label: "a long label".to_owned() });
        let x = Scale { low: 0.0, high: 30.0, pixels: (100.0, 1_500.0), log: false };
        for (mark, place) in mark_places(&marks, &x, WIDE) {
            assert!(place.right <= x.pixel(mark.x) && place.left >= 0);
        }
        assert_eq!(marks_height(&marks, &x, WIDE), 2 * LINE);
    }

    #[test]
    fn a_long_legend_wraps_within_the_figure() {
        let entry = LegendEntry {
            name: "a rather long name of a series".to_owned(),
            colour: INK,
            sample: Sample::Line,
        };
        let entries = vec![entry; 5];
        let rows = |width| -> Vec<_> {
            legend_places(&entries, 100, width).iter().map(|place| place.row).collect()
        };
        assert_eq!(rows(WIDE), [0, 0, 1, 1, 2]);
        assert_eq!(legend_height(&entries, 100, WIDE), 3 * LINE);
        assert_eq!(rows(NARROW), [0, 1, 2, 3, 4]);
        // Too narrow for the name, which takes two rows.
        assert_eq!(rows(500), [0, 2, 4, 6, 8]);
        assert_eq!(legend_height(&entries, 100, 500), 10 * LINE);
    }

    #[test]
    fn a_text_breaks_between_words_and_only_else_within_one() {
        let width = |chars: f64| (chars * CHAR).ceil() as i32;
        assert_eq!(lines("one two three", width(7.0)), ["one two", "three"]);
        assert_eq!(lines("one two three", width(20.0)), ["one two three"]);
        assert_eq!(lines("a salsanofig16", width(5.0)), ["a", "salsa", "nofig", "16"]);
        assert_eq!(lines("", 100), [""; 0]);
        assert_eq!(lines("ab", 0), ["a", "b"]);
    }
}
