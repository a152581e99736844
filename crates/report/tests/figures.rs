//! The structure of figures and pages.

use std::slice::from_ref;

use segue_report::{Band, Mark, Page, Plot, Series, Style};

const RAMP: [(f64, f64); 4] = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 9.0)];

fn plot(series: Vec<Series>) -> Plot {
    Plot { title: "Title".into(), series, ..Plot::default() }
}

/// The number of points of each broad polyline: the series, but not axes and legend samples.
fn polylines(svg: &str) -> Vec<usize> {
    let lines = svg.split('<').filter(|tag| tag.starts_with("polyline"));
    let points = lines.filter(|tag| tag.contains("stroke-width=\"4\""));
    points.filter_map(|tag| Some(attribute(tag, "points")?.split_whitespace().count())).collect()
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

fn colours(svg: &str, element: &str) -> Vec<String> {
    let tags = svg.split('<').filter(|tag| tag.starts_with(element));
    tags.filter_map(|tag| attribute(tag, "fill").map(str::to_owned)).collect()
}

#[test]
fn each_line_is_one_polyline_with_as_many_points() {
    let series = |style| Series::new("s", style, RAMP.to_vec());
    assert_eq!(polylines(&plot(vec![series(Style::Line), series(Style::Line)]).svg()), [4, 4]);
    // A step adds a corner between two points.
    assert_eq!(polylines(&plot(vec![series(Style::Step)]).svg()), [7]);
}

#[test]
fn each_dot_is_a_circle() {
    let svg = plot(vec![Series::new("s", Style::Dots, RAMP.to_vec())]).svg();
    // And one in the legend.
    assert_eq!(svg.matches("<circle").count(), RAMP.len() + 1);
}

#[test]
fn a_point_that_is_not_a_number_breaks_the_line() {
    let points = [0.0, 1.0, f64::NAN, 3.0, 4.0, 5.0, f64::INFINITY, 7.0];
    let points = (0..).map(f64::from).zip(points).collect();
    let svg = plot(vec![Series::new("s", Style::Line, points)]).svg();
    assert_eq!(polylines(&svg), [2, 3]);
    assert_eq!(svg.matches("<circle").count(), 1, "the lone point is a dot");
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn nothing_to_draw_makes_an_empty_figure_and_no_panic() {
    let nothing = [
        Vec::new(),
        vec![(f64::NAN, f64::NAN)],
        vec![(f64::NEG_INFINITY, f64::INFINITY)],
        vec![(0.0, 0.0)],
        vec![(1e300, -1e300), (-1e300, 1e300)],
        vec![(f64::MAX, f64::MIN)],
    ];
    for points in nothing {
        for style in [Style::Line, Style::Step, Style::Dots, Style::Dashed] {
            for y_max in [None, Some(0.0), Some(f64::NAN)] {
                let series = vec![Series::new("s", style, points.clone())];
                let svg = Plot { y_from_zero: true, y_max, ..plot(series) }.svg();
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
                assert!(!svg.contains("NaN"), "{points:?}");
            }
        }
    }
    let mut page = Page::new("", "");
    page.push_timeline("", &[], &[], (f64::NAN, 0.0), "");
    page.push_table::<&str, [&str; 0], &str>("", &[], &[]);
    assert!(page.html().contains("<svg"));
}

#[test]
fn values_above_the_end_of_the_axis_stay_within_the_figure() {
    let far = vec![(0.0, 1.0), (1.0, 1e9), (2.0, 2.0)];
    let svg = Plot { y_max: Some(10.0), ..plot(vec![Series::new("s", Style::Line, far)]) }.svg();
    let line = svg.split('<').find(|tag| tag.contains("stroke-width=\"4\"")).unwrap();
    let heights = attribute(line, "points").unwrap().split_whitespace();
    let heights: Vec<i32> =
        heights.map(|xy| xy.split_once(',').unwrap().1.parse().unwrap()).collect();
    assert!(heights.iter().all(|y| *y > 0), "{heights:?}");
    assert!(heights[1] < heights[2] && heights[2] < heights[0], "{heights:?}");
}

#[test]
fn text_is_escaped_everywhere() {
    let bad = "<b>&\"'";
    let mark = Mark { x: 1.0, label: bad.into() };
    let band = Band { name: bad.into(), intervals: vec![(0.0, 1.0, bad.into())] };
    let mut page = Page::new(bad, bad);
    page.push_heading(bad);
    page.push_text(bad);
    page.push_table(bad, &[bad], &[[bad]]);
    page.push_timeline(bad, from_ref(&band), from_ref(&mark), (0.0, 2.0), bad);
    let figure = Plot {
        title: bad.into(),
        x_label: bad.into(),
        y_label: bad.into(),
        marks: vec![mark],
        bands: vec![band],
        ..plot(vec![Series::new(bad, Style::Line, RAMP.to_vec())])
    };
    page.push_plot(bad, &figure);
    let html = page.html();
    assert!(!html.contains("<b>"));
    assert_eq!(html.matches("&lt;b&gt;&amp;").count(), 22);
}

#[test]
fn a_role_has_one_colour_in_all_figures_of_a_page() {
    let row = |label: &str| Band { name: "flow".into(), intervals: vec![(0.0, 1.0, label.into())] };
    let mut page = Page::new("t", "");
    let series = |name| Series::new(name, Style::Dots, RAMP.to_vec());
    page.push_plot("", &plot(vec![series("wifi"), series("lte")]));
    page.push_timeline("", &[row("lte"), row("wifi")], &[], (0.0, 1.0), "");
    let html = page.html();
    let (dots, bars) = (colours(&html, "circle"), colours(&html, "rect"));
    // Legend samples first, then the data, in each figure.
    let (wifi, lte) = (dots[0].clone(), dots[1].clone());
    assert_ne!(wifi, lte);
    assert_eq!(bars, [lte.clone(), wifi.clone(), lte, wifi]);
}

#[test]
fn columns_of_numbers_stand_at_the_right() {
    let mut page = Page::new("t", "");
    page.push_table("", &["path", "rtt"], &[["wifi", "20 ms"], ["lte", "–"]]);
    let html = page.html();
    assert!(html.contains("<td class=\"number\">20 ms</td>"));
    assert!(html.contains("<td>wifi</td>"));
}

#[test]
fn a_page_needs_nothing_from_outside() {
    let mut page = Page::new("t", "");
    page.push_plot("", &plot(vec![Series::new("s", Style::Line, RAMP.to_vec())]));
    let html = page.html().replace("http://www.w3.org/2000/svg", "");
    for outside in ["http", "src=", "<script", "<link", "url(", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
}
