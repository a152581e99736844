//! A gateway serves a host that attaches, stays and leaves.

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Exit, Forward, Input, Port, Prefix, Source, Traffic};
use segue_pmip::{AttachBy, FIXED_LINK_LOCAL, MagInput, Report, StationState};
use segue_wire::mobility::option::Handoff;
use segue_wire::mobility::{Body, MobilityOption};
use segue_wire::nd::{self, NdOption};

use crate::domain::*;

/// The prefixes in the advertisements to a station.
fn advertised(domain: &Domain, station: u8) -> Vec<Prefix> {
    let own = domain.frames.iter().filter(|(_, to, _)| *to == crate::domain::station(station));
    let prefixes = own.filter_map(|(_, _, message)| match message {
        nd::Message::RouterAdvertisement(advertisement) => Some(&advertisement.options),
        _ => None,
    });
    let prefixes = prefixes.flatten().filter_map(|option| match option {
        NdOption::PrefixInformation(prefix) => {
            Some(Prefix::new(prefix.prefix, prefix.prefix_length))
        }
        _ => None,
    });
    prefixes.collect()
}

#[test]
fn a_host_that_attaches_is_registered_then_told_of_its_prefix_alone_and_carried() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(0.009));
    assert!(domain.frames.is_empty(), "nothing is advertised before the anchor has answered");
    domain.run(s(0.011));
    let prefix = domain.prefix(0, &station(1));
    assert_eq!(prefix.len, 64);
    assert_eq!(advertised(&domain, 1), [prefix]);
    let [(0, _, nd::Message::RouterAdvertisement(advertisement))] = &domain.frames[..] else {
        panic!("{:?}", domain.frames)
    };
    assert!(advertisement.options.contains(&NdOption::Mtu { mtu: 1_452 }));
    assert_eq!(advertisement.router_lifetime, 1_800);

    let gateway = &domain.given[1];
    let Some(Exit::Tunnel(tunnel)) = gateway.exit(Traffic::From(prefix)) else { panic!() };
    let there = gateway.tunnel(tunnel).unwrap();
    assert_eq!((there.local, there.remote), (mag(0).into(), LMA.into()));
    assert!(gateway.has(&to_station(prefix, 1)));
    assert!(gateway.has(&Forward::Source(Source { port: Port::Link(LINK), prefix })));
    let address = Forward::Address { interface: LINK, prefix: Prefix::new(FIXED_LINK_LOCAL, 64) };
    assert!(gateway.has(&address));
    assert_eq!(domain.leads(prefix), Some(mag(0).into()));
    assert_eq!(domain.given[0].brings(prefix), [mag(0)]);
    let with = [LMA, mag(0)];
    for with in with {
        let report = Report::Registered {
            node: node(1),
            link_layer: station(1),
            with: with.into(),
            prefix: Some(prefix),
        };
        assert!(domain.reports.contains(&report), "{:?}", domain.reports);
    }
}

#[test]
fn hosts_are_told_at_once_what_their_tunnel_takes_and_at_least_what_ipv6_needs() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(0.1));
    let prefix = domain.prefix(0, &station(1));
    let Some(Exit::Tunnel(tunnel)) = domain.given[1].exit(Traffic::From(prefix)) else { panic!() };
    for (tunnel, bytes, told) in [
        (tunnel, Some(1_360), Some(1_360)),
        (tunnel, Some(1_360), None),
        (tunnel + 1, Some(1_300), None),
        (tunnel, Some(900), Some(1_280)),
        (tunnel, Some(9_000), Some(1_452)),
        (tunnel, None, None),
    ] {
        domain.frames.clear();
        domain.at_mag(0, Input::Own(MagInput::TunnelSize { tunnel, bytes }));
        let mtu = domain.frames.iter().flat_map(|(_, to, message)| match message {
            nd::Message::RouterAdvertisement(said) if *to == station(1) => said.options.clone(),
            other => panic!("{other:?}"),
        });
        let mtu = mtu.filter_map(|option| match option {
            NdOption::Mtu { mtu } => Some(mtu),
            _ => None,
        });
        assert_eq!(mtu.collect::<Vec<_>>(), Vec::from_iter(told), "{bytes:?}");
    }
}

#[test]
fn an_update_without_an_answer_is_repeated_with_a_later_timestamp_ever_more_slowly() {
    let mut domain = Domain::new(1);
    domain.cut = true;
    domain.attach(0, station(1));
    domain.run(s(130.0));
    let updates = domain.sent_by(mag(0), is_update);
    let times: Vec<f64> = updates.iter().map(|(at, _)| at.as_secs_f64()).collect();
    assert_eq!(times, [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 95.0, 127.0]);
    let stamps = updates.iter().map(|(_, message)| {
        message.options.iter().find_map(|option| match option {
            MobilityOption::Timestamp(stamp) => Some(*stamp),
            _ => None,
        })
    });
    let stamps: Vec<_> = stamps.map(Option::unwrap).collect();
    assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
    assert!(domain.frames.is_empty());
    domain.cut = false;
    domain.run(s(160.0));
    assert_eq!(domain.prefix(0, &station(1)).len, 64);
}

#[test]
fn what_a_host_was_given_goes_when_it_leaves_and_its_anchor_confirms_it() {
    let mut domain = Domain::new(1);
    let empty = domain.given[1].0.clone();
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.detach(0, station(1));
    let prefixes = domain.given[1].0.iter().filter(|part| matches!(part, Forward::Bind(_)));
    assert_eq!(prefixes.count(), 0, "nothing is carried from the moment on");
    domain.run(s(1.02));
    assert_eq!(domain.mags[0].stations().count(), 0);
    assert_eq!(domain.given[1].0, empty, "the tunnel too");
    let (_, last) = domain.sent_by(mag(0), is_update).pop().unwrap();
    let Body::BindingUpdate(update) = &last.body else { panic!() };
    assert_eq!(update.lifetime_4s, 0);

    // Without an answer the station is removed after a second.
    domain.attach(0, station(2));
    domain.run(s(2.0));
    domain.cut = true;
    domain.detach(0, station(2));
    domain.run(s(2.9));
    assert_eq!(domain.mags[0].stations().count(), 1);
    domain.run(s(3.1));
    assert_eq!(domain.mags[0].stations().count(), 0);
    assert_eq!(domain.given[1].0, empty);
}

/// A neighbour discovery message from a station.
fn from_station(message: &nd::Message, source: &str, to: &str) -> Datagram {
    let (source, to) = (source.parse().unwrap(), to.parse().unwrap());
    Datagram {
        waited_ns: 0,
        interface: Some(LINK),
        from: (std::net::IpAddr::V6(source), 0),
        to: (std::net::IpAddr::V6(to), 0),
        protocol: 58,
        hop_limit: 255,
        bytes: message.emit_with_checksum(source, to),
    }
}

fn solicitation(station: u8) -> Datagram {
    let link_layer_address = vec![2, 0, 0, 0, 0, station];
    let options = vec![NdOption::SourceLinkLayerAddress { link_layer_address }];
    from_station(&nd::Message::RouterSolicitation { options }, "fe80::9", "ff02::2")
}

#[test]
fn a_host_is_asked_whether_it_is_there_before_its_registration_is_renewed() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.at_mag(0, Input::Datagram(solicitation(1)));
    assert_eq!(advertised(&domain, 1).len(), 2, "a solicitation is answered at once");
    let asked = |domain: &Domain| {
        let frames = domain.frames.iter();
        frames.filter(|f| matches!(f.2, nd::Message::NeighborSolicitation { .. })).count()
    };
    // Half of the lifetime of 600 s.
    domain.run(s(299.0));
    assert_eq!((asked(&domain), domain.sent_by(mag(0), is_update).len()), (0, 1));
    domain.run(s(300.5));
    assert_eq!((asked(&domain), domain.sent_by(mag(0), is_update).len()), (1, 1));
    let flags = nd::NeighborAdvertisementFlags::SOLICITED;
    let target_address = "fe80::9".parse().unwrap();
    let answer = nd::Message::NeighborAdvertisement { flags, target_address, options: vec![] };
    let answer = from_station(&answer, "fe80::9", &FIXED_LINK_LOCAL.to_string());
    domain.at_mag(0, Input::Datagram(answer));
    domain.run(s(301.0));
    let updates = domain.sent_by(mag(0), is_update);
    assert_eq!(updates.len(), 2);
    let handoff = updates[1].1.options.iter().find_map(|option| match option {
        MobilityOption::HandoffIndicator(handoff) => Some(handoff.handoff_indicator),
        _ => None,
    });
    assert_eq!(handoff, Some(Handoff::REREGISTRATION));
    let (_, _, until, _) = domain.lma.sessions().next().unwrap();
    assert!(until > s(899.0) && until < s(902.0), "{until:?}");

    // After three unanswered solicitations the host has left.
    domain.run(s(610.0));
    assert_eq!(asked(&domain), 4);
    assert_eq!(domain.mags[0].stations().count(), 0);
    assert!(domain.leads(domain.lma.sessions().next().map(|x| x.3.prefixes[0]).unwrap()).is_none());
}

#[test]
fn a_host_without_a_known_address_is_registered_as_long_as_its_access_has_it() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(10_000.0));
    assert_eq!(domain.prefix(0, &station(1)).len, 64);
    assert!(domain.sent_by(mag(0), is_update).len() > 30);
    // Its prefix is advertised periodically.
    assert!(advertised(&domain, 1).len() >= 16);
}

#[test]
fn where_solicitations_attach_a_link_that_goes_down_detaches() {
    let mut config = mag_config(0);
    config.accesses[0].by = AttachBy::Solicitation;
    let mut domain = Domain::of(lma_config(), vec![config]);
    domain.at_mag(0, Input::Datagram(solicitation(1)));
    domain.run(s(1.0));
    assert_eq!(advertised(&domain, 1).len(), 1);
    let down = segue_ip::LinkEvent::Down {
        interface: LINK,
        poa: None,
        why: segue_ip::DownReason::PacketTimeout,
    };
    domain.at_mag(0, Input::Link(down));
    domain.run(s(2.0));
    assert_eq!(domain.mags[0].stations().count(), 0);
    // A solicitation without a link-layer address attaches no host.
    let nobody = nd::Message::RouterSolicitation { options: vec![] };
    domain.at_mag(0, Input::Datagram(from_station(&nobody, "fe80::9", "ff02::2")));
    assert_eq!(domain.mags[0].stations().count(), 0);
}

#[test]
fn a_solicitation_that_only_its_frame_identifies_is_answered() {
    let mut config = mag_config(0);
    config.accesses[0].by = AttachBy::Solicitation;
    let mut domain = Domain::of(lma_config(), vec![config]);
    let solicits = |link_local| {
        Input::Own(MagInput::Solicited { interface: LINK, station: station(1), link_local })
    };
    // From the unspecified address, then from a link-local address.
    domain.at_mag(0, solicits(None));
    domain.run(s(1.0));
    assert_eq!(advertised(&domain, 1).len(), 1);
    domain.at_mag(0, solicits(Some("fe80::9".parse().unwrap())));
    domain.run(s(2.0));
    assert_eq!(advertised(&domain, 1).len(), 2);
}

#[test]
fn a_solicitation_attaches_nobody_where_the_driver_does() {
    let mut domain = Domain::new(1);
    domain.at_mag(0, Input::Datagram(solicitation(1)));
    domain.run(s(1.0));
    assert_eq!((domain.mags[0].stations().count(), domain.log.len()), (0, 0));
}

#[test]
fn the_lifetime_follows_the_mean_stay() {
    let mut domain = Domain::new(1);
    let mut at = Time::ZERO;
    for stay_s in [100, 200, 200] {
        domain.attach(0, station(1));
        at += Span::from_secs(stay_s);
        domain.run(at);
        domain.detach(0, station(1));
        at += Span::from_secs(1);
        domain.run(at);
    }
    let updates = domain.sent_by(mag(0), is_update);
    let lifetimes = updates.iter().filter_map(|(_, message)| match &message.body {
        Body::BindingUpdate(update) => Some(update.lifetime_4s * 4).filter(|s| *s > 0),
        _ => None,
    });
    let mut lifetimes: Vec<u16> = lifetimes.collect();
    lifetimes.dedup();
    // 600 s, then the mean stay: 100 s, and 125 s for stays of 100 s and 200 s (rounded down to multiples of 4 s).
    assert_eq!(lifetimes, [600, 96, 124], "{lifetimes:?}");
}

#[test]
fn an_answer_that_repeats_something_else_is_none() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.run(s(0.001));
    // The answer for another gateway's host, with the same sequence number.
    let (_, update) = domain.sent_by(mag(0), is_update)[0];
    let Body::BindingUpdate(asked) = update.body.clone() else { panic!() };
    let mut options = update.options.clone();
    for option in &mut options {
        if let MobilityOption::MobileNodeIdentifier(id) = option {
            id.identifier = b"other@segue.invalid".to_vec();
        }
    }
    let body = segue_wire::mobility::body::BindingAcknowledgement {
        status: segue_wire::mobility::Status::ACCEPTED,
        flags: segue_wire::mobility::BindingAcknowledgementFlags::PROXY,
        sequence: asked.sequence,
        lifetime_4s: 10,
    };
    let forged =
        segue_wire::mobility::Message { body: Body::BindingAcknowledgement(body), options };
    let profile = segue_wire::mobility::Profile::STRICT;
    let bytes = forged.emit_with_checksum(LMA, mag(0), &profile).unwrap();
    let came = Datagram {
        waited_ns: 0,
        interface: None,
        from: (LMA.into(), 0),
        to: (mag(0).into(), 0),
        protocol: 135,
        hop_limit: 60,
        bytes,
    };
    domain.at_mag(0, Input::Datagram(came.clone()));
    let state = |domain: &Domain| domain.mags[0].stations().next().map(|(_, _, at)| at.state);
    assert_eq!(state(&domain), Some(StationState::Registering));
    let mut stranger = came;
    stranger.from.0 = mag(1).into();
    domain.at_mag(0, Input::Datagram(stranger));
    assert_eq!(state(&domain), Some(StationState::Registering));
    let names = domain.mags[0].refused().keys().map(|why| why.name());
    assert_eq!(names.collect::<Vec<_>>(), ["checksum", "stale"]);
    domain.run(s(1.0));
    assert_eq!(state(&domain), Some(StationState::Active));
}

#[test]
fn a_flow_of_another_interface_is_carried_without_being_advertised() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let other: Prefix = "2001:db8:0:77::/64".parse().unwrap();
    let initiate = |domain: &mut Domain, who: u8, prefixes: &[Prefix], sequence| {
        let mut options = vec![MobilityOption::MobileNodeIdentifier(
            segue_wire::mobility::option::MobileNodeIdentifier::nai(&node(who).to_string()),
        )];
        options.extend(prefixes.iter().map(|prefix| {
            let std::net::IpAddr::V6(address) = prefix.addr else { panic!() };
            MobilityOption::HomeNetworkPrefix(segue_wire::mobility::option::HomeNetworkPrefix {
                flags: segue_wire::mobility::option::HomeNetworkPrefixFlags::OFF_LINK,
                prefix_length: prefix.len,
                home_network_prefix: address,
            })
        }));
        let body = segue_wire::mobility::body::UpdateNotification {
            sequence,
            notification_reason: segue_wire::mobility::NotificationReason::FLOW_MOBILITY,
            flags: segue_wire::mobility::UpdateNotificationFlags::ACKNOWLEDGE,
        };
        let message =
            segue_wire::mobility::Message { body: Body::UpdateNotification(body), options };
        let profile = segue_wire::mobility::Profile::STRICT;
        let bytes = message.emit_with_checksum(LMA, mag(0), &profile).unwrap();
        domain.at_mag(
            0,
            Input::Datagram(Datagram {
                waited_ns: 0,
                interface: None,
                from: (LMA.into(), 0),
                to: (mag(0).into(), 0),
                protocol: 135,
                hop_limit: 60,
                bytes,
            }),
        );
        let answers = domain
            .sent_by(mag(0), |body| matches!(body, Body::UpdateNotificationAcknowledgement(_)));
        let (_, answer) = answers.last().unwrap();
        let Body::UpdateNotificationAcknowledgement(answer) = &answer.body else { panic!() };
        (answer.sequence, answer.status.0)
    };
    assert_eq!(initiate(&mut domain, 1, &[other], 7), (7, 0));
    let out = to_station(other, 1);
    assert!(domain.given[1].has(&out));
    let may = Forward::Source(Source { port: Port::Link(LINK), prefix: other });
    assert!(domain.given[1].has(&may));
    domain.run(s(700.0));
    assert!(!advertised(&domain, 1).contains(&other));
    // A notification lists all prefixes: one that is missing is withdrawn.
    assert_eq!(initiate(&mut domain, 1, &[], 8), (8, 0));
    assert!(!domain.given[1].has(&out));
    assert!(!domain.given[1].has(&may));
    assert_eq!(initiate(&mut domain, 2, &[other], 9), (9, 132));
}
