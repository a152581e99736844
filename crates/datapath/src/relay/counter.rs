//! Counts of hosts' prefixes.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_ip::Prefix;

use super::plane::Plane;
use super::reader::Shore;
use super::words::Count;
use crate::DatapathError;

/// Counts what prefixes of hosts carry through a relay's tunnels, each for as long as somebody wants to know. A relay counts
/// if it was set up to ([`Counts`](super::Counts)).
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

    /// What a prefix has carried since this was asked first.
    ///
    /// # Errors
    /// The kernel refuses to count it.
    pub fn read(&mut self, prefix: Prefix) -> Result<Count, DatapathError> {
        let prefix = prefix.network();
        if !self.counted.contains(&prefix) {
            self.plane().count(prefix)?;
            self.counted.insert(prefix);
        }
        Ok(self.plane().counted(prefix))
    }

    /// Counts a prefix no more.
    pub fn end(&mut self, prefix: Prefix) {
        let prefix = prefix.network();
        if self.counted.remove(&prefix) {
            self.plane().count_no_more(prefix);
        }
    }
}
