//! Plots and HTML pages. This crate is generic: it knows nothing about paths or protocols.
//!
//! A [`Page`] is one HTML file without scripts or external resources. Its figures are inline SVG that follows the
//! reader's light or dark colours, in one version for screens and paper and one for phones. The page links to the
//! drawing and the points of each figure, in files next to it. In a page, a role (such as the name of a path) has the
//! same colour in all figures.

#![forbid(unsafe_code)]

mod canvas;
mod csv;
mod made;
mod page;
mod palette;
mod plot;
mod scale;
mod style;
mod symbols;
mod timeline;

pub use csv::csv;
pub use made::made;
pub use page::{Made, Page};
pub use palette::Palette;
pub use plot::{Plot, Series, Style};
pub use timeline::{Band, Mark, Timeline};
