//! Restricts a socket to a set of source networks with a filter in the kernel. Packets from elsewhere cost the program
//! nothing, not even room in the socket's queue.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use segue_ip::Prefix;
use socket2::{SockFilter, SockRef};

/// Base of offsets from the network header, for sockets of any protocol (`linux/filter.h`, `SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Offset of the source address.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;
/// Maximum number of networks: the kernel accepts 4096 instructions.
pub const NETWORKS_MAX: usize = 256;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const SHIFT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn instruction(code: u32, yes: u8, no: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, yes, no, k)
}

/// Accepts a packet whose source is in this network; otherwise continues after the returned instructions.
fn network(prefix: Prefix) -> Vec<SockFilter> {
    let network = prefix.network();
    let (words, at): (Vec<u32>, u32) = match network.addr {
        IpAddr::V4(address) => (vec![address.to_bits()], SOURCE_V4),
        IpAddr::V6(address) => {
            let words = address.octets();
            let words = words.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
            (words.collect(), SOURCE_V6)
        }
    };
    let bits = |n: usize| u32::from(prefix.len).saturating_sub(32 * n as u32).min(32);
    let compared = words.iter().enumerate().filter(|(n, _)| bits(*n) > 0);
    let compared: Vec<(usize, u32)> = compared.map(|(n, word)| (n, *word)).collect();
    let last = compared.len();
    let mut program = Vec::new();
    for (done, (n, word)) in compared.into_iter().enumerate() {
        let mask = u32::MAX << (32 - bits(n));
        // Three instructions for each remaining word, and one to accept.
        let rest = 3 * (last - done - 1) as u8 + 1;
        program.push(instruction(LOAD_WORD, 0, 0, NETWORK_HEADER + at + 4 * n as u32));
        program.push(instruction(AND, 0, 0, mask));
        program.push(instruction(EQUAL, 0, rest, word));
    }
    program.push(instruction(RETURN, 0, 0, u32::MAX));
    program
}

/// The instructions for all networks of one family.
fn family(known: &[Prefix], is_v4: bool) -> Vec<SockFilter> {
    let own = known.iter().filter(|prefix| prefix.addr.is_ipv4() == is_v4);
    let mut program: Vec<SockFilter> = own.flat_map(|prefix| network(*prefix)).collect();
    program.push(instruction(RETURN, 0, 0, 0));
    program
}

/// Makes a socket drop packets from other networks. Packets that are already queued stay.
///
/// # Errors
/// `InvalidInput` for more than [`NETWORKS_MAX`], otherwise an error of the kernel.
pub fn only(socket: &impl AsFd, known: &[Prefix]) -> io::Result<()> {
    if known.len() > NETWORKS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (v6, v4) = (family(known, false), family(known, true));
    let mut program = vec![
        instruction(LOAD_BYTE, 0, 0, NETWORK_HEADER),
        instruction(SHIFT, 0, 0, 4),
        instruction(EQUAL, 0, 1, 4),
        instruction(JUMP, 0, 0, v6.len() as u32),
    ];
    program.extend(v6);
    program.extend(v4);
    SockRef::from(socket).attach_filter(&program)
}

/// Removes the filter, so that the socket receives from everywhere again.
///
/// # Errors
/// An error of the kernel.
pub fn all(socket: &impl AsFd) -> io::Result<()> {
    match SockRef::from(socket).detach_filter() {
        // No filter was attached.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Sets the receive buffer to `bytes` if the process has `CAP_NET_ADMIN`, otherwise to as much as the system allows.
pub fn room(socket: &impl AsFd, bytes: i32) {
    let forced = crate::option::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes);
    if forced.is_err() {
        let _ = SockRef::from(socket).set_recv_buffer_size(bytes as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn heard(at: &str, known: &[&str]) -> bool {
        let socket = UdpSocket::bind((at, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let known: Vec<Prefix> = known.iter().map(|prefix| prefix.parse().unwrap()).collect();
        only(&socket, &known).unwrap();
        let sender = UdpSocket::bind((at, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        sender.send_to(b"?", to).unwrap();
        let heard = socket.recv(&mut [0; 8]).is_ok();
        all(&socket).unwrap();
        all(&socket).unwrap();
        sender.send_to(b"!", to).unwrap();
        assert!(socket.recv(&mut [0; 8]).is_ok(), "without a filter it hears");
        heard
    }

    #[test]
    fn a_socket_hears_networks_that_it_admits_and_no_others() {
        assert!(heard("127.0.0.1", &["127.0.0.0/8"]));
        assert!(heard("127.0.0.1", &["fd00::/16", "10.0.0.0/8", "127.0.0.1/32"]));
        assert!(heard("127.0.0.1", &["0.0.0.0/0"]));
        assert!(!heard("127.0.0.1", &["126.0.0.0/8", "127.0.0.2/32", "::/0"]));
        assert!(!heard("127.0.0.1", &[]));
        assert!(heard("::1", &["fd00::/16", "::/64"]));
        assert!(heard("::1", &["::1/128"]));
        assert!(!heard("::1", &["::2/128", "0.0.0.0/0", "::1:0:0/96"]));
    }
}
