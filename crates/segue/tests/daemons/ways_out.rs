//! If an anchor has no default route for a family, traffic of that family stays on the host's own
//! networks.

use std::net::IpAddr;

use segue_linux::netns::Netns;

use crate::over_both;
use crate::world::{World, wait_for};

over_both! { among_others:
    what_the_anchor_cannot_send_on_goes_past_the_tunnel
}

fn ip(node: &Netns, args: &[&str]) -> String {
    let output = node.command("ip").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The device by which a node's packets to the Internet leave.
fn device(node: &Netns, to: &str) -> String {
    let route = ip(node, &["route", "get", to]);
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap().to_owned()
}

fn what_the_anchor_cannot_send_on_goes_past_the_tunnel(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (at_host, at_anchor) = (world.net.host(), world.net.anchor());
    let route = ip(at_anchor, &["-6", "route", "show", "default"]);
    let route4 = ip(at_anchor, &["route", "show", "default"]);
    ip(at_anchor, &["-6", "route", "del", "default"]);
    let (v4, v6) = ("192.0.2.1", "2001:db8::1");
    // This may be another host's inner address.
    let other = "fd5e:67e0::77";
    let (anchor, host) = world.running();
    wait_for("IPv4 alone", || device(at_host, v4) == "segue0" && device(at_host, v6) != "segue0");
    assert_eq!(device(at_host, other), "segue0");
    let log = host.log();
    assert!(log.contains("the anchor has no default route for IPv6"), "{log}");
    let inner = anchor.status()["inner"].as_array().unwrap().clone();
    for own in inner.iter().map(|address| address.as_str().unwrap()) {
        assert_eq!(device(at_host, own), "segue0", "{own}");
        let address: IpAddr = own.parse().unwrap();
        let ping = at_host.command("ping").args(["-c", "1", "-W", "3", own]).output().unwrap();
        assert!(ping.status.success(), "{address}");
    }
    // Restore the route, as a router advertisement would.
    let back: Vec<&str> =
        ["-6", "route", "add"].into_iter().chain(route.split_whitespace()).collect();
    ip(at_anchor, &back);
    wait_for("both", || device(at_host, v6) == "segue0");
    // The anchor keeps a route to hosts.
    let gateway = route4.split_whitespace().nth(2).unwrap();
    ip(at_anchor, &["route", "add", "10.61.0.0/16", "via", gateway]);
    ip(at_anchor, &["route", "del", "default"]);
    wait_for("IPv6 alone", || device(at_host, v4) != "segue0" && device(at_host, v6) == "segue0");
}
