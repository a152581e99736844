//! The fields of tshark and ours.

/// What a field of tshark's is here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Is {
    /// The message's name, which stands in its type.
    Message,
    /// A field of one of these names, the same number or address.
    Field(&'static [&'static str]),
    /// The same, bytes in hexadecimal digits.
    Bytes(&'static [&'static str]),
    /// The same; tshark shows a number with a name, of which the number counts.
    Checksum,
    /// tshark's verdict on the checksum.
    ChecksumStatus,
    /// A flag of this letter, if it is set.
    Flag(&'static str),
    /// An option of this name begins.
    Option(&'static str),
    /// An option begins; tshark shows its type as a number.
    OptionType,
    /// The preference of a router.
    Preference,
}

use Is::*;

const RESERVED: &str = "reserved: zero, or the message would not re-encode";
const PADDING: &str = "padding, which is not shown: re-encoding proves it";
const LENGTH: &str = "follows from the fields, and is proven by re-encoding";
const WHOLE: &str = "stands for the bits or bytes that follow";
const AGAIN: &str = "said before";

/// Fields of tshark's `mip6`, of its neighbour discovery, and of the headers of Mobile IPv6.
pub(crate) const TABLE: &[(&str, Is)] = &[
    ("ipv6.opt.mipv6.home_address", Field(&["home_address_option.home_address"])),
    ("ipv6.routing.mipv6.home_address", Field(&["type_2_routing_header.home_address"])),
    ("mip6.proto", Field(&["payload_proto"])),
    ("mip6.hlen", Field(&["header_len"])),
    ("mip6.mhtype", Message),
    ("mip6.csum", Checksum),
    ("mip6.hoti.cookie", Bytes(&["home_init_cookie"])),
    ("mip6.coti.cookie", Bytes(&["care_of_init_cookie"])),
    ("mip6.hot.nindex", Field(&["home_nonce_index"])),
    ("mip6.hot.cookie", Bytes(&["home_init_cookie"])),
    // tshark has one name for both tokens.
    ("mip6.hot.token", Bytes(&["home_keygen_token", "care_of_keygen_token"])),
    ("mip6.cot.nindex", Field(&["care_of_nonce_index"])),
    ("mip6.cot.cookie", Bytes(&["care_of_init_cookie"])),
    ("mip6.bu.seqnr", Field(&["sequence"])),
    ("mip6.bu.a_flag", Flag("A")),
    ("mip6.bu.h_flag", Flag("H")),
    ("mip6.bu.l_flag", Flag("L")),
    ("mip6.bu.k_flag", Flag("K")),
    ("mip6.bu.m_flag", Flag("M")),
    ("mip6.nemo.bu.r_flag", Flag("R")),
    ("mip6.bu.p_flag", Flag("P")),
    ("mip6.bu.f_flag", Flag("F")),
    ("mip6.bu.t_flag", Flag("T")),
    // Of a host's update the bit is O (RFC 5648), which tshark does not know: none here has it.
    ("mip6.bu.b_flag", Flag("B")),
    ("mip6.bu.lifetime", Field(&["lifetime_4s"])),
    ("mip6.ba.status", Field(&["status"])),
    ("mip6.ba.k_flag", Flag("K")),
    ("mip6.nemo.ba.r_flag", Flag("R")),
    ("mip6.ba.p_flag", Flag("P")),
    ("mip6.ba.t_flag", Flag("T")),
    ("mip6.ba.b_flag", Flag("B")),
    ("mip6.ba.seqnr", Field(&["sequence"])),
    ("mip6.ba.lifetime", Field(&["lifetime_4s"])),
    ("mip6.options.acoa", Option("alternate_care_of_address")),
    ("mip6.acoa.acoa", Field(&["alternate_care_of_address"])),
    ("mip6.options.ni", Option("nonce_indices")),
    ("mip6.ni.hni", Field(&["home_nonce_index"])),
    ("mip6.ni.cni", Field(&["care_of_nonce_index"])),
    ("mip6.options.bad_auth", Option("binding_authorization_data")),
    ("mip6.bad.auth", Bytes(&["authenticator"])),
    ("mip6.options.mnid", Option("mobile_node_identifier")),
    ("mip6.mnid.subtype", Field(&["subtype"])),
    ("mip6.mnid.identifier", Field(&["identifier"])),
    ("mip6.options.hnp", Option("home_network_prefix")),
    ("mip6.nemo.mnp.pfl", Field(&["prefix_length"])),
    ("mip6.nemo.mnp.mnp", Field(&["home_network_prefix", "mobile_network_prefix"])),
    ("mip6.options.hi", Option("handoff_indicator")),
    ("mip6.hi", Field(&["handoff_indicator"])),
    ("mip6.options.att", Option("access_technology_type")),
    ("mip6.att", Field(&["access_technology_type"])),
    ("mip6.options.mnlli", Option("mobile_node_link_layer_identifier")),
    ("mip6.mnlli.lli", Bytes(&["link_layer_identifier"])),
    // OAI-PMIPv6-FM's messages are longer than they say, and their last option goes past the end that tshark sees.
    ("mip6.opt.len.invalid", Option("timestamp")),
    ("icmpv6.type", Message),
    ("icmpv6.code", Field(&["code"])),
    ("icmpv6.checksum", Checksum),
    ("icmpv6.checksum.status", ChecksumStatus),
    ("icmpv6.mip6.identifier", Field(&["identifier"])),
    ("icmpv6.mip6.flag.m", Flag("M")),
    ("icmpv6.mip6.flag.o", Flag("O")),
    ("icmpv6.mip6.home_agent_address", Field(&["home_agent_addresses"])),
    ("icmpv6.nd.na.flag.r", Flag("R")),
    ("icmpv6.nd.na.flag.s", Flag("S")),
    ("icmpv6.nd.na.flag.o", Flag("O")),
    ("icmpv6.nd.na.target_address", Field(&["target_address"])),
    ("icmpv6.nd.ns.target_address", Field(&["target_address"])),
    ("icmpv6.rd.na.target_address", Field(&["target_address"])),
    ("icmpv6.rd.na.destination_address", Field(&["destination_address"])),
    ("icmpv6.nd.ra.cur_hop_limit", Field(&["cur_hop_limit"])),
    ("icmpv6.nd.ra.flag.m", Flag("M")),
    ("icmpv6.nd.ra.flag.o", Flag("O")),
    ("icmpv6.nd.ra.flag.h", Flag("H")),
    ("icmpv6.nd.ra.flag.prf", Preference),
    ("icmpv6.nd.ra.flag.p", Flag("P")),
    ("icmpv6.nd.ra.router_lifetime", Field(&["router_lifetime"])),
    ("icmpv6.nd.ra.reachable_time", Field(&["reachable_time"])),
    ("icmpv6.nd.ra.retrans_timer", Field(&["retrans_timer"])),
    ("icmpv6.opt.type", OptionType),
    ("icmpv6.opt.linkaddr", Field(&["link_layer_address"])),
    // An option that has no format here.
    ("icmpv6.opt.nonce", Bytes(&["data"])),
    ("icmpv6.opt.prefix.length", Field(&["prefix_length"])),
    ("icmpv6.opt.prefix.flag.l", Flag("L")),
    ("icmpv6.opt.prefix.flag.a", Flag("A")),
    ("icmpv6.opt.prefix.flag.r", Flag("R")),
    ("icmpv6.opt.prefix.valid_lifetime", Field(&["valid_lifetime"])),
    ("icmpv6.opt.prefix.preferred_lifetime", Field(&["preferred_lifetime"])),
    ("icmpv6.opt.prefix", Field(&["prefix"])),
    ("icmpv6.opt.mtu", Field(&["mtu"])),
    ("icmpv6.opt.advertisement_interval", Field(&["advertisement_interval"])),
    ("icmpv6.opt.home_agent_preference", Field(&["home_agent_preference"])),
    ("icmpv6.opt.home_agent_lifetime", Field(&["home_agent_lifetime"])),
    ("icmpv6.opt.route_info.flag.route_preference", Preference),
    ("icmpv6.opt.route_lifetime", Field(&["route_lifetime"])),
    ("icmpv6.opt.rdnss.lifetime", Field(&["lifetime"])),
    ("icmpv6.opt.rdnss", Field(&["addresses"])),
    ("icmpv6.opt.dnssl.lifetime", Field(&["lifetime"])),
    ("icmpv6.opt.dnssl", Field(&["domain_names"])),
];

/// Fields of tshark's that are not compared, and why. The two tables have every field that a capture shows.
pub(crate) const NOT_COMPARED: &[(&str, &str)] = &[
    ("mip6.reserved", RESERVED),
    ("mip6.mobility_opt.len", LENGTH),
    ("mip6.options.padn", PADDING),
    ("mip6.padn", PADDING),
    ("mip6.hi.reserved", RESERVED),
    ("mip6.att.reserved", RESERVED),
    ("mip6.mnlli.reserved", RESERVED),
    ("icmpv6.reserved", RESERVED),
    ("icmpv6.resp_to", "tshark's own pairs of questions and answers"),
    ("icmpv6.resptime", "tshark's own pairs of questions and answers"),
    ("icmpv6.mip6.flag", WHOLE),
    ("icmpv6.mip6.flag.rsv", RESERVED),
    ("icmpv6.nd.na.flag", WHOLE),
    ("icmpv6.nd.na.flag.rsv", RESERVED),
    ("icmpv6.nd.ra.flag", WHOLE),
    ("icmpv6.nd.ra.flag.rsv", RESERVED),
    ("icmpv6.opt", WHOLE),
    ("icmpv6.opt.length", LENGTH),
    ("icmpv6.opt.reserved", RESERVED),
    ("icmpv6.opt.src_linkaddr", AGAIN),
    ("icmpv6.opt.target_linkaddr", AGAIN),
    ("icmpv6.opt.prefix.flag", WHOLE),
    ("icmpv6.opt.prefix.flag.reserved", RESERVED),
    ("icmpv6.opt.route_info.flag", WHOLE),
    ("icmpv6.opt.route_info.flag.reserved", RESERVED),
    ("ipv6.routing.mipv6.reserved", RESERVED),
];

/// Our names of the options of neighbour discovery.
pub(crate) fn option_name(kind: &str) -> &'static str {
    match kind {
        "1" => "source_link_layer_address",
        "2" => "target_link_layer_address",
        "3" => "prefix_information",
        "4" => "redirected_header",
        "5" => "mtu",
        "7" => "advertisement_interval",
        "8" => "home_agent_information",
        "24" => "route_information",
        "25" => "recursive_dns_server",
        "31" => "dns_search_list",
        _ => "unknown",
    }
}
