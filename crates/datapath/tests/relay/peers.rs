//! The relay at one end and this kernel's own tunnels at the other: IPv6 in IPv6, by segment routing with one
//! segment.

use segue_ip::Form;
use segue_linux::link::set_mtu;

use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{
    CORRESPONDENT, HOST, Path, Router, TUNNEL, Wire, World, ip, may_run, over_both,
};

over_both! {
    the_kernels_own_tunnel_is_a_peer
}

/// Runs `ip` with these arguments; each line is one command.
fn configure(router: &Router, commands: &str) {
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let done = router.ns.command("ip").args(line.split_whitespace()).output().unwrap();
        assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Makes the access router's kernel replace its relay.
fn by_the_kernel(world: &World) {
    let access = &world.access;
    access.relay.lock().unwrap().detach(access.index("sg0"));
    for which in ["all", "default", "sg0", "sga"] {
        let key = format!("net.ipv6.conf.{which}.seg6_enabled");
        access.ns.run(|| segue_linux::link::sysctl(&key, "1")).unwrap().unwrap();
    }
    configure(
        access,
        "sr tunsrc set fd00::2
         -6 route replace default table 100 encap seg6 mode encap.red segs fd00::1 dev sg0 mtu 1452
         -6 route add fd00::2/128 table 77 encap seg6local action End.DT6 table 254 dev sg0
         -6 rule add priority 10 ipproto 41 to fd00::2 lookup 77
         -6 rule add priority 20 lookup local
         -6 rule add priority 30 to fd00::1 lookup main
         -6 rule del priority 0",
    );
}

fn the_kernels_own_tunnel_is_a_peer(path: Path) {
    if !may_run() {
        return;
    }
    for core in [Wire::Whole, Wire::NoGso, Wire::NoChecksum] {
        let world = World::new(path, core, Wire::Whole, Form::Ip, true);
        by_the_kernel(&world);
        // The MTU that an access router would advertise: segment routing does not announce that it enlarges
        // packets.
        world.host.run(|| set_mtu("sga", 1_452)).unwrap().unwrap();
        bulk_tcp(&world.host, &world.correspondent, ip(CORRESPONDENT[0]), 2 << 20);
        bulk_tcp(&world.correspondent, &world.host, ip(HOST[0]), 2 << 20);
        let up = datagrams(&world.host, &world.correspondent, ip(CORRESPONDENT[0]), 100, 700, 1);
        let down = datagrams(&world.correspondent, &world.host, ip(HOST[0]), 100, 700, 1);
        assert_eq!((up.len(), down.len()), (100, 100), "{core:?}");
        let carried = world.anchor.relay.lock().unwrap().tunnel_carried(TUNNEL);
        println!("{core:?}: {carried:?}");
        assert!(carried.sent_bytes > 4 << 20 && carried.received_bytes > 4 << 20);
        let drops = world.anchor.relay.lock().unwrap().drops();
        assert!(drops.is_empty(), "{drops:?}");
    }
}
