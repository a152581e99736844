//! The user-space datapath.
