//! Two network namespaces with a wire between them: generator at the near end, responder at the far end.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};

use segue_ip::Prefix;
use segue_linux::link;
use segue_linux::netns::Netns;

use crate::BenchError;
use crate::error::system;
use crate::protocol::{FAR, Macs, SERVICE_PORT, client};
use crate::skel::{Attached, Programs};

/// Name of both ends of the wire.
const WIRE: &str = "sgw0";
/// Receive buffer of the responders in bytes: room for bursts while the processor is busy elsewhere.
pub(crate) const RECEIVE_BUFFER: usize = 8 << 20;
/// Maximum number of source addresses of requests.
pub(crate) const CLIENTS_MAX: u32 = 3;

/// The hook at which a program receives packets from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// TC and sockets: socket buffers.
    Tc,
    /// XDP: frames, before the kernel allocates socket buffers.
    Xdp,
}

/// The bench's network; removed when dropped.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) near: Netns,
    pub(crate) far: Netns,
    pub(crate) near_ifindex: u32,
    pub(crate) far_ifindex: u32,
    pub(crate) macs: Macs,
    pub(crate) programs: Programs,
}

impl World {
    pub(crate) fn new() -> Result<World, BenchError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(BenchError::NotRoot);
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("segue-bench{}-{number}{end}", std::process::id());
        let near = Netns::create(&name('n'))?;
        let far = Netns::create(&name('f'))?;
        near.run(|| link::create_veth(WIRE, WIRE, Some(&far)))??;
        let (near_ifindex, near_mac) = near.run(|| end_of_wire(true))??;
        let (far_ifindex, far_mac) = far.run(|| end_of_wire(false))??;
        for number in 0..CLIENTS_MAX {
            set_neighbour(&far, &client(number).to_string(), near_mac)?;
        }
        set_neighbour(&near, &FAR.to_string(), far_mac)?;
        let macs = Macs { near: near_mac, far: far_mac };
        let programs = Programs::load(near_ifindex)?;
        Ok(World { near, far, near_ifindex, far_ifindex, macs, programs })
    }

    /// Counts answers on arrival. XDP answers require a program at the driver's XDP hook here; for other answers it
    /// would copy every socket buffer unnecessarily.
    pub(crate) fn attach_sink(&self, hook: Hook) -> Result<Attached, BenchError> {
        self.near.run(|| match hook {
            Hook::Tc => Attached::tc(&self.programs.sink_tc, self.near_ifindex),
            Hook::Xdp => Attached::xdp(&self.programs.sink_xdp, self.near_ifindex),
        })?
    }

    /// Drops requests on arrival.
    pub(crate) fn attach_drop(&self, hook: Hook) -> Result<Attached, BenchError> {
        self.far.run(|| match hook {
            Hook::Tc => Attached::tc(&self.programs.drop_tc, self.far_ifindex),
            Hook::Xdp => Attached::xdp(&self.programs.drop_xdp, self.far_ifindex),
        })?
    }

    /// A socket that receives requests.
    pub(crate) fn far_socket(&self) -> Result<UdpSocket, BenchError> {
        let socket = self
            .far
            .run(|| UdpSocket::bind((FAR, SERVICE_PORT)))?
            .map_err(system("open the responder's socket"))?;
        // Exceeding the system's limit works only outside user namespaces; a smaller buffer is sufficient.
        let _ = nix::sys::socket::setsockopt(
            &socket,
            nix::sys::socket::sockopt::RcvBufForce,
            &RECEIVE_BUFFER,
        );
        Ok(socket)
    }
}

fn end_of_wire(near: bool) -> Result<(u32, [u8; 6]), BenchError> {
    // Otherwise the responder would have to process the kernel's own packets (neighbour discovery, group memberships).
    link::sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
    if near {
        for number in 0..CLIENTS_MAX {
            link::add_address(WIRE, Prefix::new(client(number), 24))?;
        }
    } else {
        link::add_address(WIRE, Prefix::new(FAR, 24))?;
    }
    link::set_up(WIRE, true)?;
    let index = link::index_of(WIRE)?;
    let mac = link::links()?.into_iter().find(|l| l.index == index).map(|l| l.mac);
    Ok((index, mac.unwrap_or_default()))
}

/// Avoids address resolution during a measurement.
fn set_neighbour(ns: &Netns, address: &str, mac: [u8; 6]) -> Result<(), BenchError> {
    let mac = link::mac_text(mac);
    let status = ns
        .command("ip")
        .args(["neigh", "replace", address, "lladdr", &mac, "dev", WIRE, "nud", "permanent"])
        .status()
        .map_err(system("run ip"))?;
    if status.success() {
        return Ok(());
    }
    Err(BenchError::Missing { what: "ip neigh", remedy: "install iproute2".into() })
}
