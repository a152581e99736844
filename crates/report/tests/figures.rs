//! The structure of figures and pages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use segue_report::{Band, Made, Mark, Page, Plot, Series, Style, Timeline};

const RAMP: [(f64, f64); 4] = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 9.0)];

fn plot(series: Vec<Series>) -> Plot {
    Plot { title: "Title".into(), series, ..Plot::default() }
}

/// Number of points of each thick polyline: the series, without axes and legend samples.
fn polylines(svg: &str) -> Vec<usize> {
    let lines = svg.split('<').filter(|tag| tag.starts_with("polyline"));
    let points = lines.filter(|tag| tag.contains("stroke-width=\"4\""));
    points.filter_map(|tag| Some(attribute(tag, "points")?.split_whitespace().count())).collect()
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

fn page() -> Page {
    Page::new("t", "", Made::default())
}

/// The figures of a page for a screen or for a phone.
fn shown<'a>(html: &'a str, width: &str) -> Vec<&'a str> {
    let before = format!("<div class=\"{width}\">");
    let figures = html.split(&before).skip(1);
    figures.map(|rest| rest.split_once("</svg>").unwrap().0).collect()
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
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
    // One more in the legend.
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
    let mut page = page();
    page.push_timeline("", "", &Timeline { x_range: (f64::NAN, 0.0), ..Timeline::default() });
    page.push_plot("", "", &Plot::default());
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
    let made = Made { at: bad.into(), by: bad.into(), command: bad.into() };
    let mut page = Page::new(bad, bad, made);
    page.set_verdict(bad);
    page.push_heading(bad);
    page.push_text(bad);
    page.push_links(&[(bad, bad)]);
    page.push_table(bad, &[bad], &[[bad]]);
    let timeline = Timeline {
        title: bad.into(),
        x_label: bad.into(),
        x_range: (0.0, 2.0),
        rows: vec![band.clone()],
        marks: vec![mark.clone()],
    };
    page.push_timeline(bad, bad, &timeline);
    let figure = Plot {
        title: bad.into(),
        x_label: bad.into(),
        y_label: bad.into(),
        marks: vec![mark],
        bands: vec![band],
        ..plot(vec![Series::new(bad, Style::Line, RAMP.to_vec())])
    };
    page.push_plot(bad, bad, &figure);
    let html = page.html();
    assert!(!html.contains("<b>"));
    // 10 at the top, 7 in links and table, 10 around each figure; in the figures 4 and 5, at both widths.
    assert_eq!(count(&html, "&lt;b&gt;&amp;"), 10 + 7 + 2 * 10 + 2 * (4 + 5));
}

#[test]
fn a_role_has_one_colour_in_all_figures_of_a_page() {
    let row = |label: &str| Band { name: "flow".into(), intervals: vec![(0.0, 1.0, label.into())] };
    let mut page = page();
    let series = |name| Series::new(name, Style::Dots, RAMP.to_vec());
    page.push_plot("", "", &plot(vec![series("wifi"), series("lte")]));
    let rows = vec![row("lte"), row("wifi")];
    page.push_timeline("", "", &Timeline { rows, x_range: (0.0, 1.0), ..Timeline::default() });
    let html = page.html();
    let wide = shown(&html, "wide");
    assert_eq!(wide.len(), 2);
    let (dots, bars) = (colours(wide[0], "circle"), colours(wide[1], "rect"));
    // Legend samples first, then the data, in each figure.
    let (wifi, lte) = (dots[0].clone(), dots[1].clone());
    assert_ne!(wifi, lte);
    assert_eq!(bars, [lte.clone(), wifi.clone(), lte, wifi]);
}

#[test]
fn columns_of_numbers_stand_at_the_right() {
    let mut page = page();
    page.push_table("", &["path", "rtt"], &[["wifi", "20 ms"], ["lte", "–"]]);
    let html = page.html();
    assert!(html.contains("<td class=\"number\">20 ms</td>"));
    assert!(html.contains("<th scope=\"row\">wifi</th>"));
}

#[test]
fn a_column_of_dashes_is_none_of_numbers() {
    let mut page = page();
    page.push_table("", &["bar", "here"], &[["–", "–"], ["", "3"]]);
    page.push_table("", &["verdict"], &[["–"], ["–"]]);
    let html = page.html();
    assert_eq!(count(&html, "class=\"number\""), 3, "one head and two cells: {html}");
    assert!(html.contains("<td class=\"number\">3</td>"), "{html}");
}

#[test]
fn a_cell_is_prose_by_its_letters_not_its_bytes() {
    let mut page = page();
    page.push_table("", &["a", "b"], &[["τ·τ·τ·τ·τ·τ·τ·τ·τ", "a rather long sentence"]]);
    let html = page.html();
    assert!(html.contains("<th scope=\"col\">a</th><th scope=\"col\" class=\"prose\">b</th>"));
}

#[test]
fn a_table_scrolls_in_a_named_box_that_the_keyboard_reaches() {
    let mut page = page();
    let (four, three) = (["a", "b", "c", "d"], ["a", "b", "c"]);
    page.push_table("Handovers", &four, &[four]);
    page.push_table("Handovers", &three, &[three]);
    let html = page.html();
    for table in ["Table 1: Handovers", "Table 2: Handovers"] {
        let attributes = format!("role=\"region\" tabindex=\"0\" aria-label=\"{table}\"");
        assert_eq!(count(&html, &format!("<div class=\"scroll\" {attributes}>")), 1, "{html}");
    }
    // The wider one is always wider than a phone, and says that it continues.
    let cue = "<p class=\"more\">4 columns: scroll the table sideways →</p>";
    assert!(html.contains(cue) && html.contains("<table style=\"min-width:30rem\">"), "{html}");
    assert_eq!((count(&html, "sideways"), count(&html, "min-width:30rem")), (1, 1), "{html}");
    assert!(html.contains("@media screen and (max-width:30rem){.more{display:block}}"));
    // A shadow at either side, and a background that moves with the content and covers the shadow at the end.
    let style = html.split_once(".scroll{").unwrap().1.split_once('}').unwrap().0;
    assert!(style.starts_with("overflow-x:auto;"), "{style}");
    assert_eq!((count(style, "no-repeat local"), count(style, "no-repeat scroll")), (2, 2));
    assert!(html.contains(":focus-visible{outline:3px solid"));
}

#[test]
fn a_page_begins_with_its_verdict_and_says_when_by_what_and_how_it_was_made() {
    let made = Made {
        at: "2026-01-31 14:05:00Z".into(),
        by: "Segue 1.2.3".into(),
        command: "segue demo --nat".into(),
    };
    let mut page = Page::new("Title", "What it is about.", made);
    let without = page.html();
    assert!(!without.contains("class=\"verdict\""), "no verdict is made up");
    page.set_verdict("It held: 3 ms (bar: 4 ms).");
    page.push_heading("First");
    let html = page.html();
    let body = html.split_once("<main>").unwrap().1;
    assert_eq!(
        body.split_once("<h2>").unwrap().0,
        "<h1>Title</h1><p class=\"verdict\">It held: 3 ms (bar: 4 ms).</p>\
         <p class=\"lead\">What it is about.</p><p class=\"made\">Made \
         <time datetime=\"2026-01-31 14:05:00Z\">2026-01-31 14:05:00Z</time> by Segue 1.2.3: \
         <code>segue demo --nat</code></p>"
    );
    assert!(html.contains("<html lang=\"en\">") && html.contains("<title>Title</title>"));
}

#[test]
fn headings_skip_no_level() {
    let mut page = page();
    let titled = plot(vec![Series::new("s", Style::Line, RAMP.to_vec())]);
    page.push_plot("a", "", &titled);
    page.push_heading("Section");
    page.push_plot("b", "", &titled);
    page.push_timeline("c", "", &Timeline { title: "Title".into(), ..Timeline::default() });
    let html = page.html();
    let tags = html.split('<').filter_map(|tag| tag.split_once('>'));
    let headings: Vec<_> =
        tags.filter(|(tag, _)| tag.len() == 2 && tag.starts_with('h') && *tag != "hr").collect();
    assert_eq!(
        headings,
        [("h1", "t"), ("h2", "Title"), ("h2", "Section"), ("h3", "Title"), ("h3", "Title")]
    );
    // The drawing on the page does not repeat the title.
    assert!(shown(&html, "wide").iter().all(|svg| !svg.contains("Title")));
}

#[test]
fn a_phone_gets_figures_with_larger_letters_and_nothing_cut_off() {
    let words = "a rather long name of a series that goes on and on";
    let row = |name: &str| Band { name: name.into(), intervals: vec![(0.0, 1.0, words.into())] };
    let marks = [0.0, 1.5, 2.9].map(|x| Mark { x, label: "a label".into() }).to_vec();
    let mut page = page();
    let figure = Plot {
        x_label: words.into(),
        y_label: words.into(),
        marks: marks.clone(),
        ..plot(vec![Series::new(words, Style::Line, RAMP.to_vec())])
    };
    page.push_plot("a", "", &figure);
    let timeline = Timeline {
        x_label: words.into(),
        x_range: (0.0, 3.0),
        rows: vec![row(words), row("short")],
        marks,
        ..Timeline::default()
    };
    page.push_timeline("b", "", &timeline);
    let html = page.html();
    for (which, width) in [("wide", 1_600), ("narrow", 800)] {
        let figures = shown(&html, which);
        assert_eq!(figures.len(), 2);
        for svg in figures {
            assert!(svg.contains(&format!("viewBox=\"0 0 {width} ")), "{which}");
            texts_are_within(svg, width);
        }
    }
    assert!(html.contains("(max-width:43.75rem){.wide{display:none}.narrow{display:block}}"));
    assert!(
        html.contains("svg{display:block;width:100%;height:auto}"),
        "figures shrink with the page"
    );
}

/// Checks that no text exceeds the drawing, with about 0.56 of the font size per character.
fn texts_are_within(svg: &str, width: i32) {
    let height: f64 = attribute(svg, "height").unwrap().parse().unwrap();
    let mut texts = 0;
    for text in svg.split("<text ").skip(1) {
        let number = |name| -> f64 { attribute(text, name).unwrap().parse().unwrap() };
        let words = text.split_once('>').unwrap().1.split_once('<').unwrap().0.trim();
        let long = 30.0 * 0.56 * words.chars().count() as f64;
        let start = match attribute(text, "text-anchor").unwrap() {
            "start" => 0.0,
            "middle" => -long / 2.0,
            _ => -long,
        };
        let (from, room) = match text.contains("rotate(270") {
            // Upwards: earlier text is lower.
            true => (height - number("y") + start, height),
            false => (number("x") + start, f64::from(width)),
        };
        assert!(from >= -1.0 && from + long <= room + 1.0, "{words:?}: {from} + {long} of {room}");
        texts += 1;
    }
    assert!(texts > 5);
}

#[test]
fn what_lies_above_the_axis_is_marked_and_the_legend_says_how_far_it_goes() {
    let far = vec![(0.0, 1.0), (1.0, 34.16), (2.0, 2.0), (3.0, 11.0)];
    for style in [Style::Line, Style::Step, Style::Dots, Style::Dashed] {
        let figure = Plot {
            y_max: Some(10.0),
            y_from_zero: true,
            ..plot(vec![Series::new("s", style, far.clone())])
        };
        let svg = figure.svg();
        // Two values, and the legend sample.
        assert_eq!(count(&svg, "<polygon"), 3, "{style:?}");
        assert!(svg.contains("above the axis, up to 34.2"), "{style:?}");
        let dots = if style == Style::Dots { 1 + 2 } else { 0 };
        assert_eq!(count(&svg, "<circle"), dots, "{style:?}: above the axis there is no dot");
        let whole = Plot { y_max: Some(35.0), ..figure }.svg();
        assert!(!whole.contains("<polygon") && !whole.contains("above the axis"), "{style:?}");
    }
    let log =
        Plot { y_max: Some(10.0), y_log: true, ..plot(vec![Series::new("s", Style::Line, far)]) };
    assert!(log.svg().contains("above the axis, up to 34.2"), "as the value, not as its logarithm");
}

#[test]
fn the_files_that_a_page_links_to_lie_beside_it() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("links");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let mut page = page();
    let points = vec![(0.0, 1.5), (1.0, f64::NAN), (2.0, 3.0)];
    let figure = Plot {
        x_label: "time in s".into(),
        y_label: "RTT, ms".into(),
        ..plot(vec![Series::new("wifi", Style::Line, points)])
    };
    page.push_plot("rtt", "A caption.", &figure);
    let row = Band { name: "call".into(), intervals: vec![(0.0, 1.5, "wifi".into())] };
    let timeline = Timeline { title: "Flows".into(), rows: vec![row], ..Timeline::default() };
    page.push_timeline("flows", "", &timeline);
    page.write(&directory, "index.html").unwrap();

    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let html = read("index.html");
    let links: Vec<_> =
        html.split("<a ").skip(1).map(|tag| attribute(tag, "href").unwrap()).collect();
    assert_eq!(links, ["rtt.csv", "rtt.svg", "flows.csv", "flows.svg"]);
    assert_eq!(read("rtt.csv"), "series,time in s,\"RTT, ms\"\nwifi,0,1.5\nwifi,2,3\n");
    assert_eq!(read("flows.csv"), "row,from,to,what\ncall,0,1.5,wifi\n");
    for (name, title) in [("rtt.svg", "Title"), ("flows.svg", "Flows")] {
        let svg = read(name);
        assert!(svg.starts_with("<svg ") && svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(svg.contains(title), "alone it needs its title");
        assert!(svg.contains("><style>svg{background:#ffffff}") && svg.contains("dark){"), "{svg}");
        let fits = "@media screen{svg:root{max-width:100%;height:auto}}";
        assert!(svg.contains(fits), "a window that is smaller than the drawing shows all of it");
    }
    let error = page.write(&directory.join("missing"), "index.html").unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("missing/rtt.svg"), "{error}");
}

#[test]
fn a_figure_says_in_words_what_it_shows() {
    let mut page = page();
    let figure = Plot {
        x_label: "time in s".into(),
        y_label: "RTT in ms".into(),
        ..plot(vec![
            Series::new("wifi", Style::Line, vec![(0.0, 20.0), (1.0, f64::NAN), (2.0, 25.55)]),
            Series::new("lte", Style::Line, Vec::new()),
        ])
    };
    page.push_plot("a", "", &figure);
    let intervals = vec![(0.0, 1.5, "wifi".to_owned()), (1.5, 3.0, "lte".to_owned())];
    let rows = vec![Band { name: "call".into(), intervals }];
    let timeline = Timeline {
        title: "Flows".into(),
        x_label: "time in s".into(),
        rows,
        ..Timeline::default()
    };
    page.push_timeline("b", "", &timeline);
    let html = page.html();
    for words in [
        "Title: RTT in ms against time in s; wifi from 20 to 25.6; lte without values.",
        "Flows, over time in s; call: wifi from 0 to 1.5, lte from 1.5 to 3.",
    ] {
        assert!(html.contains(&format!("<div role=\"img\" aria-label=\"{words}\">")), "{html}");
    }
}

#[test]
fn dark_screens_turn_the_colours_and_paper_does_not() {
    let mut page = page();
    page.push_plot("a", "", &plot(vec![Series::new("s", Style::Line, RAMP.to_vec())]));
    let html = page.html();
    let style = html.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let dark = style.split_once("@media screen and (prefers-color-scheme:dark){").unwrap().1;
    assert_eq!(count(style, "prefers-color-scheme"), 1, "no rule for dark screens holds on paper");
    let (dark, _) = dark.split_once("}}\n").unwrap_or((dark, ""));
    let svg = shown(&html, "wide")[0];
    for colour in colours(svg, "text").iter().chain(&colours(svg, "polyline")) {
        if colour != "none" {
            assert!(dark.contains(&format!("svg [fill=\"{colour}\"]{{fill:")), "{colour}");
        }
    }
    assert!(style.contains("@media print{") && style.contains("table{min-width:0!important"));
}

#[test]
fn a_page_needs_nothing_from_outside() {
    let mut page = page();
    page.push_plot("a", "", &plot(vec![Series::new("s", Style::Line, RAMP.to_vec())]));
    page.push_links(&[("result.json", "numbers")]);
    let html = page.html().replace("http://www.w3.org/2000/svg", "");
    for outside in ["http", "src=", "<script", "<link", "url(", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
}
