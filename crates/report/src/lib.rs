//! Plots and HTML pages.
