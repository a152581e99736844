//! The attributes of requests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, UnixTime};
use segue_wire::radius::{Attribute, AttributeType, PMIP6_SUPPORTED};

use crate::config::{AaaConfig, AaaProfile, Side};
use crate::grant::Grant;
use crate::io::{Cause, Subject, Volume};

/// Service-Type (RFC 2865, 5.6; RFC 5176, 3.2).
const LOGIN: u32 = 1;
const AUTHENTICATE_ONLY: u32 = 8;
const AUTHORIZE_ONLY: u32 = 17;
/// The password that paper 3's gateway sends.
const PAPERS_PASSWORD: &[u8] = b"linux";
/// Acct-Authentic: RADIUS.
const BY_RADIUS: u32 = 1;

/// Acct-Status-Type (RFC 2866, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Start = 1,
    Stop = 2,
    Interim = 3,
    /// Accounting-On: the client has restarted, so all its previous sessions have ended.
    On = 7,
}

/// The User-Name for a host's interface.
pub(crate) fn user_name(config: &AaaConfig, subject: &Subject) -> Vec<u8> {
    match (config.profile, &subject.node) {
        _ if config.eui64 && config.side == Side::Gateway => eui64(&subject.link_layer),
        (AaaProfile::Paper, _) if config.side == Side::Gateway => {
            format!("{:0>16}", digits(&subject.link_layer, "")).into_bytes()
        }
        (_, Some(node)) => node.clone(),
        (_, None) => digits(&subject.link_layer, "-").into_bytes(),
    }
}

/// The interface identifier that a host derives from its link-layer address (modified EUI-64, RFC 4291, appendix A), as
/// 16 digits.
fn eui64(link_layer: &[u8]) -> Vec<u8> {
    let octets = match *link_layer {
        [a, b, c, d, e, f] => [a ^ 2, b, c, 0xff, 0xfe, d, e, f].to_vec(),
        _ => link_layer.to_vec(),
    };
    digits(&octets, "").into_bytes()
}

/// The User-Password of a request; an anchor sends none.
pub(crate) fn password(config: &AaaConfig, subject: &Subject) -> Option<Vec<u8>> {
    if config.side == Side::Anchor {
        return None;
    }
    let usual = || match config.profile {
        AaaProfile::Rfc6572 => user_name(config, subject),
        AaaProfile::Paper => PAPERS_PASSWORD.to_vec(),
    };
    Some(config.password.clone().unwrap_or_else(usual))
}

/// The attributes of an Access-Request, except User-Password.
pub(crate) fn access(
    config: &AaaConfig,
    subject: &Subject,
    state: Option<&[u8]>,
) -> Vec<Attribute> {
    let service = match (config.side, config.profile) {
        (Side::Anchor, _) => AUTHORIZE_ONLY,
        (Side::Gateway, AaaProfile::Rfc6572) => LOGIN,
        (Side::Gateway, AaaProfile::Paper) => AUTHENTICATE_ONLY,
    };
    let mut all = Vec::from([Attribute::integer(AttributeType::SERVICE_TYPE, service)]);
    all.extend(of_subject(config, subject));
    if config.profile == AaaProfile::Rfc6572 {
        let features = AttributeType::MIP6_FEATURE_VECTOR;
        all.push(Attribute::integer64(features, PMIP6_SUPPORTED));
    }
    if config.side == Side::Anchor {
        let node = subject.node.iter();
        all.extend(node.map(|n| Attribute::octets(AttributeType::MOBILE_NODE_IDENTIFIER, n)));
        all.extend(homes(subject));
    }
    all.extend(state.map(|state| Attribute::octets(AttributeType::STATE, state)));
    all
}

/// The service that an Accounting-Request reports.
pub(crate) struct Served<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) grant: &'a Grant,
    /// Acct-Session-Id.
    pub(crate) session: &'a str,
    pub(crate) lasted: Span,
    /// Traffic, if it is counted.
    pub(crate) volume: Option<Volume>,
    /// Event-Timestamp: when the reported event happened.
    pub(crate) at: UnixTime,
}

/// The attributes of an Accounting-Request.
pub(crate) fn accounting(
    config: &AaaConfig,
    served: &Served<'_>,
    status: Status,
    cause: Option<Cause>,
) -> Vec<Attribute> {
    let Served { subject, grant, session, lasted, volume, at } = served;
    let integer = Attribute::integer;
    let mut all = Vec::from([
        integer(AttributeType::ACCT_STATUS_TYPE, status as u32),
        Attribute::octets(AttributeType::ACCT_SESSION_ID, session.as_bytes()),
        integer(AttributeType::ACCT_AUTHENTIC, BY_RADIUS),
        integer(AttributeType::EVENT_TIMESTAMP, at.as_secs() as u32),
    ]);
    all.extend(of_subject(config, subject));
    if let Some(node) = grant.node.as_ref().or(subject.node.as_ref()) {
        all.push(Attribute::octets(AttributeType::MOBILE_NODE_IDENTIFIER, node));
    }
    all.extend(homes(subject));
    let classes = grant.classes.iter();
    all.extend(classes.map(|class| Attribute::octets(AttributeType::CLASS, class)));
    if status != Status::Start {
        let seconds = lasted.as_micros() / 1_000_000;
        all.push(integer(AttributeType::ACCT_SESSION_TIME, seconds as u32));
        all.extend(volume.iter().flat_map(carried));
    }
    all.extend(cause.map(|cause| integer(AttributeType::ACCT_TERMINATE_CAUSE, cause as u32)));
    all
}

/// Traffic counters: octets as 64 bits in two attributes each (RFC 2869, 5.1 and 5.2), packets as 32 bits.
fn carried(volume: &Volume) -> [Attribute; 6] {
    let Volume { input_octets, output_octets, input_packets, output_packets } = volume;
    let low = |kind, number: &u64| Attribute::integer(kind, *number as u32);
    let high = |kind, number: &u64| Attribute::integer(kind, (*number >> 32) as u32);
    [
        low(AttributeType::ACCT_INPUT_OCTETS, input_octets),
        high(AttributeType::ACCT_INPUT_GIGAWORDS, input_octets),
        low(AttributeType::ACCT_OUTPUT_OCTETS, output_octets),
        high(AttributeType::ACCT_OUTPUT_GIGAWORDS, output_octets),
        low(AttributeType::ACCT_INPUT_PACKETS, input_packets),
        low(AttributeType::ACCT_OUTPUT_PACKETS, output_packets),
    ]
}

/// The attributes of an Accounting-On.
pub(crate) fn accounting_on(config: &AaaConfig, session: &str, at: UnixTime) -> Vec<Attribute> {
    let mut all = Vec::from([
        Attribute::integer(AttributeType::ACCT_STATUS_TYPE, Status::On as u32),
        Attribute::octets(AttributeType::ACCT_SESSION_ID, session.as_bytes()),
        Attribute::integer(AttributeType::EVENT_TIMESTAMP, at.as_secs() as u32),
    ]);
    all.extend(nas(config, &Subject::default()));
    all
}

/// Identifies the host and its access.
fn of_subject(config: &AaaConfig, subject: &Subject) -> Vec<Attribute> {
    let mut all =
        Vec::from([Attribute::octets(AttributeType::USER_NAME, &user_name(config, subject))]);
    if !subject.link_layer.is_empty() {
        let station = digits(&subject.link_layer, "-");
        all.push(Attribute::octets(AttributeType::CALLING_STATION_ID, station.as_bytes()));
    }
    all.extend(nas(config, subject));
    all
}

/// Identifies the client. A request needs NAS-IPv6-Address or NAS-Identifier (RFC 2865, 4.1; RFC 3162, 2.1).
fn nas(config: &AaaConfig, subject: &Subject) -> Vec<Attribute> {
    let mut all = Vec::new();
    let address = subject.nas.map(Into::into);
    all.extend(address.map(|nas| Attribute::address(AttributeType::NAS_IPV6_ADDRESS, nas)));
    let identifier = config.identifier.as_deref();
    let identifier = identifier.or_else(|| subject.nas.is_none().then_some("segue"));
    let octets = |kind, text: &str| Attribute::octets(kind, text.as_bytes());
    all.extend(identifier.map(|text| octets(AttributeType::NAS_IDENTIFIER, text)));
    let kind = subject.port_type;
    all.extend(kind.map(|kind| Attribute::integer(AttributeType::NAS_PORT_TYPE, kind)));
    let port = subject.port.as_deref();
    all.extend(port.map(|port| octets(AttributeType::NAS_PORT_ID, port)));
    all
}

fn homes(subject: &Subject) -> impl Iterator<Item = Attribute> {
    let all = subject.prefixes.iter();
    all.map(|prefix| Attribute::prefix(AttributeType::PMIP6_HOME_HN_PREFIX, *prefix))
}

/// Hexadecimal digits, joined by `between`: `02-00-00-00-00-0A`, as access points write addresses (RFC 3580, 3.21).
/// Lower case if `between` is empty.
fn digits(octets: &[u8], between: &str) -> String {
    let case = |octet: &u8| match between.is_empty() {
        true => format!("{octet:02x}"),
        false => format!("{octet:02X}"),
    };
    octets.iter().map(case).collect::<Vec<String>>().join(between)
}
