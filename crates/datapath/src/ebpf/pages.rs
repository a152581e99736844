//! Reads the flows of the programs' table page by page.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::MapHandle;
use libbpf_sys::bpf_map_batch_opts;

use super::skel::{flow_key, flow_value};
use crate::{FLOWS_A_PAGE, FlowCursor};

/// Reads the table starting at a bucket, and returns where to continue. The kernel returns whole buckets, and a flow
/// stays in its bucket, so none is returned twice or left out. If a page cannot be read, the listing ends.
pub(super) fn page(
    flows: &MapHandle,
    from: FlowCursor,
) -> (Vec<(flow_key, flow_value)>, Option<FlowCursor>) {
    // Bucket numbers have 32 bits; a larger number is past the last bucket.
    let Ok(begin) = u32::try_from(from.0) else { return (Vec::new(), None) };
    let mut keys = vec![flow_key::default(); FLOWS_A_PAGE];
    let mut values = vec![flow_value::default(); FLOWS_A_PAGE];
    // For a hash table the kernel uses only four bytes of each cursor, which is large enough for a key.
    let (mut begin, mut next) = ([begin; ROOM], [0u32; ROOM]);
    let (mut count, options) = (FLOWS_A_PAGE as u32, options());
    let failed = loop {
        // SAFETY: arrays of `count` keys and values of the table's own types, room for a key at both
        // cursors, and options that outlive the call.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                flows.as_fd().as_raw_fd(),
                begin.as_mut_ptr().cast(),
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        if result != -libc::EINTR {
            break (result != 0).then_some(-result);
        }
        count = FLOWS_A_PAGE as u32;
    };
    if let Some(error) = failed.filter(|error| *error != libc::ENOENT) {
        let error = std::io::Error::from_raw_os_error(error);
        tracing::warn!(%error, "the flows could not be listed to their end");
        return (Vec::new(), None);
    }
    keys.truncate(count as usize);
    let next = failed.is_none().then_some(FlowCursor(next[0].into()));
    (keys.into_iter().zip(values).collect(), next)
}

/// Words of a key.
const ROOM: usize = size_of::<flow_key>() / 4;

fn options() -> bpf_map_batch_opts {
    bpf_map_batch_opts { sz: size_of::<bpf_map_batch_opts>() as u64, ..Default::default() }
}
