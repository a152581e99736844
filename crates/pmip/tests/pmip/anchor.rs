//! Updates that an anchor refuses, and the status of the answer.

use std::net::Ipv6Addr;

use segue_clock::{Span, UnixTime};
use segue_ip::{Datagram, Input, Prefix};
use segue_mobility::Pool;
use segue_pmip::{Nodes, Report};
use segue_wire::mobility::body::BindingUpdate;
use segue_wire::mobility::option::{
    AccessTechnology, AccessTechnologyType, Handoff, HandoffIndicator, HomeNetworkPrefix,
    HomeNetworkPrefixFlags, MobileNodeIdentifier, MobileNodeLinkLayerIdentifier, Timestamp,
};
use segue_wire::mobility::{BindingUpdateFlags, Body, Message, MobilityOption, Profile, Status};

use crate::domain::*;

/// An update as a gateway would send it; tests modify it.
struct Asked {
    from: Ipv6Addr,
    sequence: u16,
    flags: BindingUpdateFlags,
    lifetime_4s: u16,
    options: Vec<MobilityOption>,
}

fn stamp(at: UnixTime) -> MobilityOption {
    let (seconds, fraction_65536ths) = at.to_timestamp();
    MobilityOption::Timestamp(Timestamp { seconds, fraction_65536ths })
}

fn home(prefix: Prefix) -> MobilityOption {
    let std::net::IpAddr::V6(home_network_prefix) = prefix.addr else { panic!() };
    let flags = HomeNetworkPrefixFlags(0);
    let prefix_length = prefix.len;
    MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix {
        flags,
        prefix_length,
        home_network_prefix,
    })
}

fn any() -> Prefix {
    "::/0".parse().unwrap()
}

impl Asked {
    fn new(domain: &Domain, who: u8) -> Asked {
        let now = DAY + domain.now.since(segue_clock::Time::ZERO);
        Asked {
            from: mag(7),
            sequence: 1,
            flags: BindingUpdateFlags::ACKNOWLEDGE | BindingUpdateFlags::PROXY,
            lifetime_4s: 100,
            options: vec![
                MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai(
                    &node(who).to_string(),
                )),
                home(any()),
                MobilityOption::HandoffIndicator(HandoffIndicator {
                    handoff_indicator: Handoff::NEW_INTERFACE,
                }),
                MobilityOption::AccessTechnologyType(AccessTechnologyType {
                    access_technology_type: AccessTechnology::WLAN,
                }),
                MobilityOption::MobileNodeLinkLayerIdentifier(MobileNodeLinkLayerIdentifier {
                    link_layer_identifier: station(who).0,
                }),
                stamp(now),
            ],
        }
    }

    /// Removes the options of this kind.
    fn without(mut self, kind: u8) -> Asked {
        self.options.retain(|option| option.kind() != kind);
        self
    }

    fn with(mut self, option: MobilityOption) -> Asked {
        self = self.without(option.kind());
        self.options.push(option);
        self
    }

    fn datagram(&self) -> Datagram {
        let (sequence, flags, lifetime_4s) = (self.sequence, self.flags, self.lifetime_4s);
        let body = Body::BindingUpdate(BindingUpdate { sequence, flags, lifetime_4s });
        let message = Message { body, options: self.options.clone() };
        let bytes = message.emit_with_checksum(self.from, LMA, &Profile::STRICT).unwrap();
        let (from, to) = ((self.from.into(), 0), (LMA.into(), 0));
        Datagram { waited_ns: 0, interface: None, from, to, protocol: 135, hop_limit: 60, bytes }
    }
}

fn answer(domain: &mut Domain, asked: &Asked) -> Option<(Status, u16, Vec<MobilityOption>)> {
    domain.log.clear();
    domain.at_lma(Input::Datagram(asked.datagram()));
    let answers = domain.sent_by(LMA, is_acknowledgement);
    assert!(answers.len() <= 1, "{answers:?}");
    let (_, message) = answers.first()?;
    let Body::BindingAcknowledgement(answer) = &message.body else { return None };
    Some((answer.status, answer.sequence, message.options.clone()))
}

fn status(domain: &mut Domain, asked: &Asked) -> Option<u8> {
    answer(domain, asked).map(|(status, ..)| status.0)
}

#[test]
fn each_check_has_its_status_and_the_first_that_fails_counts() {
    let mut config = lma_config();
    let known = [(node(1), true), (node(2), true), (node(3), false)];
    config.nodes = Nodes::Listed(known.into());
    let mut domain = Domain::of(config, vec![]);
    domain.run(s(10.0));
    let asked = |domain: &Domain| Asked::new(domain, 1);
    let mut stranger = asked(&domain);
    stranger.from = "fd00::9".parse().unwrap();
    let old = |by| stamp(DAY + Span::from_secs(10) - by);
    let (ms, many) = (Span::from_millis(299), Span::from_millis(301));
    let cases = [
        // Each update also fails all later checks.
        (asked(&domain).without(8).without(22), 160),
        (stranger.without(22), 154),
        (Asked::new(&domain, 4).without(22), 153),
        (Asked::new(&domain, 3).without(22), 152),
        (asked(&domain).without(22).with(old(many)), 156),
        (asked(&domain).without(22).without(23).without(24), 158),
        (asked(&domain).without(23).without(24), 161),
        (asked(&domain).without(24), 162),
        (asked(&domain).with(old(ms)), 0),
        // Not later than the previous update.
        (asked(&domain).without(22).with(old(ms)), 157),
        (asked(&domain).with(home("2001:db9:9:9::/64".parse().unwrap())), 155),
    ];
    for (n, (asked, expected)) in cases.into_iter().enumerate() {
        let before = domain.lma.sessions().map(|x| format!("{x:?}")).collect::<Vec<_>>();
        assert_eq!(status(&mut domain, &asked), Some(expected), "case {n}");
        if expected >= 128 {
            let after = domain.lma.sessions().map(|x| format!("{x:?}")).collect::<Vec<_>>();
            assert_eq!(before, after, "nothing has changed");
            assert_eq!(domain.refused(Status(expected).name().unwrap()), 1);
        }
    }
    let denied = |report: &&Report| matches!(report, Report::Denied { .. });
    assert_eq!(domain.reports.iter().filter(denied).count(), 9, "but of strangers");
    // The log explains the refusals and names the clock offset.
    let said: Vec<String> = domain.reports.iter().filter(denied).map(ToString::to_string).collect();
    let all = said.join("\n");
    assert!(all.contains("the gateway's clock is 0.3 s behind the anchor's"), "{all}");
    assert!(all.contains("the anchor's `nodes` do not list this host"), "{all}");
    for report in &said {
        let (_, why) = report.split_once("refused: ").unwrap();
        assert!(!why.contains('_') || why.contains('`') || why.contains("window"), "{report}");
    }
    let named: Vec<String> = domain
        .reports
        .iter()
        .filter(|report| matches!(report, Report::Stranger { .. }))
        .map(ToString::to_string)
        .collect();
    assert_eq!(named.len(), 1);
    assert!(named[0].starts_with("fd00::9 wants to register"), "{named:?}");
    assert!(named[0].ends_with("add \"fd00::9\" there"), "{named:?}");
}

#[test]
fn a_gateway_that_is_not_listed_is_named_once_in_an_hour_and_a_flood_of_them_is_not() {
    let mut domain = Domain::new(0);
    let named = |domain: &Domain| {
        domain.reports.iter().filter(|report| matches!(report, Report::Stranger { .. })).count()
    };
    for (at, expected) in [(1.0, 1), (1_000.0, 1), (3_700.0, 2)] {
        domain.run(s(at));
        let mut stranger = Asked::new(&domain, 1);
        stranger.from = "2001:db8:9::9".parse().unwrap();
        status(&mut domain, &stranger);
        assert_eq!(named(&domain), expected, "after {at} s");
    }
    for n in 0..100 {
        let mut stranger = Asked::new(&domain, 1);
        stranger.from = std::net::Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 1, n);
        status(&mut domain, &stranger);
    }
    assert_eq!(named(&domain), 17);
}

#[test]
fn clocks_that_differ_are_told_the_anchors_and_the_rest_is_repeated() {
    let mut domain = Domain::new(0);
    let asked = Asked::new(&domain, 1).with(stamp(DAY + Span::from_secs(5)));
    let (status, sequence, options) = answer(&mut domain, &asked).unwrap();
    assert_eq!((status, sequence), (Status::TIMESTAMP_MISMATCH, 1));
    assert!(options.contains(&stamp(DAY)));
    assert!(options.contains(&home(any())), "the prefix of the request");
    let asked = Asked::new(&domain, 1);
    let (_, _, options) = answer(&mut domain, &asked).unwrap();
    for option in asked.options.iter().filter(|option| option.kind() != 22) {
        assert!(options.contains(option), "{option:?} is repeated as it came");
    }
    assert_eq!(options.len(), asked.options.len());
    // Options that are missing in the update are answered with empty ones.
    let asked = Asked::new(&domain, 2).without(8).without(23).without(24).without(25).without(27);
    let (status, _, options) = answer(&mut domain, &asked).unwrap();
    assert_eq!(status, Status::MISSING_MN_IDENTIFIER_OPTION);
    let kinds: Vec<u8> = options.iter().map(MobilityOption::kind).collect();
    assert_eq!(kinds, [22, 8, 23, 24]);
}

#[test]
fn without_timestamps_sequence_numbers_order_and_the_last_one_is_told() {
    let mut domain = Domain::new(0);
    let mut asked = Asked::new(&domain, 1).without(27);
    asked.sequence = 65_530;
    assert_eq!(status(&mut domain, &asked), Some(0));
    assert_eq!(answer(&mut domain, &asked).map(|(s, n, _)| (s.0, n)), Some((135, 65_530)));
    asked.sequence = 3;
    assert_eq!(status(&mut domain, &asked), Some(0), "they wrap");
    asked.sequence = 65_535;
    assert_eq!(answer(&mut domain, &asked).map(|(s, n, _)| (s.0, n)), Some((135, 3)));
}

#[test]
fn nobody_registers_with_anothers_prefix_or_with_other_than_all_of_his() {
    let mut domain = Domain::new(0);
    let first = Asked::new(&domain, 1);
    let (_, _, options) = answer(&mut domain, &first).unwrap();
    let own = options.iter().find(|option| option.kind() == 22).cloned().unwrap();
    domain.run(s(1.0));
    let thief = Asked::new(&domain, 2).with(own.clone());
    assert_eq!(status(&mut domain, &thief), Some(155));
    let mut more = Asked::new(&domain, 1).with(own.clone());
    more.options.push(home("2001:db8:0:55::/64".parse().unwrap()));
    assert_eq!(status(&mut domain, &more), Some(159));
    let again = Asked::new(&domain, 1).with(own);
    assert_eq!(status(&mut domain, &again), Some(0));
    // A prefix that no binding holds is granted if it is from the pool.
    let free: Prefix = "2001:db8:0:55::/64".parse().unwrap();
    let asked = Asked::new(&domain, 3).with(home(free));
    let (status, _, options) = answer(&mut domain, &asked).unwrap();
    assert!(status.is_accepted() && options.contains(&home(free)));
}

#[test]
fn an_end_is_answered_once_bound_and_silently_ignored_otherwise() {
    let mut domain = Domain::new(0);
    let mut end = Asked::new(&domain, 1);
    end.lifetime_4s = 0;
    assert_eq!(status(&mut domain, &end), None, "there is no such binding");
    let first = Asked::new(&domain, 1);
    assert_eq!(status(&mut domain, &first), Some(0));
    domain.run(s(1.0));
    let mut of_other = Asked::new(&domain, 1);
    (of_other.from, of_other.lifetime_4s) = (mag(8), 0);
    assert_eq!(status(&mut domain, &of_other), None, "another gateway's");
    let mut end = Asked::new(&domain, 1);
    end.lifetime_4s = 0;
    assert_eq!(status(&mut domain, &end), Some(0));
    // An older update must not bring the binding back.
    domain.run(s(1.1));
    let late = Asked::new(&domain, 1).with(stamp(DAY + Span::from_millis(999)));
    assert_eq!(status(&mut domain, &late), Some(157));
}

#[test]
fn a_full_pool_and_a_full_table_are_said_and_the_largest_gateway_makes_room() {
    let mut config = lma_config();
    config.pool = Pool::prefixes("2001:db8::/62".parse().unwrap(), 64, 1).unwrap();
    let mut domain = Domain::of(config, vec![]);
    for who in 1..=3 {
        let asked = Asked::new(&domain, who);
        assert_eq!(status(&mut domain, &asked), Some(0));
    }
    let asked = Asked::new(&domain, 4);
    assert_eq!(status(&mut domain, &asked), Some(130));

    let mut config = lma_config();
    config.capacity = 3;
    let mut domain = Domain::of(config, vec![]);
    for who in 1..=3 {
        let asked = Asked::new(&domain, who);
        assert_eq!(status(&mut domain, &asked), Some(0));
    }
    let same = Asked::new(&domain, 4);
    assert_eq!(status(&mut domain, &same), Some(130), "it is the gateway with the most itself");
    let mut other = Asked::new(&domain, 5);
    other.from = mag(8);
    assert_eq!(status(&mut domain, &other), Some(0));
    let gone =
        |report: &&Report| matches!(report, Report::Left { why, .. } if why.name() == "displaced");
    assert_eq!(domain.reports.iter().filter(gone).count(), 1);
    assert_eq!(domain.lma.sessions().count(), 3);
}

#[test]
fn what_is_no_message_for_it_is_counted_and_not_answered() {
    let mut domain = Domain::new(0);
    let good = Asked::new(&domain, 1).datagram();
    let mut spoilt = good.clone();
    spoilt.bytes[8] ^= 1;
    let mut cut = good.clone();
    cut.bytes.truncate(11);
    let mut of_host = Asked::new(&domain, 1);
    of_host.flags = BindingUpdateFlags::ACKNOWLEDGE | BindingUpdateFlags::HOME_REGISTRATION;
    for datagram in [spoilt, cut, of_host.datagram()] {
        domain.at_lma(Input::Datagram(datagram));
    }
    assert!(domain.log.is_empty());
    let refused = ["checksum", "not_served"].map(|name| domain.refused(name));
    assert_eq!(refused, [2, 1]);
}

#[test]
fn a_gateway_that_has_not_noticed_that_a_host_has_moved_cannot_take_it_back() {
    let mut domain = Domain::new(0);
    let renews = |domain: &Domain, from| {
        let mut asked =
            Asked::new(domain, 1).with(MobilityOption::HandoffIndicator(HandoffIndicator {
                handoff_indicator: Handoff::REREGISTRATION,
            }));
        asked.from = from;
        asked
    };
    assert_eq!(status(&mut domain, &Asked::new(&Domain::new(0), 1)), Some(0));
    domain.run(s(1.0));
    let here = renews(&domain, mag(7));
    assert_eq!(status(&mut domain, &here), Some(0));
    domain.run(s(2.0));
    let elsewhere = renews(&domain, mag(8));
    assert_eq!(status(&mut domain, &elsewhere), Some(129));
    // After a deregistration, any gateway may register the interface.
    let mut end = Asked::new(&domain, 1);
    end.lifetime_4s = 0;
    assert_eq!(status(&mut domain, &end), Some(0));
    domain.run(s(3.0));
    let elsewhere = renews(&domain, mag(8));
    assert_eq!(status(&mut domain, &elsewhere), Some(0));
}
