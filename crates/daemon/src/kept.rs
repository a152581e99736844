//! What machines want of this system's forwarding: given to it, put back when others have removed it, and taken back
//! at the end.

use segue_ip::{Forward, Forwarding};
use segue_linux::{Kernel, LinuxError};

/// Parts that are given again in one go: none is urgent.
const LOOKED_AT: usize = 64;

/// The parts of forwarding that a daemon has given to the kernel. Dropping this takes them back.
#[derive(Default)]
pub struct Kept {
    parts: Vec<Forward>,
    /// Where the next look begins.
    next: usize,
}

impl Kept {
    /// Gives the kernel a part.
    pub fn put(&mut self, part: Forward) -> Result<(), LinuxError> {
        let done = Kernel.put(&part);
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
        done
    }

    /// Takes a part back.
    pub fn take_back(&mut self, part: &Forward) -> Result<(), LinuxError> {
        self.parts.retain(|known| known != part);
        Kernel.take_back(part)
    }

    /// Puts back what others have removed, a bounded number of parts at a time.
    pub fn look_after(&mut self) -> Result<(), LinuxError> {
        if self.next >= self.parts.len() {
            self.next = 0;
        }
        let looked_at = self.parts.iter().skip(self.next).take(LOOKED_AT);
        self.next += LOOKED_AT;
        looked_at.map(|part| Kernel.put(part)).fold(Ok(()), Result::and)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for part in self.parts.iter().rev() {
            if let Err(error) = Kernel.take_back(part) {
                tracing::warn!("{error}");
            }
        }
    }
}
