//! The relay of a node without a daemon. The relay only requires a heartbeat, which a thread provides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use segue_datapath::relay::{Counts, Relay, RelayRoom, RelaySetup};
use segue_ip::{Binding, Exit, Form, Forward, Forwarding, Route, Traffic, Tunnel};
use segue_linux::netns::Netns;
use segue_linux::{link, route};

use super::node::{CHOSEN, OUT, OWN, USUAL, home};

/// Tunnels to the gateways: for packets whose flow has no binding, and for all others.
const USUALLY: u32 = 1;
pub(crate) const TO_CHOSEN: Exit = Exit::Tunnel(2);
/// The MTU of the wires, less an IPv6 header.
const MTU: u32 = 1_460;
/// Heartbeat interval; the daemon's is one second.
const BEAT: Duration = Duration::from_millis(200);

/// A relay that is kept alive until it is dropped.
pub(crate) struct Kept {
    relay: Arc<Mutex<Relay>>,
    stop: Arc<AtomicBool>,
    heart: Option<JoinHandle<()>>,
}

impl Kept {
    /// Starts the relay in the calling thread's namespace, which is `ns`.
    ///
    /// # Errors
    /// The kernel refuses the device, the programs or the route.
    pub(crate) fn start(ns: &Netns) -> anyhow::Result<Kept> {
        let room = RelayRoom::default();
        let setup = RelaySetup {
            device: "segue0".into(),
            mtu_bytes: MTU,
            mark: 0x5e6,
            room,
            labels: false,
            held: Vec::new(),
            counts: Counts::Nothing,
        };
        let mut relay = Relay::new(&setup, Arc::new(|_| ()))?;
        relay.attach(link::index_of(OUT)?)?;
        for (number, remote) in [(USUALLY, USUAL), (2, CHOSEN)] {
            let (local, remote) = (OWN.into(), remote.into());
            relay.put(&Forward::Tunnel(Tunnel {
                number,
                local,
                remote,
                interface: None,
                form: Form::Ip,
            }))?;
        }
        let usual = Binding { traffic: Traffic::To(home()), exit: Exit::Tunnel(USUALLY) };
        relay.put(&Forward::Bind(usual))?;
        route::add_route(&Route::on(home(), relay.tun_ifindex()))?;
        let (relay, stop) = (Arc::new(Mutex::new(relay)), Arc::<AtomicBool>::default());
        let ns = Netns::open(ns.name().context("a node without a name")?)?;
        let heart = std::thread::spawn({
            let (relay, stop) = (Arc::clone(&relay), Arc::clone(&stop));
            move || {
                // Fails only if the namespace is gone, and the relay with it.
                let _ = ns.run(|| beat(&relay, &stop));
            }
        });
        Ok(Kept { relay, stop, heart: Some(heart) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Relay> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn beat(relay: &Mutex<Relay>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        relay.lock().unwrap_or_else(PoisonError::into_inner).heartbeat();
        std::thread::sleep(BEAT);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(heart) = self.heart.take() {
            let _ = heart.join();
        }
    }
}
