//! The programs' maps as bytes: plain types shared by both sides, and functions to read and write them.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use segue_wire::DropReason;

use crate::DatapathError;

/// A type shared with the programs.
///
/// # Safety
/// `repr(C)`, integers only, no implicit padding: every byte is initialised, every pattern valid.
pub(crate) unsafe trait Shared: Copy {
    /// The bytes in the layout of the programs.
    fn bytes(&self) -> &[u8] {
        // SAFETY: by the trait's promise all bytes of `self` are initialised; the slice borrows it.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Reads a value from the programs' bytes; `None` if the length differs.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length fits, and by the trait's promise every pattern is a value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// Marks generated types as [`Shared`].
macro_rules! shared {
    ($($name:ty),*) => {$(
        // SAFETY: the header gives the type fixed-width integers with explicit padding, and a test checks
        // its size.
        unsafe impl $crate::maps::Shared for $name {}
    )*};
}

pub(crate) use shared;

shared!(u32, u64);

/// Conversions between a generated flow key and that of the wire crate.
macro_rules! flow_keys {
    ($name:ty) => {
        impl From<&segue_wire::FlowKey> for $name {
            fn from(key: &segue_wire::FlowKey) -> $name {
                Self {
                    src: $crate::maps::mapped(key.src),
                    dst: $crate::maps::mapped(key.dst),
                    sport: key.sport.to_be(),
                    dport: key.dport.to_be(),
                    protocol: key.protocol,
                    reserved: [0; 3],
                    label: key.label,
                }
            }
        }

        impl From<&$name> for segue_wire::FlowKey {
            fn from(key: &$name) -> segue_wire::FlowKey {
                segue_wire::FlowKey {
                    src: $crate::maps::unmapped(key.src),
                    dst: $crate::maps::unmapped(key.dst),
                    sport: u16::from_be(key.sport),
                    dport: u16::from_be(key.dport),
                    protocol: key.protocol,
                    label: key.label,
                }
            }
        }
    };
}

pub(crate) use flow_keys;

pub(crate) fn put<K: Shared, V: Shared>(
    map: &MapHandle,
    what: &'static str,
    key: &K,
    value: &V,
) -> Result<(), DatapathError> {
    map.update(key.bytes(), value.bytes(), MapFlags::ANY).map_err(|e| kernel(what, &e))
}

pub(crate) fn get<K: Shared, V: Shared>(map: &MapHandle, key: &K) -> Option<V> {
    Shared::from_bytes(&map.lookup(key.bytes(), MapFlags::ANY).ok()??)
}

/// Removes an entry, if it exists.
pub(crate) fn take<K: Shared>(map: &MapHandle, key: &K) {
    let _ = map.delete(key.bytes());
}

/// The counts above zero in a table of refused packets.
pub(crate) fn refused(drops: &MapHandle) -> BTreeMap<DropReason, u64> {
    let count = |reason: DropReason| {
        let cpus = drops.lookup_percpu((reason as u32).bytes(), MapFlags::ANY).ok()??;
        Some(cpus.iter().filter_map(|v| u64::from_bytes(v)).sum())
    };
    let counts = DropReason::ALL.map(|reason| (reason, count(reason).unwrap_or(0)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Converts an error of libbpf.
pub(crate) fn kernel(what: &'static str, error: &libbpf_rs::Error) -> DatapathError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    DatapathError::Kernel { what, source: io::Error::new(kind, format!("{error:#}")) }
}

/// The address in the format of the programs: v4-mapped, bytes in network order.
pub(crate) fn mapped(address: IpAddr) -> [u32; 4] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    std::array::from_fn(|i| {
        u32::from_ne_bytes([octets[4 * i], octets[4 * i + 1], octets[4 * i + 2], octets[4 * i + 3]])
    })
}

/// The inverse of [`mapped`].
pub(crate) fn unmapped(words: [u32; 4]) -> IpAddr {
    let mut octets = [0; 16];
    for (chunk, word) in octets.chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    std::net::Ipv6Addr::from(octets).to_canonical()
}
