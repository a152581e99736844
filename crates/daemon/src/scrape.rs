//! A daemon's metrics for Prometheus: the page of [`segue_probe::metrics`] made from what `segue status`
//! shows, so that both agree. A scraper's request goes to the daemon like one over the control
//! socket.

use std::io::ErrorKind;
use std::net::SocketAddr;

use segue_probe::metrics::Server;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use crate::control::{Asked, Request, Response, Status, Vocabulary};

/// Serves `page` at `address`, if there is one, for as long as the process runs.
///
/// # Errors
/// The address is unavailable.
pub fn start<V: Vocabulary>(
    address: Option<SocketAddr>,
    daemon: mpsc::Sender<Asked<V>>,
    page: fn(&Status<V>) -> String,
) -> anyhow::Result<()> {
    let Some(address) = address else { return Ok(()) };
    let server = Server::start(address)?;
    let wanted = UnixStream::from_std(server.wanted()?)?;
    info!("metrics on http://{}/metrics", server.address());
    tokio::spawn(async move {
        while wanted.readable().await.is_ok() {
            // Pending requests are answered below; clear readiness so that only the next request
            // wakes this.
            let _ =
                wanted.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
            let (back, answer) = oneshot::channel();
            if daemon.send((Request::Status { events_from: u64::MAX }, back)).await.is_err() {
                return;
            }
            let Ok(Response::Status(status)) = answer.await else { return };
            server.answer(|| page(&status));
        }
    });
    Ok(())
}
