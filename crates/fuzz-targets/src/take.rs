//! Takes numbers from a target's input.

/// Takes the first `N` bytes of an input, with zeros for missing ones.
pub(crate) fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let n = data.len().min(N);
    bytes[..n].copy_from_slice(&data[..n]);
    *data = &data[n..];
    bytes
}
