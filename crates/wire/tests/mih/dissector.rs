//! Checks our frames against tshark, which takes the most significant bit of a BITMAP as bit 0. Values that tshark
//! reads differently from ODTONE are excluded: IP_ADDR (it takes a byte of the address for its length), NETWORK_TYPE
//! (it takes choice 0 for a value), the list of thresholds in TLV 29, TLV 27, and the bits of TLV 6, which it takes for
//! those of LINK_CMD_LIST.

use std::io::Write;
use std::process::Command;

use etherparse::PacketBuilder;
use segue_wire::mih::codes::*;
use segue_wire::mih::identity::*;
use segue_wire::mih::link::*;
use segue_wire::mih::{BitOrder, Frame, MessageId, Opcode, PORT, Payload, Profile, Tlv};

/// Builds a capture file of raw IP packets (link type 101).
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    // Magic number, version 2.4, time zone, accuracy, longest packet, link type.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (i, frame) in (0u32..).zip(frames) {
        let mut packet = Vec::new();
        let ip = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
        ip.udp(PORT, PORT).write(&mut packet, frame).unwrap();
        let length = packet.len() as u32;
        [i, 0, length, length].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

/// All values that tshark reports for these fields of each frame; `None` without tshark.
fn dissect(frames: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture(frames)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(file.path()).args(["-T", "fields", "-E", "aggregator=;"]);
    for field in fields {
        tshark.args(["-e", &format!("mih.{field}")]);
    }
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: tshark cannot be run: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
    let lines: Vec<Vec<String>> = lines.collect();
    assert_eq!(lines.len(), frames.len(), "{text}");
    Some(lines)
}

/// The bit order of BITMAPs in tshark.
const TSHARK: Profile = Profile { bit_order: BitOrder::MostFirst, ..Profile::STRICT };

/// Compares all values of fields with those expected for a frame with these TLVs.
fn expect(tlvs: Vec<Tlv>, expected: &[(&str, &str)]) {
    let frame = Frame::new(MessageId::LINK_UP, 1, tlvs).emit(&TSHARK).unwrap();
    let fields: Vec<&str> = expected.iter().map(|(field, _)| *field).collect();
    let Some(lines) = dissect(&[frame], &fields) else { return };
    for ((field, expected), told) in expected.iter().zip(&lines[0]) {
        assert_eq!(told, expected, "{field}");
    }
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x51];

fn link() -> LinkId {
    LinkId { link_type: LinkType::IEEE_802_11, address: LinkAddress::mac(MAC) }
}

#[test]
fn an_independent_dissector_reads_the_header() {
    let tlvs = || vec![Tlv::SourceMihfId("mihf1".into()), Tlv::DestinationMihfId("".into())];
    let subscribed = MessageId::EVENT_SUBSCRIBE.with_opcode(Opcode::RESPONSE);
    let part = Payload::Fragment { number: 5, more: true, part: vec![1, 2, 0, b'a'] };
    let frames = [
        Frame { ack_req: true, ..Frame::new(MessageId::LINK_UP, 0xfff, tlvs()) },
        Frame { ack_rsp: true, ..Frame::new(subscribed, 0x103, tlvs()) },
        Frame { uir: true, ..Frame::new(MessageId::GET_INFORMATION, 0, tlvs()) },
        Frame { payload: part, ..Frame::new(MessageId::NET_HO_COMMIT, 9, vec![]) },
    ];
    let bytes: Vec<_> = frames.iter().map(|frame| frame.emit(&Profile::STRICT).unwrap()).collect();
    let fields = [
        "version",
        "acq_req",
        "acq_resp",
        "uir",
        "more_frag",
        "frag_no",
        "mid",
        "service_id",
        "opcode",
        "action_id",
        "tid",
        "pay_len",
    ];
    let Some(lines) = dissect(&bytes, &fields) else { return };
    for ((frame, bytes), line) in frames.iter().zip(&bytes).zip(lines) {
        let (number, more) = match frame.payload {
            Payload::Fragment { number, more, .. } => (number, more),
            Payload::Tlvs(_) => (0, false),
        };
        let id = frame.message_id;
        let flag = |is_set: bool| u64::from(is_set);
        let expected: [u64; 12] = [
            1,
            flag(frame.ack_req),
            flag(frame.ack_rsp),
            flag(frame.uir),
            flag(more),
            number.into(),
            id.0.into(),
            id.service().0.into(),
            id.opcode().0.into(),
            id.action().into(),
            frame.transaction_id.into(),
            bytes.len() as u64 - 8,
        ];
        // The version appears twice in the tree.
        let value = |text: &String| {
            let text = text.split(';').next().unwrap();
            match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                None => text.parse().unwrap_or_else(|_| panic!("{line:?}")),
            }
        };
        assert_eq!(line.iter().map(value).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn an_independent_dissector_reads_names_addresses_and_codes() {
    expect(
        vec![
            Tlv::SourceMihfId("gateway.example".into()),
            Tlv::DestinationMihfId("mihf2".into()),
            Tlv::Status(Status::AUTHORIZATION_FAILURE),
            Tlv::LinkDownReason(LinkDownReason::BILLING_FAILURE),
            Tlv::LinkGoingDownReason(LinkGoingDownReason::LOW_POWER),
            Tlv::TimeInterval(1500),
            Tlv::ValidTimeInterval(100_000),
            Tlv::HandoverStatus(HandoverStatus::DECLINED),
            Tlv::RegisterRequestCode(RegisterRequestCode::RE_REGISTRATION),
            Tlv::MaxResponseSize(9000),
        ],
        &[
            ("tlv_type", "1;2;3;20;22;21;12;34;11;47"),
            ("tlv_length", "16;6;1;1;1;2;4;1;1;2"),
            ("mihf_id", "gateway.example;mihf2"),
            ("status", "3"),
            ("link_dn_reason", "5"),
            ("link_gdn_reason", "2"),
            ("time_interval", "1500"),
            ("valid_time_interval", "100000"),
            ("ho_status", "1"),
            ("reg_request_code", "1"),
            ("max_resp_size", "9000"),
        ],
    );
}

#[test]
fn an_independent_dissector_reads_links() {
    let gsm = LinkAddress::Cell2g(Cell2g { plmn_id: [1, 2, 3], lac: 500, ci: 600 });
    let umts = LinkAddress::Cell3g(Cell3g { plmn_id: [1, 2, 3], cell_id: 70_000 });
    expect(
        vec![
            Tlv::LinkIdentifierList(vec![
                link(),
                LinkId { link_type: LinkType::GSM, address: gsm },
            ]),
            Tlv::NewAccessRouter(umts),
            Tlv::Poa(LinkAddress::Other("poa".into())),
        ],
        &[
            ("link_type", "19;1"),
            ("link_addr_type", "0;2;1;5"),
            ("link_transport_addr_type", "6"),
            ("mac_addr", "02:00:00:00:00:51"),
            ("plmn_id", "66051;66051"),
            ("lac", "500"),
            ("ci", "600"),
            ("cell_id", "70000"),
            ("link_addr_string", "poa"),
        ],
    );
}

#[test]
fn an_independent_dissector_reads_parameters_and_thresholds() {
    let parameter = Parameter {
        parameter: ParameterType::Ieee80211(Ieee80211Parameter::RSSI),
        value: ParameterValue::Number(40),
    };
    let threshold = Threshold { value: 35, direction: ThresholdDirection::BELOW };
    let losses = vec![ClassValue { class: 1, value: 7 }, ClassValue { class: 2, value: 8 }];
    let qos = Parameter {
        parameter: ParameterType::Generic(GenericParameter::THROUGHPUT),
        value: ParameterValue::Qos(QosValue::PacketLossRate(losses)),
    };
    expect(
        vec![
            Tlv::LinkParameterReportList(vec![
                ParameterReport { parameter, threshold: Some(threshold.clone()) },
                ParameterReport { parameter: qos, threshold: None },
            ]),
            Tlv::ConfigureResponseList(vec![ParameterConfigurationStatus {
                parameter: ParameterType::Generic(GenericParameter::SINR),
                threshold: Threshold { value: 12, direction: ThresholdDirection::ABOVE },
                configured: true,
            }]),
        ],
        &[
            ("link_param_802_11", "0"),
            ("link_param_value", "40"),
            ("threshold_val", "35;12"),
            ("threshold_x_dir", "1;0"),
            ("link_param_gen", "3;2"),
            ("cos_id", "1;2"),
            ("cos_value", "7;8"),
            ("config_status", "1"),
        ],
    );
}

#[test]
fn an_independent_dissector_reads_actions_and_states() {
    expect(
        vec![
            Tlv::LinkActionsList(vec![LinkActionRequest {
                link: link(),
                address: None,
                action: LinkActionType::POWER_UP,
                attributes: LinkActionAttributes::SCAN | LinkActionAttributes::FORWARD_DATA,
                execution_time_ms: 250,
            }]),
            Tlv::LinkActionsResultList(vec![LinkActionResponse {
                link: link(),
                result: LinkActionResult::INCAPABLE,
                scan: Some(vec![LinkScanResponse {
                    address: LinkAddress::mac(MAC),
                    network_id: "cafe".into(),
                    signal: SignalStrength::Dbm(-70),
                }]),
            }]),
            Tlv::DeviceStatesResponseList(vec![
                DeviceState::DeviceInfo("phone".into()),
                DeviceState::BatteryLevel(80),
            ]),
        ],
        &[
            ("link_ac_type", "4"),
            ("link_ac_attr.link_scan", "1"),
            ("link_ac_attr.link_res_retain", "0"),
            ("link_ac_attr.data_fwd_req", "1"),
            ("link_ac_ext_time", "250"),
            ("link_ac_result", "3"),
            ("network_id", "cafe"),
            ("sig_strength", "-70"),
            ("dev_states_resp.dev_info", "phone"),
            ("dev_states_resp.batt_level", "80"),
        ],
    );
}

#[test]
fn an_independent_dissector_reads_bitmaps_whose_first_bit_is_the_most_significant() {
    expect(
        vec![
            Tlv::EventList(EventList::LINK_DETECTED | EventList::LINK_DOWN),
            Tlv::TransportOptionList(TransportList::TCP),
            Tlv::MobilityManagementSupport(MobilityManagement::MOBILE_IPV6),
            Tlv::DeviceStatesRequest(DeviceStatesRequest::BATTERY_LEVEL),
            Tlv::IpConfigurationMethods(ConfigurationMethods::IPV6_STATELESS),
        ],
        &[
            ("event_list", "0xa0000000"),
            ("event_list.link_detect", "1"),
            ("event_list.link_up", "0"),
            ("event_list.link_down", "1"),
            ("trans_list.udp", "0"),
            ("trans_list.tcp", "1"),
            ("mob_list.mip4", "0"),
            ("mob_list.mip6", "1"),
            ("dev_states_req.batt_level", "1"),
            ("ip_cfg_mthds.static", "0"),
            ("ip_cfg_mthds.ip6_state_less", "1"),
        ],
    );
}
