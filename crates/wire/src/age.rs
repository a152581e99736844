//! The age that data packets state: how long ago their sender heard the peer on this path.
//!
//! One byte of the tunnel header, in units of 2²² ns (4.194 ms). 0 means not stated; n means less than n units ago; 255
//! means 254 units ago or more. A data packet thus proves its own direction by arriving, and the opposite direction by
//! its age.

/// Binary logarithm of the unit in nanoseconds.
pub const UNIT_SHIFT: u32 = 22;

/// Encodes the age for a sender that heard the peer `ns` nanoseconds ago.
#[must_use]
pub const fn encode(ns: u64) -> u8 {
    let units = ns >> UNIT_SHIFT;
    if units >= 254 { 255 } else { units as u8 + 1 }
}

/// An upper bound on the age in nanoseconds; `None` if the sender stated none, or if the age is too large to encode.
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
