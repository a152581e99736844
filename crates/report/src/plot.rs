//! Diagrams of values over an axis.

use std::collections::BTreeSet;

use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

use crate::canvas::{self, ABOVE, Canvas, FONT, LINE, LegendEntry, RIGHT, SHADE, Sample, WIDE};
use crate::csv::csv;
use crate::palette::{GRID, INK, Palette};
use crate::scale::{Scale, extent, is_drawable, short, widened};
use crate::timeline::{Band, Mark};

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Style {
    /// Points joined by straight lines.
    #[default]
    Line,
    /// Each value holds until the next point.
    Step,
    /// Only points.
    Dots,
    /// A dashed line, for an expected or imposed value.
    Dashed,
}

/// Named points. A point that is not finite interrupts the line.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Determines the colour: all series of a page with the same role have the same colour.
    pub role: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
}

impl Series {
    /// A series whose role is its name.
    #[must_use]
    pub fn new(name: impl Into<String>, style: Style, points: Vec<(f64, f64)>) -> Series {
        let name = name.into();
        Series { role: name.clone(), name, points, style }
    }

    /// The same series in the colour of `role`.
    #[must_use]
    pub fn role(self, role: impl Into<String>) -> Series {
        Series { role: role.into(), ..self }
    }
}

/// A diagram of series. Unused fields may come from `Default`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Plot {
    /// Heading within the figure.
    pub title: String,
    /// Quantity and unit of the horizontal axis.
    pub x_label: String,
    /// Quantity and unit of the vertical axis.
    pub y_label: String,
    /// The series; the last one is drawn on top.
    pub series: Vec<Series>,
    /// Shaded intervals of the horizontal axis, in the colour of their label if it is already a known role, else grey.
    pub bands: Vec<Band>,
    /// Events.
    pub marks: Vec<Mark>,
    /// The vertical axis begins at zero, or below if there are such values.
    pub y_from_zero: bool,
    /// Upper end of the vertical axis. Larger values are drawn as triangles at this border, and the legend states their
    /// maximum.
    pub y_max: Option<f64>,
    /// Range of the horizontal axis; by default, the range of the points.
    pub x_range: Option<(f64, f64)>,
    /// The horizontal axis is logarithmic; values that are not positive are omitted.
    pub x_log: bool,
    /// The vertical axis is logarithmic; `y_from_zero` then has no effect.
    pub y_log: bool,
}

/// Height of the plotting area.
const HEIGHT: i32 = 420;

impl Plot {
    /// The figure as an SVG element, with its own colours.
    #[must_use]
    pub fn svg(&self) -> String {
        self.svg_with(&mut Palette::default(), WIDE)
    }

    /// The figure as an SVG element of this width, with the colours of a page.
    pub(crate) fn svg_with(&self, palette: &mut Palette, width: i32) -> String {
        if self.x_log || self.y_log {
            self.logarithms().draw(palette, width)
        } else {
            self.draw(palette, width)
        }
    }

    /// The points as CSV: one row each, with the names of the axes as columns.
    #[must_use]
    pub fn csv(&self) -> String {
        let rows: Vec<[String; 3]> = self
            .series
            .iter()
            .flat_map(|series| {
                let drawn = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
                drawn.map(|(x, y)| [series.name.clone(), x.to_string(), y.to_string()])
            })
            .collect();
        csv(&["series", self.x_label.as_str(), self.y_label.as_str()], &rows)
    }

    /// A description for readers who cannot see the figure: the axes, and the range of each series.
    pub(crate) fn in_words(&self) -> String {
        let mut words = format!("{}: {} against {}", self.title, self.y_label, self.x_label);
        for series in &self.series {
            let values = series.points.iter().map(|(_, y)| *y);
            words += &match extent(values) {
                Some((low, high)) => {
                    format!("; {} from {} to {}", series.name, short(low), short(high))
                }
                None => format!("; {} without values", series.name),
            };
        }
        words + "."
    }

    /// The same figure with decimal logarithms of the values on logarithmic axes.
    fn logarithms(&self) -> Plot {
        let on = |log: bool| move |value: f64| if log { value.log10() } else { value };
        let (x, y) = (on(self.x_log), on(self.y_log));
        let mut plot = self.clone();
        plot.y_from_zero &= !self.y_log;
        plot.x_range = self.x_range.map(|(from, to)| (x(from), x(to)));
        plot.y_max = self.y_max.map(y);
        for point in plot.series.iter_mut().flat_map(|series| &mut series.points) {
            *point = (x(point.0), y(point.1));
        }
        for (from, to, _) in plot.bands.iter_mut().flat_map(|band| &mut band.intervals) {
            (*from, *to) = (x(*from), x(*to));
        }
        for mark in &mut plot.marks {
            mark.x = x(mark.x);
        }
        plot
    }

    fn draw(&self, palette: &mut Palette, width: i32) -> String {
        let (low, high) = self.y_range();
        let legend = self.legend(palette, high);
        let unplaced = Scale { low, high, pixels: (0.0, 0.0), log: self.y_log };
        let y_ticks = unplaced.ticks(5.0);
        let widest = y_ticks.iter().map(|(_, label)| canvas::text_width(label)).max().unwrap_or(0);
        let y_name = canvas::lines(&self.y_label, HEIGHT);
        let left = LINE * y_name.len().max(1) as i32 + 28 + widest;
        let (x_low, x_high) = widened(self.x_range.or_else(|| self.x_extent()));
        let pixels = (f64::from(left), f64::from(width - RIGHT));
        let x = Scale { low: x_low, high: x_high, pixels, log: self.x_log };

        let title = canvas::lines(&self.title, width - RIGHT);
        let x_name = canvas::lines(&self.x_label, width - RIGHT - left);
        let head = if title.is_empty() { 8 } else { LINE * title.len() as i32 + 16 };
        let legend_end = head + canvas::legend_height(&legend, left, width);
        let top = legend_end + canvas::marks_height(&self.marks, &x, width) + FONT / 2;
        let bottom = top + HEIGHT;
        let pixels = (f64::from(bottom), f64::from(top));
        let y = Scale { low, high, pixels, log: self.y_log };

        canvas::draw(width, bottom + canvas::below(&x_name), |canvas| {
            canvas.title(&title);
            canvas.legend(&legend, left, head);
            self.draw_bands(canvas, palette, &x, (top, bottom));
            canvas.x_axis(&x, &x_name, top, bottom);
            for (value, label) in y_ticks {
                let at = y.pixel(value);
                let colour = if value == low { INK } else { GRID };
                canvas.line(vec![(left, at), (width - RIGHT, at)], colour, 2);
                canvas.text(&label, (left - 14, at), (HPos::Right, VPos::Center));
            }
            canvas.y_name(&y_name, (top + bottom) / 2);
            canvas.marks(&self.marks, &x, top, bottom);
            for series in &self.series {
                draw_series(canvas, palette, series, &x, &y);
            }
        })
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.series.iter().flat_map(|series| series.points.iter().copied());
        all.filter(|(x, y)| is_drawable(*x) && is_drawable(*y))
    }

    fn x_extent(&self) -> Option<(f64, f64)> {
        let ends = self.bands.iter().flat_map(|band| &band.intervals);
        extent(self.points().map(|(x, _)| x).chain(ends.flat_map(|(from, to, _)| [*from, *to])))
    }

    /// Range of the vertical axis, with a margin around the values.
    fn y_range(&self) -> (f64, f64) {
        let max = self.y_max.filter(|max| is_drawable(*max));
        let shown = self.points().map(|(_, y)| max.map_or(y, |max| y.min(max)));
        let (mut low, mut high) = widened(extent(shown));
        let room = 0.06 * (high - low);
        if self.y_from_zero {
            (low, high) = (low.min(0.0), high.max(0.0) + room);
        } else {
            (low, high) = (low - room, high + room);
        }
        let high = max.unwrap_or(high);
        if high > low { (low, high) } else { widened(Some((high, high))) }
    }

    /// The highest value, if it is above the end of the axis.
    fn clipped(&self, high: f64) -> Option<f64> {
        let above = self.points().map(|(_, y)| y).filter(|y| *y > high);
        above.max_by(f64::total_cmp).map(|y| if self.y_log { 10f64.powf(y) } else { y })
    }

    fn legend(&self, palette: &mut Palette, high: f64) -> Vec<LegendEntry> {
        let mut entries: Vec<LegendEntry> = Vec::new();
        for series in &self.series {
            let sample = match series.style {
                Style::Line | Style::Step => Sample::Line,
                Style::Dots => Sample::Dot,
                Style::Dashed => Sample::Dashed,
            };
            let colour = palette.colour(&series.role);
            entries.push(LegendEntry { name: series.name.clone(), colour, sample });
        }
        for (_, _, label) in self.bands.iter().flat_map(|band| &band.intervals) {
            let colour = palette.known(label);
            let entry = LegendEntry { name: label.clone(), colour, sample: Sample::Shade };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        if let Some(highest) = self.clipped(high) {
            let name = format!("above the axis, up to {}", short(highest));
            entries.push(LegendEntry { name, colour: INK, sample: Sample::Above });
        }
        entries
    }

    fn draw_bands(&self, canvas: &Canvas, palette: &Palette, x: &Scale, ys: (i32, i32)) {
        for (from, to, label) in self.bands.iter().flat_map(|band| &band.intervals) {
            if *from <= x.high && *to >= x.low {
                let corners = [(x.pixel(*from), ys.0), (x.pixel(*to), ys.1)];
                canvas.area(corners, palette.known(label), SHADE);
            }
        }
    }
}

fn draw_series(canvas: &Canvas, palette: &mut Palette, series: &Series, x: &Scale, y: &Scale) {
    let colour = palette.colour(&series.role);
    let drawable = |(a, b): &(f64, f64)| is_drawable(*b) && *a >= x.low && *a <= x.high;
    for run in series.points.split(|point| !drawable(point)).filter(|run| !run.is_empty()) {
        let place = |(a, b): &(f64, f64)| (x.pixel(*a), y.pixel(*b));
        let above: Vec<_> = run.iter().filter(|(_, b)| *b > y.high).map(place).collect();
        draw_above(canvas, &above, colour);
        let pixels: Vec<_> = run.iter().map(place).collect();
        match (series.style, &pixels[..]) {
            (Style::Dots, _) => {
                draw_dots(canvas, run.iter().filter(|(_, b)| *b <= y.high).map(place), colour)
            }
            // A line of one point would be invisible.
            (_, [only]) => canvas.dot(*only, colour),
            (Style::Line, _) => canvas.line(pixels, colour, 4),
            (Style::Dashed, _) => canvas.dashed(pixels, colour, 4),
            (Style::Step, _) => canvas.line(stairs(&pixels), colour, 4),
        }
    }
}

/// Draws dots, only one per position.
fn draw_dots(canvas: &Canvas, places: impl Iterator<Item = (i32, i32)>, colour: RGBColor) {
    for at in places.collect::<BTreeSet<_>>() {
        canvas.dot(at, colour);
    }
}

/// Triangles at the upper border, as many as fit next to each other.
fn draw_above(canvas: &Canvas, places: &[(i32, i32)], colour: RGBColor) {
    let mut drawn = i32::MIN;
    for at in places {
        if at.0 >= drawn.saturating_add(ABOVE) || at.0 <= drawn.saturating_sub(ABOVE) {
            canvas.above(*at, colour);
            drawn = at.0;
        }
    }
}

/// The corners of a line that holds each value until the next point.
fn stairs(points: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let corners = points.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    points.first().copied().into_iter().chain(corners).collect()
}
