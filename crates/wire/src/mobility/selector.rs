//! Binary traffic selectors, which describe the packets of a flow (RFC 6088).
//!
//! ```text
//! | TS Format     |   Reserved    |
//! |A|B|C|D|E|F|G|H|I|J|K|L|M|N|O|P|           Reserved            |
//! ~            the fields whose flags are set, in order           ~
//! ```
//!
//! The flags come in pairs, for the start and end of a field. Format 2 (IPv6) has source address, destination address,
//! IPsec SPI, flow label, source port, destination port, traffic class and next header; format 1 (IPv4) has no flow
//! label. Fields are packed.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire};

/// The flow label has 20 bits; the upper bits of its field are ignored.
const FLOW_LABEL: u32 = 0x000f_ffff;

/// TS Format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// 1, IPv4 binary traffic selector.
    Ipv4,
    /// 2, IPv6 binary traffic selector.
    Ipv6,
}

impl Family {
    /// The family's format number.
    #[must_use]
    pub const fn ts_format(self) -> u8 {
        match self {
            Family::Ipv4 => 1,
            Family::Ipv6 => 2,
        }
    }

    /// The family of a format number, if known.
    #[must_use]
    pub const fn of_ts_format(ts_format: u8) -> Option<Family> {
        match ts_format {
            1 => Some(Family::Ipv4),
            2 => Some(Family::Ipv6),
            _ => None,
        }
    }
}

/// A range from `start` to `end`, both inclusive; without an end, `start` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Span<T> {
    /// First value.
    pub start: T,
    /// Last value. A span that ends before its start is empty.
    pub end: Option<T>,
}

impl<T: Copy + Ord> Span<T> {
    /// A single value.
    #[must_use]
    pub const fn one(value: T) -> Span<T> {
        Span { start: value, end: None }
    }

    /// All values from `start` to `end`.
    #[must_use]
    pub const fn range(start: T, end: T) -> Span<T> {
        Span { start, end: Some(end) }
    }

    /// The last value.
    #[must_use]
    pub fn last(&self) -> T {
        self.end.unwrap_or(self.start)
    }

    /// Returns whether the span contains a value.
    #[must_use]
    pub fn contains(&self, value: T) -> bool {
        self.start <= value && value <= self.last()
    }

    fn map<U>(self, form: impl Fn(T) -> U) -> Span<U> {
        Span { start: form(self.start), end: self.end.map(form) }
    }
}

/// A traffic selector. A packet must match all spans; a span that is `None` matches any packet. Addresses and ports are
/// those of packets to the mobile node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficSelector {
    /// Family of the packets and addresses.
    pub family: Family,
    /// Source addresses.
    pub source_address: Option<Span<IpAddr>>,
    /// Destination addresses.
    pub destination_address: Option<Span<IpAddr>>,
    /// IPsec Security Parameter Index.
    pub ipsec_spi: Option<Span<u32>>,
    /// Flow label, 20 bits; `None` for IPv4.
    pub flow_label: Option<Span<u32>>,
    /// Source ports.
    pub source_port: Option<Span<u16>>,
    /// Destination ports.
    pub destination_port: Option<Span<u16>>,
    /// The upper six bits of the traffic class, 0 to 63.
    pub dscp: Option<Span<u8>>,
    /// IPv4 protocol or IPv6 next header.
    pub protocol: Option<Span<u8>>,
}

impl TrafficSelector {
    /// A selector that matches every packet of a family.
    #[must_use]
    pub const fn any(family: Family) -> TrafficSelector {
        TrafficSelector {
            family,
            source_address: None,
            destination_address: None,
            ipsec_spi: None,
            flow_label: None,
            source_port: None,
            destination_port: None,
            dscp: None,
            protocol: None,
        }
    }

    /// Reads the selector behind TS Format and the reserved byte; it must fill `bytes`.
    ///
    /// # Errors
    /// [`WireError::TooShort`] and [`WireError::Length`]; [`WireError::Field`] for an end flag without its start flag.
    pub fn parse(family: Family, bytes: &[u8]) -> Result<TrafficSelector, WireError> {
        let mut reader = Reader::new("Traffic Selector", bytes, 0);
        let flags = u16::read(&mut reader)?;
        reader.take(2)?;
        let mut fields = Fields { reader, flags, start: 0x8000 };
        let selector = TrafficSelector {
            family,
            source_address: fields.address(family)?,
            destination_address: fields.address(family)?,
            ipsec_spi: fields.next()?,
            flow_label: match family {
                Family::Ipv4 => None,
                Family::Ipv6 => fields.next()?.map(|span: Span<u32>| span.map(|f| f & FLOW_LABEL)),
            },
            source_port: fields.next()?,
            destination_port: fields.next()?,
            dscp: fields.next()?.map(|span: Span<u8>| span.map(|class| class >> 2)),
            protocol: fields.next()?,
        };
        fields.reader.end()?;
        Ok(selector)
    }

    /// The bytes behind TS Format and the reserved byte.
    ///
    /// # Errors
    /// [`WireError::Field`] if an address is of another family, IPv4 has a flow label, or a value has too many bits.
    pub fn emit(&self) -> Result<Vec<u8>, WireError> {
        self.check()?;
        let mut bytes = Vec::with_capacity(32);
        self.write(&mut bytes);
        Ok(bytes)
    }

    /// Appends these bytes without checking the values.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        bytes.extend([0; 4]);
        let mut out = Written { flags: 0, start: 0x8000, bytes };
        out.push(self.source_address);
        out.push(self.destination_address);
        out.push(self.ipsec_spi);
        if self.family == Family::Ipv6 {
            out.push(self.flow_label);
        }
        out.push(self.source_port);
        out.push(self.destination_port);
        out.push(self.dscp.map(|span| span.map(|dscp| dscp << 2)));
        out.push(self.protocol);
        let flags = out.flags.to_be_bytes();
        bytes[at..at + 2].copy_from_slice(&flags);
    }

    /// Checks that all values can be written.
    pub(super) fn check(&self) -> Result<(), WireError> {
        let wrong = |field, got| Err(WireError::Field { field, got });
        let ends = [self.source_address, self.destination_address];
        for address in ends.iter().flatten().flat_map(|span| [span.start, span.last()]) {
            if address.is_ipv6() != (self.family == Family::Ipv6) {
                return wrong("TS Format", self.family.ts_format().into());
            }
        }
        let dscp = self.dscp.map_or(0, |span| span.start.max(span.last()));
        if dscp > 63 {
            return wrong("DSCP", dscp.into());
        }
        let label = self.flow_label.map_or(0, |span| span.start.max(span.last()));
        if label > FLOW_LABEL || self.family == Family::Ipv4 && self.flow_label.is_some() {
            return wrong("Flow Label", label);
        }
        Ok(())
    }
}

/// State of reading a selector's fields.
struct Fields<'a> {
    reader: Reader<'a>,
    flags: u16,
    /// The start flag of the next field; the end flag is the next lower bit.
    start: u16,
}

impl Fields<'_> {
    fn next<T: Wire>(&mut self) -> Result<Option<Span<T>>, WireError> {
        let (starts, ends) = (self.flags & self.start != 0, self.flags & (self.start >> 1) != 0);
        self.start >>= 2;
        match (starts, ends) {
            (false, false) => Ok(None),
            (false, true) => {
                Err(WireError::Field { field: "Traffic Selector flags", got: self.flags.into() })
            }
            (true, _) => {
                let start = T::read(&mut self.reader)?;
                let end = if ends { Some(T::read(&mut self.reader)?) } else { None };
                Ok(Some(Span { start, end }))
            }
        }
    }

    fn address(&mut self, family: Family) -> Result<Option<Span<IpAddr>>, WireError> {
        Ok(match family {
            Family::Ipv4 => self.next::<Ipv4Addr>()?.map(|span| span.map(IpAddr::from)),
            Family::Ipv6 => self.next::<Ipv6Addr>()?.map(|span| span.map(IpAddr::from)),
        })
    }
}

/// State of writing a selector's fields.
struct Written<'a> {
    flags: u16,
    start: u16,
    bytes: &'a mut Vec<u8>,
}

impl Written<'_> {
    fn push<T: Wire>(&mut self, span: Option<Span<T>>) {
        if let Some(span) = span {
            self.flags |= self.start;
            span.start.write(self.bytes);
            if let Some(end) = span.end {
                self.flags |= self.start >> 1;
                end.write(self.bytes);
            }
        }
        self.start >>= 2;
    }
}
