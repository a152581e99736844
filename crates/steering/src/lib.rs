//! Which path each flow should use: scores, policies, hysteresis.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
