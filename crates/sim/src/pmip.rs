//! Proxy Mobile IPv6 on nodes: all that the simulator needs to know of it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{DayClock, Time, UnixTime};
use segue_ip::Input;
use segue_pmip::{
    LinkLayer, Lma, LmaConfig, LmaInput, LmaRecord, LmaWish, Mag, MagConfig, MagInput, MagRecord,
    Wish,
};

use crate::packet::{Packet, Raw, ip_header_bytes};
use crate::role::{Pure, Role, RoleAgent, Start};
use crate::{Io, Results};

/// The time of day at the beginning of a run.
const DAY: UnixTime = UnixTime::from_secs(1_700_000_000);

/// The time of day for a start.
fn clock(start: &Start) -> DayClock {
    DayClock::new(start.now, DAY + start.now.since(Time::ZERO))
}

/// The role of an anchor. Its clock, its restart counter and its seed are set at each start.
pub struct LmaRole {
    /// What it needs to know.
    pub config: LmaConfig,
    /// What became of first packets of flows.
    pub wishes: Vec<LmaWish>,
}

impl Role for LmaRole {
    type Engine = Pure<Lma>;
    type Order = LmaInput;

    fn start(&mut self, start: &Start) -> Pure<Lma> {
        self.wishes.clear();
        Pure(Lma::new(LmaConfig {
            clock: clock(start),
            restart_counter: start.number as u32 + 1,
            seed: start.rng().next_u64(),
            ..self.config.clone()
        }))
    }

    fn order(agent: &mut RoleAgent<LmaRole>, io: &mut Io<'_>, order: LmaInput) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut Pure<Lma>, wish: LmaWish) {
        self.wishes.push(wish);
    }

    fn key(record: &LmaRecord) -> String {
        match record {
            LmaRecord::Session(number, _) => format!("session {number}"),
            LmaRecord::Lease(prefix, _) => format!("lease {prefix}"),
        }
    }

    fn results(agent: &RoleAgent<LmaRole>, name: &str, results: &mut Results) {
        let lma = &agent.engine().0;
        results.int(format!("{name}.bindings"), lma.sessions().count() as u64);
        results.int(format!("{name}.flows"), lma.flows().count() as u64);
        results.int(format!("{name}.starts"), agent.starts());
    }
}

/// The role of a gateway. Its clock, its restart counter and its seed are set at each start.
pub struct MagRole(pub MagConfig);

impl Role for MagRole {
    type Engine = Pure<Mag>;
    type Order = MagInput;

    fn start(&mut self, start: &Start) -> Pure<Mag> {
        Pure(Mag::new(MagConfig {
            clock: clock(start),
            restart_counter: start.number as u32 + 1,
            seed: start.rng().next_u64(),
            ..self.0.clone()
        }))
    }

    fn order(agent: &mut RoleAgent<MagRole>, io: &mut Io<'_>, order: MagInput) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Pure<Mag>, wish: Wish) {
        match wish {
            Wish::ToStation { datagram, .. } => {
                let Some(index) = datagram.interface else { return };
                let length = ip_header_bytes(datagram.from.0) + datagram.bytes.len() as u32;
                let raw = Raw { bytes: datagram.bytes, inner: None };
                let packet =
                    Packet::new(datagram.protocol, datagram.from, datagram.to, length, raw);
                io.send_on(index, Packet { ttl: datagram.hop_limit, sent: io.now, ..packet });
            }
            // Hosts here show themselves when they are asked.
            Wish::Ask { interface } => {
                let here: Vec<LinkLayer> = engine.0.served_at(interface).cloned().collect();
                for station in here {
                    let own = MagInput::Attached { interface, station, link_local: None };
                    crate::role::Engine::handle(engine, io.now, Input::Own(own));
                }
            }
            Wish::Began { .. } | Wish::Ended { .. } => {}
            // Nobody else knows hosts here.
            Wish::Identify { interface, station } => {
                let identity = None;
                let own = MagInput::Identified { interface, station, identity };
                crate::role::Engine::handle(engine, io.now, Input::Own(own));
            }
        }
    }

    fn key(record: &MagRecord) -> String {
        format!("{} {}", record.access, record.station)
    }

    fn results(agent: &RoleAgent<MagRole>, name: &str, results: &mut Results) {
        let served = agent.engine().0.stations().filter(|(.., at)| at.state.is_served());
        results.int(format!("{name}.hosts"), served.count() as u64);
        results.int(format!("{name}.starts"), agent.starts());
    }
}
