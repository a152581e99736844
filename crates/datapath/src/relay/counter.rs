//! Packet counts of host prefixes.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_ip::Prefix;

use super::plane::Plane;
use super::reader::Shore;
use super::words::Count;
use crate::DatapathError;

/// Counts the traffic of host prefixes through a relay's tunnels; a prefix is counted from its first [`Counter::read`]
/// to [`Counter::end`]. Requires a relay that was set up to count ([`Counts`](super::Counts)).
pub struct Counter {
    shore: Arc<Shore>,
    counted: BTreeSet<Prefix>,
}

impl Counter {
    pub(super) fn new(shore: &Arc<Shore>) -> Counter {
        Counter { shore: Arc::clone(shore), counted: BTreeSet::new() }
    }

    fn plane(&self) -> &dyn Plane {
        &*self.shore.plane
    }

    /// The traffic of a prefix since the first call for it.
    ///
    /// # Errors
    /// When the kernel refuses to count the prefix.
    pub fn read(&mut self, prefix: Prefix) -> Result<Count, DatapathError> {
        let prefix = prefix.network();
        if !self.counted.contains(&prefix) {
            self.plane().count(prefix)?;
            self.counted.insert(prefix);
        }
        Ok(self.plane().counted(prefix))
    }

    /// Stops counting a prefix.
    pub fn end(&mut self, prefix: Prefix) {
        let prefix = prefix.network();
        if self.counted.remove(&prefix) {
            self.plane().count_no_more(prefix);
        }
    }
}
