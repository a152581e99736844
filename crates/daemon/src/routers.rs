//! Routers' "too big" messages about tunnel packets. The kernel hands them to no socket here: both
//! datapaths choose their packet sizes themselves.

use std::time::Duration;

use segue_linux::icmp::TooBigSocket;
use segue_wire::TooBig;
use tokio::sync::mpsc;
use tracing::{debug, info};

/// Messages of a family handled between two pauses, so that a flood costs little.
const AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes needed of a message: the headers of the router's packet and of ours.
const BYTES: usize = 256;
/// Messages that wait for the daemon; more are dropped, since one test of a path serves all of
/// them.
const WAITING: usize = 32;

/// Listens in each family that the system has.
pub fn listen() -> mpsc::Receiver<TooBig> {
    let (heard, hears) = mpsc::channel(WAITING);
    for v6 in [false, true] {
        match TooBigSocket::open(v6) {
            Ok(socket) => {
                tokio::spawn(follow(socket, v6, heard.clone()));
            }
            Err(error) => info!("what routers say of packet sizes is not heard: {error}"),
        }
    }
    hears
}

async fn follow(socket: TooBigSocket, v6: bool, heard: mpsc::Sender<TooBig>) {
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
            let message = &buffer[..len.min(BYTES)];
            let said = if v6 { TooBig::parse_v6(message) } else { TooBig::parse_v4(message) };
            if let Some(said) = said
                && let Err(mpsc::error::TrySendError::Closed(_)) = heard.try_send(said)
            {
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
