//! Interfaces that reach the anchor's IPv4 address through a translator's prefix.

use std::net::{IpAddr, SocketAddr};

use segue_clock::{Machine, Time};
use segue_ip::{Input, Interface, Pref64};
use segue_tunnel::{Host, HostConfig, HostInput, HostOutput, Output};
use segue_wire::signal::FromAnchor;

use crate::stage::host_config;

const ANCHORS: [&str; 2] = ["192.0.2.1:5005", "192.0.2.9:5005"];
const NOW: Time = Time(1_000_000_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn interface(index: u32, addresses: &[&str], pref64: &str) -> Interface {
    Interface {
        name: format!("net{index}"),
        index,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        pref64: Some(Pref64::new(pref64.parse().unwrap()).unwrap()),
        mtu_bytes: 1_500,
        ..Interface::default()
    }
}

/// An interface with IPv6 only.
fn v6(index: u32, pref64: &str) -> Interface {
    interface(index, &[&format!("2001:db8:{index}::2")], pref64)
}

fn host(anchors: &[&str]) -> Host {
    let anchor = anchors.iter().map(|text| at(text)).collect();
    Host::new(HostConfig { anchor, ..host_config(3, 60) }, [5; 32])
}

/// Gives the host an input. Returns its orders for signalling.
fn tell(
    host: &mut Host,
    input: impl Into<Input<HostInput, std::convert::Infallible>>,
) -> Vec<HostOutput> {
    host.handle(NOW, input.into());
    let outputs = std::iter::from_fn(|| host.poll());
    let own = |output| match output {
        Output::Driver(segue_ip::Output::Own(
            own @ (HostOutput::Connect { .. } | HostOutput::MoveSignal { .. }),
        )) => Some(own),
        _ => None,
    };
    outputs.filter_map(own).collect()
}

fn remotes(host: &Host) -> Vec<String> {
    host.paths().map(|(_, path)| path.remote().to_string()).collect()
}

fn up(interface: &str, anchor: &str) -> HostInput {
    HostInput::SignalUp { interface: interface.into(), anchor: at(anchor) }
}

#[test]
fn an_interface_without_ipv4_has_a_path_to_where_its_translator_shows_the_anchor() {
    let mut host = host(&ANCHORS[..1]);
    let with_ipv4 = interface(3, &["2001:db8:3::2", "192.0.2.7"], "64:ff9b::/96");
    let none = Interface { pref64: None, ..v6(4, "64:ff9b::/96") };
    let all = vec![v6(1, "2001:db8:64::/96"), v6(2, "64:ff9b::/96"), with_ipv4, none];
    tell(&mut host, Input::Interfaces(all));
    let shown = ["[2001:db8:64::c000:201]:5005", "[64:ff9b::c000:201]:5005", "192.0.2.1:5005"];
    assert_eq!(remotes(&host), shown);
    // Change one prefix, and leave only two interfaces.
    let changed = vec![v6(1, "2001:db8:65::/96"), v6(2, "64:ff9b::/96")];
    let wants = tell(&mut host, Input::Interfaces(changed));
    assert_eq!(remotes(&host), ["[2001:db8:65::c000:201]:5005", shown[1]]);
    assert!(matches!(&wants[..], [HostOutput::Connect { .. }]), "at once: {wants:?}");
}

#[test]
fn an_address_of_the_anchor_that_an_interface_has_the_family_of_goes_before_a_translators() {
    let mut host = host(&[ANCHORS[0], "[2001:db8:99::1]:5005"]);
    tell(&mut host, Input::Interfaces(vec![v6(1, "2001:db8:64::/96")]));
    assert_eq!(remotes(&host), ["[2001:db8:99::1]:5005"]);
}

#[test]
fn paths_go_to_the_address_at_which_a_translator_reached_the_anchor() {
    let mut host = host(&ANCHORS);
    let all = vec![v6(1, "2001:db8:64::/96"), v6(2, "64:ff9b::/96")];
    tell(&mut host, Input::Interfaces(all));
    tell(&mut host, up("net2", "[64:ff9b::c000:209]:5005"));
    assert_eq!(remotes(&host), ["[2001:db8:64::c000:209]:5005", "[64:ff9b::c000:209]:5005"]);
}

#[test]
fn signalling_moves_behind_the_same_translator_and_connects_afresh_behind_another() {
    for (other, moves) in [("64:ff9b::/96", true), ("2001:db8:64::/96", false)] {
        let mut host = host(&ANCHORS[..1]);
        let both = || vec![v6(1, "64:ff9b::/96"), v6(2, other)];
        tell(&mut host, Input::Interfaces(both()));
        tell(&mut host, up("net1", "[64:ff9b::c000:201]:5005"));
        let wants = tell(&mut host, Input::Interfaces(both().split_off(1)));
        let is_move =
            matches!(&wants[..], [HostOutput::MoveSignal { interface }] if interface == "net2");
        let is_new =
            matches!(&wants[..], [HostOutput::Connect { interfaces }] if interfaces == &["net2"]);
        assert_eq!((is_move, is_new), (moves, !moves), "{wants:?}");
    }
}

#[test]
fn where_a_translator_shows_the_anchor_is_no_inner_address() {
    let mut host = host(&ANCHORS[..1]);
    tell(&mut host, Input::Interfaces(vec![v6(1, "64:ff9b::/96")]));
    tell(&mut host, up("net1", "[64:ff9b::c000:201]:5005"));
    let inner = vec![ip("64:ff9b::c000:201"), ip("10.77.0.2")];
    let registered = FromAnchor::Registered { inner, anchor: Vec::new(), tunnel_port: 5005 };
    tell(&mut host, HostInput::Signal(registered));
    assert_eq!(host.inner(), [ip("10.77.0.2")]);
}
