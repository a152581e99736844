//! Typesets names of variables, such as `T_KA` or `T_fp^min`, as in the papers: with a subscript and a superscript.

use maud::{Markup, html};

/// Variables that have subscripts. Others are left alone: a key in a file may contain an underscore, too.
const STEMS: [&str; 11] = ["T", "RTT", "OWL", "K", "N", "p", "q", "S", "R", "τ", "α"];

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Plain(&'t str),
    Below(&'t str),
    Above(&'t str),
}

/// The parts of a text, in order.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut begun, mut from) = (Vec::new(), 0, 0);
    while let Some(found) = text[from..].find('_').map(|at| from + at) {
        from = found + 1;
        let stem = text[begun..found].rsplit(|c: char| !c.is_alphanumeric()).next();
        let below = index(&text[from..]);
        // `a_T_KA` and `T_KA_x` are other names.
        let before = &text[begun..found - stem.map_or(0, str::len)];
        let joined = before.ends_with('_') || text[from + below.len()..].starts_with('_');
        if below.is_empty() || joined || !stem.is_some_and(|stem| STEMS.contains(&stem)) {
            continue;
        }
        parts.extend([Part::Plain(&text[begun..found]), Part::Below(below)]);
        begun = from + below.len();
        if let Some(rest) = text[begun..].strip_prefix('^')
            && !index(rest).is_empty()
        {
            parts.push(Part::Above(index(rest)));
            begun += 1 + index(rest).len();
        }
        from = begun;
    }
    parts.push(Part::Plain(&text[begun..]));
    parts.retain(|part| *part != Part::Plain(""));
    parts
}

/// The letters and digits at the beginning of a text.
fn index(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}

/// A text as HTML.
pub(crate) fn markup(text: &str) -> Markup {
    html! {
        @for part in parts(text) {
            @match part {
                Part::Plain(text) => { (text) },
                Part::Below(text) => { sub { (text) } },
                Part::Above(text) => { sup { (text) } },
            }
        }
    }
}

/// The same for the lines of text in a drawing with this font size.
pub(crate) fn in_drawing(svg: &str, font: i32) -> String {
    // The backend writes each text on a separate line between its tags.
    let is_text = |line: &str| line.contains('_') && !line.starts_with('<');
    let lines = svg.split_inclusive('\n');
    lines.map(|line| if is_text(line) { drawn(line, font) } else { line.to_owned() }).collect()
}

/// A line with its indices shifted from the baseline, and the following text shifted back.
fn drawn(line: &str, font: i32) -> String {
    let (mut text, mut at) = (String::new(), 0);
    for part in parts(line) {
        let (to, size, part) = match part {
            Part::Plain(part) => (0, font, part),
            Part::Below(part) => (font / 4, font * 7 / 10, part),
            Part::Above(part) => (-font / 3, font * 7 / 10, part),
        };
        text += &match (to - at, to) {
            (0, 0) => part.to_owned(),
            (by, _) => format!("<tspan dy=\"{by}\" font-size=\"{size}\">{part}</tspan>"),
        };
        at = to;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Part::{Above, Below, Plain};
    use super::*;

    #[test]
    fn variables_have_their_indices_and_other_words_stay() {
        let of = |text| parts(text);
        assert_eq!(of("T_KA (ms)"), [Plain("T"), Below("KA"), Plain(" (ms)")]);
        assert_eq!(
            of("2·T_fp^min = 10"),
            [Plain("2·T"), Below("fp"), Above("min"), Plain(" = 10")]
        );
        assert_eq!(of("(K-T_L)"), [Plain("(K-T"), Below("L"), Plain(")")]);
        for plain in ["rtt_avg", "max_flows", "T_", "tau_T_KA", "T_KA_MS", "loss-up.csv", ""] {
            assert_eq!(
                of(plain).iter().filter(|part| **part != Plain(plain)).count(),
                0,
                "{plain}"
            );
        }
        assert_eq!(markup("p_loss < 5").into_string(), "p<sub>loss</sub> &lt; 5");
    }

    #[test]
    fn a_drawing_moves_an_index_down_and_goes_back() {
        let svg = in_drawing("<text x=\"1\">\nT_KA (ms)\n</text>\n", 30);
        let below = "T<tspan dy=\"7\" font-size=\"21\">KA</tspan>";
        let back = "<tspan dy=\"-7\" font-size=\"30\"> (ms)\n</tspan>";
        assert_eq!(svg, format!("<text x=\"1\">\n{below}{back}</text>\n"));
        let style = "<style>a_T_KA</style>\n";
        assert_eq!(in_drawing(style, 30), style);
    }
}
