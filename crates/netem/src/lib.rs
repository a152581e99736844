//! Link models: rate, delay, jitter, queue, loss, time profiles.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
