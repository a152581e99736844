//! Current knowledge of the devices: all fields from the last snapshot, link states from later notifications.

use std::collections::BTreeSet;

use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use segue_ip::{DownReason, LinkEvent};

use super::device::{Device, finished};
use super::reading::link;

/// The devices, by index.
pub(super) struct View {
    devices: Vec<Device>,
    /// Indices of links with a notification since the current reading began; the reading may be older.
    heard: BTreeSet<u32>,
}

impl View {
    pub(super) fn new(devices: Vec<Device>) -> View {
        View { devices, heard: BTreeSet::new() }
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Marks the beginning of a reading.
    pub(super) fn begin(&mut self) {
        self.heard.clear();
    }

    /// Applies a link notification. Other changes wait for the next reading.
    pub(super) fn hear(&mut self, message: &RouteNetlinkMessage) -> Option<LinkEvent> {
        match message {
            RouteNetlinkMessage::NewLink(message) if says_state(message) => self.set(message),
            RouteNetlinkMessage::DelLink(message) if is_device(message) => {
                self.remove(message.header.index)
            }
            _ => None,
        }
    }

    fn set(&mut self, message: &LinkMessage) -> Option<LinkEvent> {
        let new = finished(link(message));
        self.heard.insert(new.interface.index);
        let why = match message.header.flags.contains(LinkFlags::Up) {
            true => DownReason::PacketTimeout,
            false => DownReason::ExplicitDisconnect,
        };
        match self.place(new.interface.index) {
            Ok(at) => {
                let event = change(&self.devices[at], new.up, why);
                self.devices[at].up = new.up;
                event
            }
            Err(at) => {
                let event = appearance(&new);
                self.devices.insert(at, new);
                event
            }
        }
    }

    fn remove(&mut self, index: u32) -> Option<LinkEvent> {
        self.heard.insert(index);
        let at = self.place(index).ok()?;
        change(&self.devices.remove(at), false, DownReason::ExplicitDisconnect)
    }

    /// Applies a reading, except for link states that were notified since it began. Returns events for link changes
    /// without a notification: the kernel had no room for it or has not sent it yet.
    pub(super) fn take(&mut self, read: Vec<Device>) -> Vec<LinkEvent> {
        let old = View { devices: std::mem::take(&mut self.devices), heard: BTreeSet::new() };
        let mut events = Vec::new();
        for new in read {
            let known = old.place(new.interface.index).ok().map(|at| &old.devices[at]);
            match (known, self.heard.contains(&new.interface.index)) {
                (Some(known), true) => self.devices.push(Device { up: known.up, ..new }),
                // Removed since the reading began.
                (None, true) => {}
                (Some(known), false) => {
                    events.extend(change(known, new.up, DownReason::PacketTimeout));
                    self.devices.push(new);
                }
                (None, false) => {
                    events.extend(appearance(&new));
                    self.devices.push(new);
                }
            }
        }
        for known in old.devices {
            if let Err(at) = self.place(known.interface.index) {
                if self.heard.contains(&known.interface.index) {
                    // Added since the reading began.
                    self.devices.insert(at, known);
                } else {
                    events.extend(change(&known, false, DownReason::ExplicitDisconnect));
                }
            }
        }
        events
    }

    fn place(&self, index: u32) -> Result<usize, usize> {
        self.devices.binary_search_by_key(&index, |device| device.interface.index)
    }
}

/// A bridge reports its ports in messages of the bridge family: the removal of a port there only means that it left the
/// bridge.
fn is_device(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

/// Messages about other subjects (wireless scans) omit the state.
fn says_state(message: &LinkMessage) -> bool {
    let says = |a: &LinkAttribute| matches!(a, LinkAttribute::OperState(_));
    is_device(message) && message.attributes.iter().any(says)
}

fn appearance(new: &Device) -> Option<LinkEvent> {
    change(&Device { up: false, ..new.clone() }, new.up, DownReason::PacketTimeout)
}

fn change(known: &Device, up: bool, why: DownReason) -> Option<LinkEvent> {
    let (interface, poa) = (known.interface.index, None);
    match (known.up, up) {
        _ if known.loopback => None,
        (false, true) => Some(LinkEvent::Up { interface, poa }),
        (true, false) => Some(LinkEvent::Down { interface, poa, why }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::State;

    use super::*;

    const CARRIER: DownReason = DownReason::PacketTimeout;
    const SWITCHED_OFF: DownReason = DownReason::ExplicitDisconnect;

    fn message(index: u32, flags: LinkFlags, state: State) -> LinkMessage {
        let mut message = LinkMessage::default();
        (message.header.index, message.header.flags) = (index, flags);
        message.attributes = vec![LinkAttribute::OperState(state)];
        message
    }

    /// The kernel's notification for a link that is up (`true`), without carrier (`false`), or administratively down.
    fn notice(index: u32, up: Option<bool>) -> RouteNetlinkMessage {
        RouteNetlinkMessage::NewLink(match up {
            Some(true) => message(index, LinkFlags::Up | LinkFlags::LowerUp, State::Up),
            Some(false) => message(index, LinkFlags::Up, State::LowerLayerDown),
            None => message(index, LinkFlags::empty(), State::Down),
        })
    }

    fn device(index: u32, up: bool) -> Device {
        let RouteNetlinkMessage::NewLink(message) = notice(index, Some(up)) else { panic!() };
        finished(link(&message))
    }

    fn up(interface: u32) -> Option<LinkEvent> {
        Some(LinkEvent::Up { interface, poa: None })
    }

    fn down(interface: u32, why: DownReason) -> Option<LinkEvent> {
        Some(LinkEvent::Down { interface, poa: None, why })
    }

    #[test]
    fn a_link_is_told_of_when_it_changes_and_why() {
        let mut view = View::new(vec![device(3, true)]);
        assert_eq!(view.hear(&notice(3, Some(true))), None);
        assert_eq!(view.hear(&notice(3, Some(false))), down(3, CARRIER));
        assert_eq!(view.hear(&notice(3, None)), None, "it was down");
        assert_eq!(view.hear(&notice(3, Some(true))), up(3));
        assert_eq!(view.hear(&notice(3, None)), down(3, SWITCHED_OFF));
        assert_eq!(view.hear(&notice(2, Some(true))), up(2));
        assert_eq!(view.devices(), [device(2, true), device(3, false)]);
        let mut gone = LinkMessage::default();
        gone.header.index = 2;
        assert_eq!(view.hear(&RouteNetlinkMessage::DelLink(gone.clone())), down(2, SWITCHED_OFF));
        assert_eq!(view.hear(&RouteNetlinkMessage::DelLink(gone)), None);
        assert_eq!(view.devices(), [device(3, false)]);
    }

    #[test]
    fn messages_that_do_not_speak_of_a_device_and_loopback_devices_are_passed_over() {
        let mut view =
            View::new(vec![device(3, true), Device { loopback: true, ..device(4, true) }]);
        let mut port = message(3, LinkFlags::empty(), State::Down);
        port.header.interface_family = AddressFamily::Bridge;
        assert_eq!(view.hear(&RouteNetlinkMessage::NewLink(port.clone())), None);
        assert_eq!(view.hear(&RouteNetlinkMessage::DelLink(port)), None);
        let mut scan = message(3, LinkFlags::Up, State::Down);
        scan.attributes.clear();
        assert_eq!(view.hear(&RouteNetlinkMessage::NewLink(scan)), None);
        assert_eq!(view.hear(&notice(4, None)), None);
        assert!(view.devices()[0].up && !view.devices()[1].up);
    }

    #[test]
    fn a_reading_tells_what_was_not_heard_and_yields_to_what_was_heard_since_it_began() {
        let mut view = View::new(vec![device(1, true), device(2, true), device(3, true)]);
        view.begin();
        assert_eq!(view.hear(&notice(2, Some(false))), down(2, CARRIER));
        assert_eq!(view.hear(&notice(5, Some(true))), up(5));
        // Device 6 came and went during the reading.
        view.hear(&notice(6, Some(true)));
        let mut gone = LinkMessage::default();
        gone.header.index = 6;
        view.hear(&RouteNetlinkMessage::DelLink(gone));
        let mut second = device(2, true);
        second.interface.mtu_bytes = 1400;
        // No notifications arrived for devices 1, 3 and 4.
        let read = vec![device(1, false), second.clone(), device(4, true), device(6, true)];
        let told = [down(1, CARRIER), up(4), down(3, SWITCHED_OFF)];
        assert_eq!(view.take(read), told.into_iter().flatten().collect::<Vec<_>>());
        second.up = false;
        assert_eq!(view.devices(), [device(1, false), second, device(4, true), device(5, true)]);
        // The next reading is newer than all of them.
        view.begin();
        assert_eq!(view.take(vec![device(2, true)]).len(), 3);
        assert_eq!(view.devices(), [device(2, true)]);
    }
}
