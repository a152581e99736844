//! One end of a relay tunnel, for tests against other implementations. Needs root.
//!
//! `relay_end [--user] FORM DEVICE LOCAL REMOTE OWN FAR`
//!
//! `--user` carries packets in user space. FORM is `ip`, `gre`, `gre:KEY`, `udp:LOCAL:REMOTE`, `home` (OWN is this
//! node's home address, REMOTE the peer's own address) or `peer` (FAR is the peer's home address). DEVICE leads to the
//! remote end. OWN and FAR are comma-separated lists of addresses: those of this end, which are added to the relay's
//! device, and those behind the tunnel. The program prints "ready", runs until its standard input ends, and then prints
//! the tunnel's counters and the refused packets.

use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use segue_datapath::relay::{Counts, Relay, RelayRoom, RelaySetup};
use segue_ip::{
    Binding, Exit, Form, Forward, Forwarding, Port, Prefix, Route, Source, Traffic, Tunnel,
};
use segue_linux::link;

type Error = Box<dyn std::error::Error>;

const TUNNEL: u32 = 1;
/// MTU of the relay's device: an Ethernet MTU less IPv6, the limit option of RFC 2473, and GRE with a key or UDP.
const MTU: u32 = 1_500 - 40 - 8 - 8;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay_end: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Error> {
    let (start, args): (fn(&_, _) -> _, _) = match args {
        [first, rest @ ..] if first == "--user" => (Relay::in_user_space, rest),
        all => (Relay::new, all),
    };
    let [form, device, local, remote, own, far] = args else {
        return Err("give it [--user] FORM DEVICE LOCAL REMOTE OWN FAR".into());
    };
    let addresses =
        |list: &str| list.split(',').map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
    let (own, far) = (addresses(own)?, addresses(far)?);
    let interface = link::index_of(device)?;
    let setup = RelaySetup {
        device: "segue0".into(),
        mtu_bytes: MTU,
        mark: 0,
        room: RelayRoom::default(),
        held: Vec::new(),
        labels: false,
        counts: Counts::Nothing,
    };
    let mut relay = start(&setup, Arc::new(|event| eprintln!("{event:?}")))?;
    relay.attach(interface)?;
    relay.put(&Forward::Tunnel(Tunnel {
        number: TUNNEL,
        local: local.parse()?,
        remote: remote.parse()?,
        interface: Some(interface),
        form: form_of(form, &own, &far)?,
    }))?;
    for address in &own {
        // A correspondent's address is already on its own device.
        if address.to_string() != *local {
            link::add_address("segue0", Prefix::host(*address))?;
        }
    }
    for far in far.into_iter().map(Prefix::host) {
        let binding = Binding { traffic: Traffic::To(far), exit: Exit::Tunnel(TUNNEL) };
        relay.put(&Forward::Bind(binding))?;
        relay.put(&Forward::Source(Source { port: Port::Tunnel(TUNNEL), prefix: far }))?;
        let source = own.iter().find(|own| own.is_ipv4() == far.addr.is_ipv4()).copied();
        let way = Route::on(far, relay.tun_ifindex()).metric(1);
        relay.put(&Forward::Route(Route { source, ..way }))?;
    }
    println!("ready");
    until_the_end(&mut relay);
    println!("{:?}", relay.tunnel_carried(TUNNEL));
    println!("refused: {:?}", relay.drops());
    Ok(())
}

/// Keeps the relay alive until standard input ends.
fn until_the_end(relay: &mut Relay) {
    let (sender, ended) = channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(sender);
    });
    while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
        relay.heartbeat();
    }
}

fn form_of(form: &str, own: &[IpAddr], far: &[IpAddr]) -> Result<Form, Error> {
    let mut parts = form.split(':');
    let kind = parts.next().unwrap_or_default();
    let numbers = parts.map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let first = |addresses: &[IpAddr]| match addresses {
        [IpAddr::V6(address), ..] => Ok::<Option<Ipv6Addr>, Error>(Some(*address)),
        _ => Err("home addresses are of IPv6".into()),
    };
    Ok(match (kind, &numbers[..]) {
        ("ip", []) => Form::Ip,
        ("gre", []) => Form::Gre { send: None, receive: None },
        ("gre", [key]) => Form::Gre { send: Some(*key), receive: Some(*key) },
        ("udp", [local, remote]) => {
            Form::Udp { local: u16::try_from(*local)?, remote: u16::try_from(*remote)? }
        }
        ("home", []) => Form::Optimized { home: first(own)?, peer: None },
        ("peer", []) => Form::Optimized { home: None, peer: first(far)? },
        _ => return Err(format!("{form:?} is no form").into()),
    })
}
