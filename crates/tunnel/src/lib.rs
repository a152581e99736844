//! UPMT mobile host and anchor as pure state machines.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
