//! What a role adds to its machine.

use core::fmt::{Debug, Display};

use segue_aaa::{AaaInput, Side, Verdict};
use segue_clock::{Machine, UnixTime};
use segue_ip::{Input, Output};

use crate::Links;

/// A machine whose hosts RADIUS servers may know.
pub trait Role:
    Machine<
        Input = Input<Self::Own, Self::Record>,
        Output = Output<Self::Wish, Self::Report, Self::Record>,
    > + Sized
{
    /// The machine's own input.
    type Own;
    /// The machine's own output.
    type Wish;
    /// The machine's reports.
    type Report: Clone + Debug + Display + PartialEq + Eq;
    /// The records that it stores.
    type Record;
    /// The key of a host's interface.
    type Key: Ord + Clone;
    /// What it does with events of links.
    type Links: Links<Own = Self::Own>;
    /// The side on whose behalf servers are asked.
    const SIDE: Side;

    /// The client's input for a wish; `Err` returns a wish that does not concern the client.
    ///
    /// # Errors
    /// The wish is for the driver.
    fn radius_request(&self, wish: Self::Wish) -> Result<AaaInput<Self::Key>, Self::Wish>;

    /// The machine's input for a verdict of the servers.
    fn on_verdict(key: Self::Key, verdict: Verdict) -> Self::Own;

    /// The time of day, if the input carries it.
    fn time_of_day(own: &Self::Own) -> Option<UnixTime>;
}
