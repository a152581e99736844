//! An HTML file, and the files that it links to.

use std::io;
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::canvas::{NARROW, WIDE};
use crate::palette::Palette;
use crate::style;
use crate::symbols::markup;
use crate::{Plot, Timeline};

/// The origin of a page.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Made {
    /// Date and time in the format of HTML's `time` element: `2026-01-31 14:05:00Z`.
    pub at: String,
    /// The program and its version.
    pub by: String,
    /// The command that creates such a page.
    pub command: String,
}

/// A page that grows from top to bottom. All text is escaped.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    verdict: String,
    lead: String,
    made: Made,
    palette: Palette,
    blocks: Vec<Markup>,
    /// Names and contents of the files that the page's figures link to.
    files: Vec<(String, String)>,
    tables: usize,
    /// True after a heading; the figures' headings are one level below.
    in_section: bool,
}

impl Page {
    /// A page with a heading and a short introduction.
    #[must_use]
    pub fn new(title: impl Into<String>, lead: impl Into<String>, made: Made) -> Page {
        Page { title: title.into(), lead: lead.into(), made, ..Page::default() }
    }

    /// Sets the sentence at the top: the outcome, and its criterion.
    pub fn set_verdict(&mut self, verdict: impl Into<String>) {
        self.verdict = verdict.into();
    }

    /// Adds a heading.
    pub fn push_heading(&mut self, heading: &str) {
        self.in_section = true;
        self.blocks.push(html! { h2 { (markup(heading)) } });
    }

    /// Adds paragraphs, which empty lines separate.
    pub fn push_text(&mut self, text: &str) {
        let paragraphs = text.split("\n\n").filter(|part| !part.trim().is_empty());
        self.blocks.push(html! { @for part in paragraphs { p { (markup(part)) } } });
    }

    /// Adds a list of files next to the page: name and description of each.
    pub fn push_links(&mut self, links: &[(&str, &str)]) {
        self.blocks.push(html! {
            ul { @for (name, what) in links { li { a href=(name) { (name) } ": " (markup(what)) } } }
        });
    }

    /// Adds a table. Columns of numbers, with or without a unit, are right-aligned.
    pub fn push_table<H: AsRef<str>, R: AsRef<[C]>, C: AsRef<str>>(
        &mut self,
        caption: &str,
        header: &[H],
        rows: &[R],
    ) {
        self.push_rows(caption, header, rows, 0);
    }

    /// Adds a table of verdicts. The first column contains the verdicts, so that a phone shows them without scrolling;
    /// the second one contains the subject of each row.
    pub fn push_verdicts<H: AsRef<str>, R: AsRef<[C]>, C: AsRef<str>>(
        &mut self,
        caption: &str,
        header: &[H],
        rows: &[R],
    ) {
        self.push_rows(caption, header, rows, 1);
    }

    /// Adds a table with one column that names the rows.
    fn push_rows<H: AsRef<str>, R: AsRef<[C]>, C: AsRef<str>>(
        &mut self,
        caption: &str,
        header: &[H],
        rows: &[R],
        named_by: usize,
    ) {
        let class = |column: usize| {
            let cells: Vec<_> = rows.iter().filter_map(|row| row.as_ref().get(column)).collect();
            let mut texts = cells.iter().map(|cell| cell.as_ref());
            let has_number = texts.clone().any(|text| text.contains(|c: char| c.is_ascii_digit()));
            if has_number && texts.clone().all(starts_as_number) {
                return Some("number");
            }
            texts.any(|text| text.chars().count() > PROSE_CHARS).then_some("prose")
        };
        // Numbered, so that no two scrolling boxes have the same name.
        self.tables += 1;
        let label = format!("Table {}: {caption}", self.tables);
        let is_wide = header.len() >= WIDE_COLUMNS;
        let least_rem = (header.len() * COLUMN_REM).max(PHONE_REM);
        let least = is_wide.then(|| format!("min-width:{least_rem}rem"));
        self.blocks.push(html! {
            figure {
                @if is_wide { p.more { (header.len()) " columns: scroll the table sideways →" } }
                div.scroll role="region" tabindex="0" aria-label=(label) { table style=[least] {
                    thead { tr {
                        @for (i, cell) in header.iter().enumerate() {
                            th scope="col" class=[class(i)] { (markup(cell.as_ref())) }
                        }
                    } }
                    tbody { @for row in rows { tr {
                        @for (i, cell) in row.as_ref().iter().map(AsRef::as_ref).enumerate() {
                            @if i == named_by && !cell.is_empty() {
                                th scope="row" class=[class(i)] { (markup(cell)) }
                            } @else { td class=[class(i)] { (markup(cell)) } }
                        }
                    } } }
                } }
                @if !caption.is_empty() { figcaption { (markup(caption)) } }
            }
        });
    }

    /// Adds a diagram, with links to `NAME.svg` and `NAME.csv`.
    pub fn push_plot(&mut self, name: &str, caption: &str, plot: &Plot) {
        // On the page, the title is a heading.
        let untitled = Plot { title: String::new(), ..plot.clone() };
        let drawings = [WIDE, NARROW].map(|width| untitled.svg_with(&mut self.palette, width));
        let file = plot.svg_with(&mut self.palette, WIDE);
        self.push_figure(&plot.title, &plot.in_words(), drawings, figcaption(caption, name));
        self.push_files(name, &file, plot.csv());
    }

    /// Adds rows that show which item was in use at which time, with links to `NAME.svg` and `NAME.csv`.
    pub fn push_timeline(&mut self, name: &str, caption: &str, timeline: &Timeline) {
        let untitled = Timeline { title: String::new(), ..timeline.clone() };
        let drawings = [WIDE, NARROW].map(|width| untitled.svg_with(&mut self.palette, width));
        let file = timeline.svg_with(&mut self.palette, WIDE);
        self.push_figure(
            &timeline.title,
            &timeline.in_words(),
            drawings,
            figcaption(caption, name),
        );
        self.push_files(name, &file, timeline.csv());
    }

    /// The page as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let Made { at, by, command } = &self.made;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(style::page())) }
                }
                body { main {
                    h1 { (markup(&self.title)) }
                    @if !self.verdict.is_empty() { p.verdict { (markup(&self.verdict)) } }
                    @if !self.lead.is_empty() { p.lead { (markup(&self.lead)) } }
                    p.made {
                        "Made " time datetime=(at) { (at) } " by " (by) ": " code { (command) }
                    }
                    @for block in &self.blocks { (block) }
                } }
            }
        };
        page.into_string()
    }

    /// Writes the page with this name, and the files of its figures next to it.
    ///
    /// # Errors
    /// A file cannot be written; the error names it.
    pub fn write(&self, directory: &Path, name: &str) -> io::Result<()> {
        let html = self.html();
        let files = self.files.iter().map(|(name, text)| (name.as_str(), text));
        for (name, text) in files.chain([(name, &html)]) {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|error| {
                let path = path.display();
                io::Error::new(error.kind(), format!("cannot write {path}: {error}"))
            })?;
        }
        Ok(())
    }

    /// Adds a figure with its heading, one level below the section's.
    fn push_figure(&mut self, title: &str, words: &str, drawings: [String; 2], caption: Markup) {
        let [wide, narrow] = drawings;
        self.blocks.push(html! {
            @if !title.is_empty() {
                @if self.in_section { h3 { (markup(title)) } } @else { h2 { (markup(title)) } }
            }
            figure {
                div role="img" aria-label=(words) {
                    div.wide { (PreEscaped(wide)) }
                    div.narrow { (PreEscaped(narrow)) }
                }
                (caption)
            }
        });
    }

    fn push_files(&mut self, name: &str, svg: &str, csv: String) {
        self.files.push((format!("{name}.svg"), style::standalone(svg)));
        self.files.push((format!("{name}.csv"), csv));
    }
}

/// Longer cells are not numbers, and their column is wide, so that they do not break after each word.
const PROSE_CHARS: usize = 20;
/// Tables with at least this many columns are wider than a phone, where a hint says that they scroll.
const WIDE_COLUMNS: usize = 4;
/// Minimum width of their columns.
const COLUMN_REM: usize = 6;
/// Maximum width of a phone's screen in the style sheet.
const PHONE_REM: usize = 30;

/// The caption of a figure, with links to its drawing and its data.
fn figcaption(caption: &str, name: &str) -> Markup {
    let (svg, csv) = (format!("{name}.svg"), format!("{name}.csv"));
    html! {
        figcaption {
            (markup(caption)) " "
            span { "Data: " a href=(csv) { (csv) } ", drawing: " a href=(svg) { (svg) } }
        }
    }
}

fn starts_as_number(cell: &str) -> bool {
    let number = cell.trim_start_matches(['+', '-', '−', '<', '≤', '≈', ' ']);
    let short = cell.chars().count() <= PROSE_CHARS;
    matches!(number, "" | "–" | "—") || short && number.starts_with(|c: char| c.is_ascii_digit())
}
