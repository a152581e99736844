//! Responders in eBPF: Segue's datapath as an anchor, and a plain reflector.

use std::net::SocketAddr;
use std::sync::Arc;

use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::{Datapath, Kind, LinuxDatapath, PathSetup, Role, Setup};
use segue_keepalive::Probing;

use super::Running;
use crate::BenchError;
use crate::protocol::{FAR, GENERATOR_PORT, SERVICE_PORT, client, cookie, key, peer};
use crate::skel::Attached;
use crate::world::World;

/// An anchor's datapath. Discards its events, which a daemon's machines would consume.
struct Anchor(Ebpf);

impl Running for Anchor {
    fn heartbeat(&mut self) {
        self.0.heartbeat();
    }
}

/// Segue's datapath with `paths` paths that measure and have no news to report. The clients' addresses are configured,
/// because the generator's requests contain no echo that proves that the clients receive.
pub(super) fn segue(
    world: &World,
    paths: u32,
    clients: u32,
    xdp: Xdp,
) -> Result<impl Running + use<>, BenchError> {
    world.far.run(|| -> Result<Anchor, BenchError> {
        let setup = Setup {
            tun_name: "segue0".into(),
            tun_mtu: 1456,
            port: SERVICE_PORT,
            role: Role::Anchor,
            max_paths: paths,
            max_flows: 16,
            mark: 0,
        };
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let mut datapath = Ebpf::with_options(&setup, Arc::new(|_| ()), options)?;
        for slot in 0..paths {
            let (tx_index, tx_cookie) = peer(slot);
            let path = PathSetup {
                tx_index,
                tx_cookie,
                rx_cookie: cookie(slot),
                key: key(slot),
                local: Some(SocketAddr::from((FAR, SERVICE_PORT))),
                remote: Some(SocketAddr::from((client(slot % clients), GENERATOR_PORT))),
                ifindex: world.far_ifindex,
                gateway: None,
                owner: 1,
                probing: Probing::default(),
            };
            datapath.set_path(slot, &path)?;
            datapath.set_quiet(slot, true);
        }
        datapath.attach(world.far_ifindex)?;
        if xdp == Xdp::On && datapath.kind() != (Kind::Ebpf { xdp: true }) {
            let remedy = "the kernel refuses Segue's XDP program on a virtual pair".into();
            return Err(BenchError::Missing { what: "native XDP", remedy });
        }
        Ok(Anchor(datapath))
    })?
}

struct Reflector {
    _attached: Attached,
}

impl Running for Reflector {}

/// The program that returns each request unchanged.
pub(super) fn reflector(world: &World) -> Result<impl Running + use<>, BenchError> {
    let program = &world.programs.reflect;
    let attached = world.far.run(|| Attached::xdp(program, world.far_ifindex))??;
    Ok(Reflector { _attached: attached })
}
