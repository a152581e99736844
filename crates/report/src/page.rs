//! One HTML file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::Plot;
use crate::palette::Palette;
use crate::timeline::{self, Band, Mark};

/// A page that grows from top to bottom. All text is escaped.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    lead: String,
    palette: Palette,
    blocks: Vec<Markup>,
}

impl Page {
    /// A page with a heading and the sentence or two that say what came out.
    #[must_use]
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Page {
        Page { title: title.into(), lead: lead.into(), ..Page::default() }
    }

    /// Adds a heading.
    pub fn push_heading(&mut self, heading: &str) {
        self.blocks.push(html! { h2 { (heading) } });
    }

    /// Adds a paragraph; empty lines separate several.
    pub fn push_text(&mut self, text: &str) {
        let paragraphs = text.split("\n\n").filter(|part| !part.trim().is_empty());
        self.blocks.push(html! { @for part in paragraphs { p { (part) } } });
    }

    /// Adds a table. Columns of numbers, with or without a unit, stand at the right.
    pub fn push_table<H: AsRef<str>, R: AsRef<[C]>, C: AsRef<str>>(
        &mut self,
        caption: &str,
        header: &[H],
        rows: &[R],
    ) {
        let class = |column: usize| {
            let cells: Vec<_> = rows.iter().filter_map(|row| row.as_ref().get(column)).collect();
            if !cells.is_empty() && cells.iter().all(|cell| starts_as_number(cell.as_ref())) {
                return Some("number");
            }
            cells.iter().any(|cell| cell.as_ref().len() > PROSE_CHARS).then_some("prose")
        };
        self.blocks.push(html! {
            figure { div.scroll { table {
                thead { tr {
                    @for (i, cell) in header.iter().enumerate() {
                        th scope="col" class=[class(i)] { (cell.as_ref()) }
                    }
                } }
                tbody { @for row in rows { tr {
                    @for (i, cell) in row.as_ref().iter().enumerate() {
                        td class=[class(i)] { (cell.as_ref()) }
                    }
                } } }
            } } (figcaption(caption)) }
        });
    }

    /// Adds a diagram.
    pub fn push_plot(&mut self, caption: &str, plot: &Plot) {
        let svg = plot.svg_with(&mut self.palette);
        self.push_svg(caption, &plot.title, svg);
    }

    /// Adds rows that show what was in use when.
    pub fn push_timeline(
        &mut self,
        caption: &str,
        rows: &[Band],
        marks: &[Mark],
        x_range: (f64, f64),
        x_label: &str,
    ) {
        let svg = timeline::svg(rows, marks, x_range, x_label, &mut self.palette);
        self.push_svg(caption, caption, svg);
    }

    /// The whole page.
    #[must_use]
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body { main {
                    h1 { (self.title) }
                    @if !self.lead.is_empty() { p.lead { (self.lead) } }
                    @for block in &self.blocks { (block) }
                } }
            }
        };
        page.into_string()
    }

    fn push_svg(&mut self, caption: &str, label: &str, svg: String) {
        self.blocks.push(html! {
            figure {
                div.scroll role="img" aria-label=(label) { (PreEscaped(svg)) }
                (figcaption(caption))
            }
        });
    }
}

/// Cells longer than this are no numbers, and get a wide column, so that they do not break after each word.
const PROSE_CHARS: usize = 20;

fn figcaption(caption: &str) -> Markup {
    html! { @if !caption.is_empty() { figcaption { (caption) } } }
}

fn starts_as_number(cell: &str) -> bool {
    let number = cell.trim_start_matches(['+', '-', '−', '<', '≤', '≈', ' ']);
    let short = cell.chars().count() <= PROSE_CHARS;
    matches!(number, "" | "–" | "—") || short && number.starts_with(|c: char| c.is_ascii_digit())
}

/// Drawings carry fixed colours; those of ink and grid are replaced here by those of the page, and
/// the two darkest of the palette by lighter ones on dark screens.
const STYLE: &str = r##"
:root{--paper:#fff;--ink:#2b2f36;--soft:#5b6470;--grid:#dfe3e8}
@media(prefers-color-scheme:dark){:root{--paper:#15181d;--ink:#e4e7ec;--soft:#9aa4b2;--grid:#333a45}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem}
p{max-width:44rem}
.lead{font-size:1.125rem;color:var(--soft);margin-top:0}
figure{margin:1.75rem 0}
figcaption{color:var(--soft);font-size:.9rem;margin-top:.4rem;max-width:44rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0;border-bottom:1px solid var(--grid)}
th{font-weight:600;border-bottom-color:var(--soft)}
.number{text-align:right}
td.number{white-space:nowrap}
.prose{min-width:12rem}
svg{display:block;width:100%;min-width:38rem;height:auto}
svg [fill="#2B2F36"]{fill:var(--ink)}
svg [stroke="#2B2F36"]{stroke:var(--ink)}
svg [stroke="#DFE3E8"]{stroke:var(--grid)}
svg text{paint-order:stroke;stroke:var(--paper);stroke-width:8px;stroke-linejoin:round}
@media(prefers-color-scheme:dark){
svg [stroke="#0072B2"]{stroke:#3a9bdc}svg [fill="#0072B2"]{fill:#3a9bdc}
svg [stroke="#D55E00"]{stroke:#ee7b30}svg [fill="#D55E00"]{fill:#ee7b30}}
"##;
