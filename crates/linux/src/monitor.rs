//! A watch on interfaces that come and go.
