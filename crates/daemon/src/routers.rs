//! Routers' "too big" messages about tunnel packets. The kernel hands them to no socket here: both
//! datapaths choose their packet sizes themselves.

use std::time::Duration;

use segue_linux::icmp::TooBigSocket;
use segue_wire::{OuterTooBig, TooBig};
use tokio::sync::mpsc;
use tracing::{debug, info};

/// Messages of a family handled between two pauses, so that a flood costs little.
const AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes needed of a message: the headers of the router's packet and of ours.
const BYTES: usize = 256;
/// Messages that may be queued for the daemon; further ones are dropped, since one test of a path serves all of them.
const WAITING: usize = 32;

/// Parsers of an ICMP and of an ICMPv6 message.
type Readers<T> = [fn(&[u8]) -> Option<T>; 2];

/// Listens for messages about packets with cookies, in each family that the system supports.
pub fn listen() -> mpsc::Receiver<TooBig> {
    listen_with([TooBig::parse_v4, TooBig::parse_v6])
}

/// Listens for messages about packets of a relay's tunnels.
pub fn listen_for_relay() -> mpsc::Receiver<OuterTooBig> {
    listen_with([OuterTooBig::parse_v4, OuterTooBig::parse_v6])
}

fn listen_with<T: Send + 'static>(readers: Readers<T>) -> mpsc::Receiver<T> {
    let (heard, hears) = mpsc::channel(WAITING);
    for v6 in [false, true] {
        match TooBigSocket::open(v6) {
            Ok(socket) => {
                tokio::spawn(follow(socket, readers[usize::from(v6)], heard.clone()));
            }
            Err(error) => info!("what routers say of packet sizes is not heard: {error}"),
        }
    }
    hears
}

async fn follow<T>(socket: TooBigSocket, read: fn(&[u8]) -> Option<T>, heard: mpsc::Sender<T>) {
    let mut buffer = [0; BYTES];
    loop {
        for _ in 0..AT_ONCE {
            let len = match socket.receive(&mut buffer).await {
                Ok(len) => len,
                Err(error) => {
                    debug!("{error}");
                    return;
                }
            };
            if let Some(said) = read(&buffer[..len.min(BYTES)])
                && let Err(mpsc::error::TrySendError::Closed(_)) = heard.try_send(said)
            {
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
