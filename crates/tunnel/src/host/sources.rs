//! Chooses a path's outer source address: the configured one, else the driver's preferred one, else the next one as
//! long as none is answered.

use core::net::IpAddr;

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::Interface;

use super::Host;
use super::source::of_family;

/// How long an address has to be answered for the first time.
const FIRST_ANSWER: Span = Span::from_secs(3);
/// How long an address that was once answered stays in use without answers: usually the link is at fault.
const SILENCE: Span = Span::from_secs(30);

impl Host {
    /// The outer source address for a path over this interface.
    pub(super) fn source(&self, interface: &Interface, v4: bool) -> Option<IpAddr> {
        let mut all = of_family(interface, v4);
        let configured = self.config.path_of(&interface.name).source;
        if let Some(configured) = configured.filter(|own| own.is_ipv4() == v4) {
            return all.find(|own| *own == configured);
        }
        let first = all.next()?;
        // An address that was tried because the same preferred address had no answer stays in use.
        let path = self.paths.values().find(|path| path.name == interface.name);
        let tried = path.filter(|path| path.sources.first == first).map(|path| path.local);
        Some(tried.filter(|tried| interface.addresses.contains(tried)).unwrap_or(first))
    }

    /// The addresses that a path may send from, in the order of attempts.
    fn choices(&self, number: u8) -> Vec<IpAddr> {
        let Some(path) = self.paths.get(&number) else { return Vec::new() };
        let v4 = path.local.is_ipv4();
        if path.settings().source.is_some_and(|own| own.is_ipv4() == v4) {
            return Vec::new();
        }
        let interface = self.interfaces.iter().find(|i| i.name == path.name);
        interface.map(|i| of_family(i, v4).collect()).unwrap_or_default()
    }

    /// Starts the timer for an answer to the path's current address, if there is another to try.
    pub(super) fn await_answer(&mut self, now: Time, number: u8) {
        let others = self.choices(number).len() > 1;
        let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set()) else { return };
        if path.is_up() {
            path.sources.answered = Some(path.local);
        }
        let known = path.sources.answered == Some(path.local);
        let patience = if known { SILENCE } else { FIRST_ANSWER };
        path.sources.next_at = Some(now + patience).filter(|_| others && !path.is_up());
    }

    /// Tries the next address on paths without a timely answer. To the anchor this looks like a NAT rebinding.
    pub(super) fn tick_sources(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let paths = self.paths.iter().filter(|(_, path)| due(path.sources.next_at));
        let numbers: Vec<u8> = paths.map(|(number, _)| *number).collect();
        for number in numbers {
            self.try_next_source(now, number);
        }
    }

    fn try_next_source(&mut self, now: Time, number: u8) {
        let choices = self.choices(number);
        let Some(path) = self.paths.get_mut(&number) else { return };
        path.sources.next_at = None;
        let at = choices.iter().position(|own| *own == path.local);
        let next = at.and_then(|at| choices.iter().cycle().nth(at + 1)).or(choices.first());
        let interface = self.interfaces.iter().find(|i| i.name == path.name);
        let Some((next, interface)) = next.zip(interface) else { return };
        (path.local, path.gateway) = (*next, interface.gateway(*next));
        self.configure(number);
        self.show_endpoint(now, number);
        self.await_answer(now, number);
    }
}
