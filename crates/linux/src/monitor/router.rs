//! Options of router advertisements that the kernel leaves to programs.

use std::convert::Infallible;

use rtnetlink::packet_core::{NetlinkDeserializable, NetlinkHeader};

/// `RTM_NEWNDUSEROPT` (linux/rtnetlink.h).
const NEW_USER_OPTION: u16 = 68;
/// Length of `struct nduseroptmsg` (linux/rtnetlink.h): family, padding, length of the options, interface, type and
/// code of the ICMPv6 message, padding.
const HEADER: usize = 16;
/// The ICMPv6 type of a router advertisement.
const ROUTER_ADVERTISEMENT: u8 = 134;

/// Options of a router advertisement that the kernel accepted on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterOptions {
    /// Index of the interface.
    pub interface: u32,
    /// The options as the router sent them, each with its type and length.
    pub options: Vec<u8>,
}

impl RouterOptions {
    /// Parses the message after the netlink header; `None` if it is truncated or of another kind.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<RouterOptions> {
        let (header, rest) = message.split_at_checked(HEADER)?;
        let is_advertisement =
            i32::from(header[0]) == libc::AF_INET6 && header[8] == ROUTER_ADVERTISEMENT;
        let length = u16::from_ne_bytes([header[2], header[3]]);
        let interface = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        // Netlink attributes follow the options.
        let options = rest.get(..usize::from(length))?.to_vec();
        (is_advertisement && interface > 0).then_some(RouterOptions { interface, options })
    }
}

/// A message of the group for these options.
#[derive(Debug)]
pub(super) struct UserOption(pub(super) Option<RouterOptions>);

impl NetlinkDeserializable for UserOption {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<UserOption, Infallible> {
        let is_option = header.message_type == NEW_USER_OPTION;
        Ok(UserOption(is_option.then(|| RouterOptions::parse(payload)).flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about interface 3 with a PREF64 option (RFC 8781) and the router's address as attribute, in the
    /// machine's byte order.
    fn message() -> Vec<u8> {
        let mut all = vec![libc::AF_INET6 as u8, 0];
        all.extend(16u16.to_ne_bytes());
        all.extend(3u32.to_ne_bytes());
        all.extend([ROUTER_ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0]);
        all.extend(OPTION);
        all.extend(20u16.to_ne_bytes());
        all.extend(1u16.to_ne_bytes());
        all.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        all
    }

    const OPTION: [u8; 16] = [38, 2, 7, 8, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn the_options_are_those_between_header_and_attributes() {
        let read = RouterOptions::parse(&message());
        assert_eq!(read, Some(RouterOptions { interface: 3, options: OPTION.to_vec() }));
    }

    #[test]
    fn a_message_that_is_cut_or_of_another_kind_gives_none() {
        let whole = message();
        for len in 0..HEADER + OPTION.len() {
            assert_eq!(RouterOptions::parse(&whole[..len]), None, "{len} bytes");
        }
        for (at, byte) in [(0, libc::AF_INET as u8), (8, 137)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert_eq!(RouterOptions::parse(&other), None, "byte {at}");
        }
        let mut nowhere = whole;
        nowhere[4..8].fill(0);
        assert_eq!(RouterOptions::parse(&nowhere), None);
    }

    #[test]
    fn other_messages_of_netlink_are_passed_over() {
        let mut header = NetlinkHeader::default();
        for (kind, is_read) in [(NEW_USER_OPTION, true), (16, false)] {
            header.message_type = kind;
            let UserOption(read) = UserOption::deserialize(&header, &message()).unwrap();
            assert_eq!(read.is_some(), is_read, "{kind}");
        }
    }
}
