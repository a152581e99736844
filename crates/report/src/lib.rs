//! Plots and HTML pages, generic: this crate knows nothing about paths or protocols.
//!
//! A [`Page`] is one HTML file without scripts or outside resources; its figures are inline SVG that follows the
//! reader's light or dark colours, once for screens and paper and once for phones. It links to the drawing and the
//! points of each figure, in files next to it. Within a page a role (the name of a path, say) has the same colour in
//! all figures.

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
