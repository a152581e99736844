//! Blocking netlink requests, one at a time, with the message and socket types of the rtnetlink crates.
//!
//! The socket is opened in the calling thread's namespace. The functions run on any thread, including inside an async
//! runtime, where a caller must not block on rtnetlink's own client because that client needs a runtime to itself. To
//! watch for changes, use [`monitor`](crate::monitor).

use std::fmt::Debug;
use std::io;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_ALIGNTO, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};

/// Sends a request with `flags` and waits for the kernel's acknowledgement.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    request_of(NETLINK_ROUTE, message, flags)
}

/// Like [`request`], for another netlink protocol.
pub(crate) fn request_of<M>(protocol: isize, message: M, flags: u16) -> io::Result<()>
where
    M: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    exchange(protocol, message, flags | NLM_F_ACK).map(drop)
}

/// Requests a single object and returns the replies.
pub(crate) fn ask(message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    exchange(NETLINK_ROUTE, message, NLM_F_ACK)
}

/// Requests a list and returns its entries in the kernel's order.
pub(crate) fn dump(message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    exchange(NETLINK_ROUTE, message, NLM_F_DUMP)
}

/// Sends a request with `flags` and returns the replies.
pub(crate) fn exchange<M>(protocol: isize, message: M, flags: u16) -> io::Result<Vec<M>>
where
    M: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    let mut header = NetlinkHeader::default();
    header.flags = flags | NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let socket = Socket::new(protocol)?;
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let mut answers = Vec::new();
    loop {
        let datagram = match socket.recv_from_full() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?.0,
        };
        if read_datagram(&datagram, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Parses the messages of one datagram; true when the reply is complete.
pub(crate) fn read_datagram<M>(mut rest: &[u8], answers: &mut Vec<M>) -> io::Result<bool>
where
    M: NetlinkDeserializable + Debug,
{
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
    while !rest.is_empty() {
        let len = NetlinkBuffer::new_checked(rest).map_err(invalid)?.length() as usize;
        match NetlinkMessage::deserialize(&rest[..len]).map(|m| m.payload) {
            Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
            Ok(NetlinkPayload::Done(done)) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(-done.code));
            }
            Ok(NetlinkPayload::Done(_)) => return Ok(true),
            Ok(NetlinkPayload::Error(e)) if e.code.is_some() => return Err(e.to_io()),
            Ok(NetlinkPayload::Error(_)) => return Ok(true),
            Ok(other) => tracing::debug!("netlink message without content: {other:?}"),
            // One unparsable device or route must not hide all others. Debug level, because a caller that polls every
            // second would log it every second.
            Err(e) => tracing::debug!("netlink message left out: {e}"),
        }
        let aligned = len.next_multiple_of(usize::from(NLMSG_ALIGNTO));
        rest = rest.get(aligned..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};

    use super::*;

    fn bytes_of(payload: NetlinkPayload<RouteNetlinkMessage>) -> Vec<u8> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn link(name: &str) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        bytes_of(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)))
    }

    fn read(datagram: &[u8]) -> io::Result<(bool, Vec<RouteNetlinkMessage>)> {
        let mut answers = Vec::new();
        Ok((read_datagram(datagram, &mut answers)?, answers))
    }

    #[test]
    fn a_datagram_of_several_messages_is_read_to_its_end() {
        let (done, answers) = read(&[link("lo"), link("wlan0")].concat()).unwrap();
        assert_eq!((done, answers.len()), (false, 2));
        let end = bytes_of(NetlinkPayload::Done(Default::default()));
        let (done, answers) = read(&[link("lo"), end].concat()).unwrap();
        assert_eq!((done, answers.len()), (true, 1));
    }

    #[test]
    fn a_message_that_cannot_be_read_is_left_out_and_a_truncated_one_is_an_error() {
        let mut odd = link("lo");
        odd[4..6].copy_from_slice(&999u16.to_ne_bytes());
        let (done, answers) = read(&[odd, link("wlan0")].concat()).unwrap();
        assert_eq!((done, answers.len()), (false, 1));
        let whole = link("lo");
        for len in 1..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_dump_that_the_kernel_breaks_off_is_its_error() {
        let mut end = bytes_of(NetlinkPayload::Done(Default::default()));
        end[16..20].copy_from_slice(&(-libc::EINTR).to_ne_bytes());
        assert_eq!(read(&end).unwrap_err().raw_os_error(), Some(libc::EINTR));
    }
}
