//! A seeded generator with a fixed sequence.

/// xoshiro256++ (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2019), seeded through SplitMix64 as
/// its authors recommend. The same seed gives the same sequence on every machine. The generator is implemented here
/// because a library might change its sequence. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator whose sequence depends only on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng([next(), next(), next(), next()])
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in [0, n), 0 for n = 0 (multiply-shift, bias below n/2⁶⁴).
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        // xoshiro256++ from SplitMix64(0), computed with the authors' C sources. The first two numbers do not depend on
        // every word of the state; a thousand do.
        for (seed, first, folded) in [
            (0, [0x5317_5d61_490b_23df, 0x61da_6f3d_c380_d507], 0x11bd_60fa_e985_7e38),
            (42, [0xd076_4d4f_4476_689f, 0x519e_4174_576f_3791], 0x1537_9ede_9965_d276),
        ] {
            let mut rng = Rng::new(seed);
            assert_eq!([rng.next_u64(), rng.next_u64()], first, "seed {seed}");
            for _ in 2..6 {
                rng.next_u64();
            }
            let fold = |sum: u64, n: u32| sum ^ rng.next_u64().rotate_left(n % 64);
            assert_eq!((0..994).fold(0, fold), folded, "seed {seed}");
        }
    }

    #[test]
    fn unit_is_uniform_from_0_to_below_1() {
        let mut rng = Rng::new(7);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            let unit = rng.unit();
            assert!((0.0..1.0).contains(&unit), "{unit}");
            tenths[(unit * 10.0) as usize] += 1;
        }
        // 10 000 ± 95 in each.
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 400), "{tenths:?}");
        let (mut small, scale) = (0, 1_u64 << 53);
        for _ in 0..1_000 {
            let scaled = rng.unit() * scale as f64;
            assert_eq!(scaled.to_bits(), ((scaled as u64) as f64).to_bits(), "53 bits, no more");
            small += u32::from(scaled as u64 % 2 == 1);
        }
        assert!(small.abs_diff(500) < 70, "the last bit is as random: {small}");
    }

    #[test]
    fn below_takes_each_number_equally_often_and_no_other() {
        let mut rng = Rng::new(8);
        let mut counts = [0_u32; 3];
        (0..30_000).for_each(|_| counts[rng.below(3) as usize] += 1);
        // 10 000 ± 82 each.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 350), "{counts:?}");
        assert_eq!([rng.below(0), rng.below(1)], [0, 0]);
        let large = (0..1_000).filter(|_| rng.below(u64::MAX) > u64::MAX / 2).count();
        assert!(large.abs_diff(500) < 70, "{large}");
    }

    #[test]
    fn chance_is_as_often_true_as_it_is_told() {
        let mut rng = Rng::new(9);
        let mut share = |p| (0..20_000).filter(|_| rng.chance(p)).count();
        assert_eq!([share(0.0), share(1.0)], [0, 20_000]);
        // 2 000 ± 43 and 14 000 ± 65.
        let (seldom, often) = (share(0.1), share(0.7));
        assert!(seldom.abs_diff(2_000) < 180 && often.abs_diff(14_000) < 270, "{seldom} {often}");
    }
}
