//! Decapsulation of tunnel packets by the user-space relay.

use std::net::IpAddr;

use segue_datapath::relay::dry_run::DryRun;
use segue_datapath::user::segment::{Cut, VnetHeader};
use segue_ip::{Form, Port, Prefix, Source, Tunnel};
use segue_wire::DropReason;
use segue_wire::flow::Inner;

use crate::take::take;

const FORMS: [Form; 4] = [
    Form::Ip,
    Form::Gre { send: None, receive: Some(7) },
    Form::Gre { send: None, receive: None },
    Form::Udp { local: 5437, remote: 4191 },
];

fn ends(v6: bool) -> [IpAddr; 2] {
    match v6 {
        true => [[0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()],
        false => [[10, 9, 0, 1].into(), [10, 9, 0, 2].into()],
    }
}

/// A tunnel of each type over each family.
fn tunnels() -> Vec<Tunnel> {
    let of = |v6| {
        let [local, remote] = ends(v6);
        FORMS.map(|form| Tunnel { number: 0, local, remote, interface: None, form })
    };
    let numbered = |(tunnel, number)| Tunnel { number, ..tunnel };
    [of(false), of(true)].concat().into_iter().zip(0..).map(numbered).collect()
}

fn sources() -> [Prefix; 2] {
    [Prefix::new([0xfd0c, 0, 0, 0, 0, 0, 0, 0], 16), Prefix::new([10, 70, 0, 0], 16)]
}

/// Decapsulation: the result was between the tunnel's addresses, has one of its permitted sources, can be segmented,
/// and does not depend on bytes after it. The first bytes are the virtio header and select which fields to correct, so
/// that packets pass the first checks.
pub(crate) fn relay(data: &[u8]) {
    let mut data = data;
    let [choice, flags, gso_type, gso_size, csum_start] = take(&mut data);
    let vnet = VnetHeader {
        flags: flags & 1,
        gso_type,
        hdr_len: 0,
        gso_size: gso_size.into(),
        csum_start: csum_start.into(),
        csum_offset: 16,
    };
    let tunnels = tunnels();
    let allowed: Vec<Source> = tunnels
        .iter()
        .flat_map(|tunnel| {
            sources().map(|prefix| Source { port: Port::Tunnel(tunnel.number), prefix })
        })
        .collect();
    let relay = DryRun::new(&tunnels, &allowed);
    let mut packet = data.to_vec();
    mend(&mut packet, choice);
    let sent = packet.clone();
    let Ok(Some((slot, cut_as, at))) = relay.take_out(vnet, &mut packet) else { return };
    let tunnel = tunnels[slot as usize];
    let (inner, outer) = (&packet[at.clone()], &sent[..at.start]);
    let (from, to) = match outer[0] >> 4 {
        4 => (outer[12..16].to_vec(), outer[16..20].to_vec()),
        _ => (outer[8..24].to_vec(), outer[24..40].to_vec()),
    };
    let octets = |address| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    assert_eq!((from, to), (octets(tunnel.remote), octets(tunnel.local)));
    let parsed = Inner::parse(inner).expect("it was parsed before");
    assert_eq!(parsed.len, inner.len());
    assert!(sources().iter().any(|prefix| prefix.contains(parsed.key.src)));
    assert!(Cut::new(&cut_as, inner).is_ok());
    // Only the congestion mark may have changed in transit.
    let differing = inner.iter().zip(&sent[at.clone()]).filter(|(a, b)| a != b).count();
    assert!(differing <= 3, "{differing} bytes differ");
    let mut longer = [&sent[..], &[0xff; 3]].concat();
    match relay.take_out(vnet, &mut longer) {
        Ok(Some((_, _, again))) => assert_eq!((again.clone(), &longer[again]), (at, inner)),
        refused => assert_eq!(refused.err(), Some(DropReason::Uncut)),
    }
}

/// Gives the packet a tunnel's outer header, and the inner packet a permitted source.
fn mend(packet: &mut [u8], choice: u8) {
    let v6 = choice & 1 != 0;
    let [local, remote] = ends(v6);
    let ip = if v6 { 40 } else { 20 };
    if packet.len() < ip + 8 || choice & 2 == 0 {
        return;
    }
    let protocols = [4, 41, 47, 17];
    let protocol = protocols[usize::from(choice >> 2 & 3)];
    match (local, remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            packet[0] = 0x45;
            packet[6..8].fill(0);
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&remote.octets());
            packet[16..20].copy_from_slice(&local.octets());
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            packet[0] = 0x60;
            packet[6] = protocol;
            packet[8..24].copy_from_slice(&remote.octets());
            packet[24..40].copy_from_slice(&local.octets());
        }
        _ => {}
    }
    let shim = match protocol {
        47 => {
            let protocol = if choice & 16 == 0 { [8, 0] } else { [0x86, 0xdd] };
            packet[ip..ip + 2].copy_from_slice(if choice & 32 == 0 { &[0, 0] } else { &[0x20, 0] });
            packet[ip + 2..ip + 4].copy_from_slice(&protocol);
            packet[ip + 4..ip + 8].copy_from_slice(&7u32.to_be_bytes());
            if choice & 32 == 0 { 4 } else { 8 }
        }
        17 => {
            packet[ip..ip + 2].copy_from_slice(&4191u16.to_be_bytes());
            packet[ip + 2..ip + 4].copy_from_slice(&5437u16.to_be_bytes());
            8
        }
        _ => 0,
    };
    let inner = &mut packet[ip + shim..];
    if choice & 64 != 0 && inner.len() >= 40 {
        let len = inner.len();
        if choice & 16 == 0 {
            inner[0] = 0x45;
            inner[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            inner[12..14].copy_from_slice(&[10, 70]);
        } else {
            inner[0] = 0x60;
            inner[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
            inner[8..10].copy_from_slice(&[0xfd, 0x0c]);
        }
    }
}
