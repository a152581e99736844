//! The keepalive probe: the 28 bytes of paper 1 (Fig. 14, with its sequence number), 4 bytes of
//! state, and an authenticator.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::{Header, WireError};

/// The measurement data of a probe.
///
/// ```text
/// +---------------------------------------------------------------+
/// |                        Sequence number                        |
/// |                             t_Sc                              |
/// |                             t_Ss                              |
/// |                              Δt                               |
/// |                              Sc                               |
/// |                              Ss                               |
/// |                               R                               |
/// |            heard              |             T_KA              |
/// +---------------------------------------------------------------+
/// ```
///
/// All fields are in network byte order. Times are microseconds modulo 2³² on the clock of the end that took them.
/// Counters count all packets of the path in one direction, data and probes, modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Numbers the requests; a response repeats the number of its request. Unsolicited responses have a separate
    /// sequence.
    pub seq: u32,
    /// Request: departure time on the client's clock. Response: repeated from the request.
    pub t_sc: u32,
    /// Response: departure time on the server's clock. Request: repeated from the last response.
    pub t_ss: u32,
    /// Response: time that the server held the request, t_Ss − t_Rs. Request: t_Sc − t_Rc of the last response.
    pub dt: u32,
    /// Request: packets sent by the client, including this one. Response: repeated.
    pub sc: u32,
    /// Response: packets sent by the server, including this one. Request: repeated.
    pub ss: u32,
    /// Response: packets received by the server (Rs), including the request. Request: packets received by the client
    /// (Rc) up to and including the last response.
    pub r: u32,
    /// Bit *i*: the sender has heard the peer on path *i* within its timeout.
    pub heard: u16,
    /// T_KA in milliseconds; zero if not stated.
    pub t_ka_ms: u16,
}

impl Probe {
    /// Length of the probe data in bytes.
    pub const LEN: usize = 32;
    /// Length of the authenticator in bytes.
    pub(crate) const MAC_LEN: usize = 8;
    /// Length of a whole probe packet, from the tunnel header to the authenticator.
    pub const PACKET_LEN: usize = Header::LEN + Probe::LEN + Probe::MAC_LEN;

    /// The 32 bytes of the probe data.
    #[must_use]
    pub fn emit(&self) -> [u8; Probe::LEN] {
        let mut bytes = [0; Probe::LEN];
        let words = [self.seq, self.t_sc, self.t_ss, self.dt, self.sc, self.ss, self.r];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes[28..30].copy_from_slice(&self.heard.to_be_bytes());
        bytes[30..].copy_from_slice(&self.t_ka_ms.to_be_bytes());
        bytes
    }

    /// Reads 32 bytes of probe data.
    #[must_use]
    pub fn parse(bytes: &[u8; Probe::LEN]) -> Probe {
        let word =
            |i: usize| u32::from_be_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        Probe {
            seq: word(0),
            t_sc: word(4),
            t_ss: word(8),
            dt: word(12),
            sc: word(16),
            ss: word(20),
            r: word(24),
            heard: u16::from_be_bytes([bytes[28], bytes[29]]),
            t_ka_ms: u16::from_be_bytes([bytes[30], bytes[31]]),
        }
    }

    /// A whole probe packet (the UDP payload), authenticated with `key`.
    #[must_use]
    pub fn seal(&self, header: &Header, key: &ProbeKey) -> [u8; Probe::PACKET_LEN] {
        let mut packet = [0; Probe::PACKET_LEN];
        packet[..Header::LEN].copy_from_slice(&header.emit());
        packet[Header::LEN..Header::LEN + Probe::LEN].copy_from_slice(&self.emit());
        let mac = key.mac(&packet[..Header::LEN + Probe::LEN]);
        packet[Header::LEN + Probe::LEN..].copy_from_slice(&mac);
        packet
    }

    /// Reads the probe behind an already parsed header and checks its authenticator. `packet` is the UDP payload from
    /// the header on, and must end with the authenticator.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Field`] for surplus bytes, [`WireError::Mac`].
    pub fn open(packet: &[u8], key: &ProbeKey) -> Result<Probe, WireError> {
        let got = packet.len();
        if got > Probe::PACKET_LEN {
            return Err(WireError::Field { field: "length", got: got as u32 });
        }
        Ok(Probe::open_ride(packet, key)?.0)
    }

    /// Like [`open`](Probe::open), for a ride ([`crate::PacketType::Ride`]): also returns the inner packet behind the
    /// authenticator, which the authenticator does not cover. A ride is the output of [`seal`](Probe::seal) followed by
    /// the inner packet.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`].
    pub fn open_ride<'a>(packet: &'a [u8], key: &ProbeKey) -> Result<(Probe, &'a [u8]), WireError> {
        let got = packet.len();
        let Some((packet, inner)) = packet.split_first_chunk::<{ Probe::PACKET_LEN }>() else {
            return Err(WireError::TooShort { what: "probe", got, min: Probe::PACKET_LEN });
        };
        let (covered, mac) = packet.split_at(Header::LEN + Probe::LEN);
        if key.mac(covered) != *mac {
            return Err(WireError::Mac);
        }
        let mut body = [0; Probe::LEN];
        body.copy_from_slice(&covered[Header::LEN..]);
        Ok((Probe::parse(&body), inner))
    }
}

/// The averages that a client reports in a request with the flag
/// [`REQUEST_REPORT`](crate::header::flags::REQUEST_REPORT), in the fields that otherwise echo Ss and R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// Round-trip loss as a fraction of 2³²; the largest value also represents 1.
    pub loss: u32,
    /// Average of the RTT in microseconds; 0 if not reported.
    pub rtt_us: u32,
}

impl ProbeReport {
    /// Encodes a round-trip loss in [0, 1] and an average RTT in seconds. Out-of-range values saturate; a reported RTT
    /// is at least 1 µs.
    #[must_use]
    pub fn new(rtl: f64, rtt: Option<f64>) -> ProbeReport {
        // Conversion from float to integer saturates, and turns NaN into 0.
        let rtt_us = rtt.map_or(0, |rtt| ((rtt * 1e6 + 0.5) as u32).max(1));
        ProbeReport { loss: (rtl * 4_294_967_296.0) as u32, rtt_us }
    }

    /// Round-trip loss in [0, 1).
    #[must_use]
    pub fn rtl(self) -> f64 {
        f64::from(self.loss) / 4_294_967_296.0
    }

    /// Average of the RTT in seconds, if reported.
    #[must_use]
    pub fn rtt(self) -> Option<f64> {
        (self.rtt_us != 0).then(|| f64::from(self.rtt_us) / 1e6)
    }

    /// The request with this report in the fields of the echoes.
    #[must_use]
    pub fn pack(self, probe: Probe) -> Probe {
        Probe { ss: self.loss, r: self.rtt_us, ..probe }
    }

    /// The report in a request with the flag.
    #[must_use]
    pub fn unpack(probe: &Probe) -> ProbeReport {
        ProbeReport { loss: probe.ss, rtt_us: probe.r }
    }
}

/// The key of a path's probes: SipHash-2-4 (Aumasson, Bernstein 2012) over the 48 bytes of header and probe data. The
/// packet holds the result in little-endian order, as defined by SipHash's authors.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeKey(pub [u8; 16]);

impl ProbeKey {
    fn mac(&self, covered: &[u8]) -> [u8; Probe::MAC_LEN] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(covered);
        hasher.finish().to_le_bytes()
    }
}

impl core::fmt::Debug for ProbeKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ProbeKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketType;
    use proptest::prelude::*;

    fn key() -> ProbeKey {
        ProbeKey(core::array::from_fn(|i| i as u8))
    }

    fn header() -> Header {
        Header::new(PacketType::Request, 3, 7, 9)
    }

    fn probe() -> Probe {
        Probe { seq: 1, t_sc: 2, t_ss: 3, dt: 4, sc: 5, ss: 6, r: 7, heard: 0x8001, t_ka_ms: 200 }
    }

    #[test]
    fn golden_bytes_of_a_probe() {
        let bytes = probe().emit();
        assert_eq!(bytes[..8], [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(bytes[24..], [0, 0, 0, 7, 0x80, 1, 0, 200]);
        assert_eq!(Probe::parse(&bytes), probe());
    }

    #[test]
    fn the_authenticator_is_siphash_2_4() {
        // First and last vector of the reference implementation (key 00 01 … 0f).
        assert_eq!(key().mac(&[]), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        let input: [u8; 63] = core::array::from_fn(|i| i as u8);
        assert_eq!(key().mac(&input), [0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95]);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let packet = probe().seal(&header(), &key());
        assert_eq!(Probe::open(&packet, &key()), Ok(probe()));
        for n in 0..packet.len() {
            assert!(matches!(Probe::open(&packet[..n], &key()), Err(WireError::TooShort { .. })));
        }
        for bit in 0..packet.len() * 8 {
            let mut bad = packet;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Probe::open(&bad, &key()), Err(WireError::Mac), "bit {bit}");
        }
        let mut long = [0; Probe::PACKET_LEN + 1];
        long[..Probe::PACKET_LEN].copy_from_slice(&packet);
        assert!(matches!(
            Probe::open(&long, &key()),
            Err(WireError::Field { field: "length", .. })
        ));
        assert_eq!(Probe::open(&packet, &ProbeKey([9; 16])), Err(WireError::Mac));
    }

    #[test]
    fn a_report_keeps_loss_and_rtt_and_saturates() {
        let request = ProbeReport::new(0.25, Some(0.0305)).pack(probe());
        assert_eq!((request.ss, request.r), (1 << 30, 30_500));
        assert_eq!(Probe { ss: 6, r: 7, ..request }, probe(), "all else stays");
        let report = ProbeReport::unpack(&request);
        assert_eq!((report.rtl(), report.rtt()), (0.25, Some(0.0305)));
        assert_eq!(ProbeReport::new(1.0, None), ProbeReport { loss: u32::MAX, rtt_us: 0 });
        assert_eq!(ProbeReport::new(1.0, None).rtt(), None);
        assert_eq!(ProbeReport::new(-1.0, Some(0.0)), ProbeReport { loss: 0, rtt_us: 1 });
        assert_eq!(
            ProbeReport::new(f64::NAN, Some(1e9)),
            ProbeReport { loss: 0, rtt_us: u32::MAX }
        );
    }

    #[test]
    fn a_ride_gives_the_probe_and_the_inner_packet_whatever_that_is() {
        let header = Header { packet_type: PacketType::Ride, ..header() };
        let sealed = probe().seal(&header, &key());
        for inner in [&[][..], &[0x45], &[9; 1400]] {
            let mut packet = [&sealed[..], inner].concat();
            assert_eq!(Probe::open_ride(&packet, &key()), Ok((probe(), inner)));
            for bit in 0..Probe::PACKET_LEN * 8 {
                packet[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Probe::open_ride(&packet, &key()), Err(WireError::Mac), "bit {bit}");
                packet[bit / 8] ^= 1 << (bit % 8);
            }
        }
        for n in 0..sealed.len() {
            assert_eq!(
                Probe::open_ride(&sealed[..n], &key()),
                Err(WireError::TooShort { what: "probe", got: n, min: 56 })
            );
        }
    }

    proptest! {
        #[test]
        fn probe_data_round_trips(bytes in proptest::array::uniform32(any::<u8>())) {
            prop_assert_eq!(Probe::parse(&bytes).emit(), bytes);
        }
    }
}
