//! Prefetching. Each event concerns another host, whose state has left the caches long before: with a million hosts a
//! run would wait for one cache line after another. Reading the state of several upcoming events at once lets the
//! processor load it in parallel. The values that are read have no effect.

use core::hint::black_box;

use segue_steering::Class;

use super::places::ShardEvent;
use super::shard::Shard;

/// Number of events prefetched at once.
const BATCH: usize = 8;

impl Shard {
    /// Called before each event.
    pub(super) fn warm_some(&mut self) {
        if self.warm_in > 0 {
            self.warm_in -= 1;
            return;
        }
        self.warm_in = BATCH - 1;
        let mut read = 0;
        // Directly reachable state first, for events further ahead; then the state that it points to.
        for (_, event) in self.queue.upcoming().skip(2 * BATCH).take(BATCH) {
            read ^= self.warm_place(*event);
        }
        for (_, event) in self.queue.upcoming().skip(BATCH).take(BATCH) {
            read ^= self.warm_path(*event);
        }
        for (_, event) in self.queue.upcoming().take(BATCH) {
            read ^= self.warm_machine(*event);
        }
        black_box(read);
    }

    fn warm_place(&self, event: ShardEvent) -> u64 {
        match event {
            ShardEvent::Host(host) => self.warm_host(host),
            ShardEvent::Up { path, packet } => self.warm_packet(path, packet),
            ShardEvent::Down { path, packet } => {
                self.warm_packet(path, packet) ^ self.warm_host(self.host_of(path))
            }
            _ => 0,
        }
    }

    fn warm_packet(&self, path: u32, packet: u32) -> u64 {
        let place = &self.paths[path as usize];
        let index = self.packets.get(packet).map_or(0, |message| message.index);
        u64::from(index) ^ place.outage.end.0 ^ place.down.last_arrival().0
    }

    fn warm_host(&self, host: u32) -> u64 {
        let place = &self.hosts[host as usize];
        let up = place.end.machine.registered();
        u64::from(up) ^ place.end.machine.inner().len() as u64 ^ place.end.datapath.warm_all()
    }

    fn warm_path(&self, event: ShardEvent) -> u64 {
        match event {
            ShardEvent::Host(host) => {
                let end = &self.hosts[host as usize].end;
                let paths = end.machine.paths().map(|(number, path)| {
                    let up = path.is_up() ^ path.is_unwatched();
                    u64::from(up) ^ end.datapath.warm(number.into())
                });
                paths.fold(0, |read, more| read ^ more)
            }
            ShardEvent::Up { path, packet } => {
                let anchor = &self.anchors[self.anchor_of(self.host_of(path))].end;
                let index = self.packets.get(packet).map_or(0, |message| message.index);
                let owner = anchor.machine.path(index).map_or(0, |path| path.owner);
                anchor.datapath.warm(index) ^ u64::from(owner)
            }
            ShardEvent::Down { path, packet } => {
                let end = &self.hosts[self.host_of(path) as usize].end;
                let index = self.packets.get(packet).map_or(0, |message| message.index);
                end.datapath.warm(index) ^ if self.reads { 0 } else { warm_machine(end) }
            }
            _ => 0,
        }
    }

    fn warm_machine(&self, event: ShardEvent) -> u64 {
        match event {
            ShardEvent::Host(host) => warm_machine(&self.hosts[host as usize].end),
            ShardEvent::Up { path, packet } if !self.reads => {
                let anchor = &self.anchors[self.anchor_of(self.host_of(path))].end;
                let index = self.packets.get(packet).map_or(0, |message| message.index);
                anchor.machine.path(index).map_or(0, |path| {
                    let e = path.server().estimates();
                    let first = |values: &[f64]| values.first().map_or(0, |value| value.to_bits());
                    path.server().last_request().map_or(0, |at| at.0)
                        ^ first(&e.rtt_ewma)
                        ^ first(&e.owl_up)
                        ^ first(&e.owl_down)
                })
            }
            _ => 0,
        }
    }
}

/// State that a host's machine reads in each call.
fn warm_machine(end: &segue_sim::tunnel::HostEnd<u32>) -> u64 {
    let first = |values: &[f64]| values.first().map_or(0, |value| value.to_bits());
    let paths = end.machine.paths().map(|(_, path)| {
        let Some(client) = path.client() else { return 0 };
        let e = client.estimates();
        let averages = first(&e.rtt_ewma) ^ first(&e.owl_up) ^ first(&e.owl_down) ^ first(&e.rtl);
        averages ^ client.last_response().0 ^ client.next_request().map_or(0, |at| at.0)
    });
    let read = paths.fold(0, |read, more| read ^ more);
    read ^ end.machine.steering().current(Class::Voice).map_or(0, |path| path.0.into())
}
