//! The age that data state: how long ago their sender heard the other end on this path.
//!
//! One byte of the tunnel header, in units of 2²² ns (4.194 ms). 0: not stated. n: less than n units ago. 255: 254
//! units ago or more. So data that arrive prove their own direction, and what they state the other.

/// Binary logarithm of the unit in nanoseconds.
pub const UNIT_SHIFT: u32 = 22;

/// The byte for a sender that heard the other end `ns` nanoseconds ago.
#[must_use]
pub const fn encode(ns: u64) -> u8 {
    let units = ns >> UNIT_SHIFT;
    if units >= 254 { 255 } else { units as u8 + 1 }
}

/// Within how many nanoseconds before it sent the sender heard the other end; `None` where it did not say, or
/// where that is too long ago to be said.
#[must_use]
pub const fn decode(age: u8) -> Option<u64> {
    match age {
        0 | 255 => None,
        n => Some((n as u64) << UNIT_SHIFT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_never_understated_and_overstated_by_less_than_a_unit() {
        for ns in (0..1_100_000_000).step_by(777_777) {
            match decode(encode(ns)) {
                Some(at_most) => assert!(at_most > ns && at_most - ns <= 1 << UNIT_SHIFT, "{ns}"),
                None => assert!(ns >= 254 << UNIT_SHIFT, "{ns}"),
            }
        }
        assert_eq!((decode(0), decode(255), encode(u64::MAX)), (None, None, 255));
    }
}
