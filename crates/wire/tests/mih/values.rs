//! Values byte by byte, as ODTONE's types encode them.

use segue_wire::mih::{Frame, Profile};
use serde_json::{Value, json};

/// LINK_ADDR of a MAC address, and a LINK_ID with it.
const MAC: &str = "00 0006 06 020000000051";
const LINK: &str = "13 00 0006 06 020000000051";

/// The value of a frame's only TLV. Also checks that the frame is emitted as the same bytes.
fn value(kind: u8, digits: &str) -> Value {
    let digits: Vec<u8> = digits.bytes().filter(|digit| *digit != b' ').collect();
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let data: Vec<u8> = digits.chunks(2).map(byte).collect();
    let length = data.len() as u8;
    let head = [0x10, 0, 0x2c, 2, 0, 1, 0, length + 2, kind, length];
    let bytes = [&head[..], &data].concat();
    let frame = Frame::parse(&bytes, &Profile::STRICT).unwrap();
    assert!(frame.reencodes(&bytes, &Profile::STRICT), "{frame:?}");
    let mut tlv = serde_json::to_value(frame.tlvs()).unwrap();
    tlv[0]["value"].take()
}

fn mac() -> Value {
    json!({ "mac": { "family": 6, "address": "020000000051" } })
}

fn link() -> Value {
    json!({ "link_type": 19, "address": mac() })
}

#[test]
fn links_and_networks() {
    assert_eq!(value(13, &format!("{LINK} 01 {MAC}")), json!({ "link": link(), "poa": mac() }));
    let network = json!({ "link_type": 19, "subtype": 2, "extension": "abc" });
    assert_eq!(value(62, "01 13 01 0000000000000002 01 03 616263"), network);
    let mbb = json!([{ "from": network, "to": {}, "supported": true }]);
    assert_eq!(value(10, "01 01 13 01 0000000000000002 01 03 616263 000000 01"), mbb);
    let poas = json!([{ "link": link(), "poas": [mac(), { "other": "poa" }] }]);
    assert_eq!(value(31, &format!("01 {LINK} 02 {MAC} 05 03 706f61")), poas);
    let cell = json!({ "cell3g": { "plmn_id": [1, 2, 3], "cell_id": 256 } });
    assert_eq!(value(60, "01 010203 00000100"), cell);
}

#[test]
fn parameters_and_thresholds() {
    let threshold = json!({ "value": 35, "direction": 1 });
    let rssi = json!({ "parameter": { "ieee80211": 0 }, "value": { "number": 40 } });
    let loss = json!({
        "parameter": { "generic": 3 },
        "value": { "qos": { "packet_loss_rate": [{ "class": 1, "value": 7 }] } },
    });
    assert_eq!(
        value(23, "02 05 00 00 0028 01 0023 01  00 03 01 05 01 01 0007 00"),
        json!([{ "parameter": rssi, "threshold": threshold }, { "parameter": loss }])
    );
    let asked = json!([{
        "parameter": { "generic": 1 },
        "interval_ms": 100,
        "action": 1,
        "thresholds": [threshold, { "value": 20, "direction": 0 }],
    }]);
    assert_eq!(value(29, "01 00 01 01 0064 01 02 0023 01 0014 00"), asked);
    let set =
        json!([{ "parameter": { "generic": 1 }, "threshold": threshold, "configured": true }]);
    assert_eq!(value(30, "01 00 01 0023 01 01"), set);
    let events = json!([
        { "link_detected": [{ "network_id": "cafe", "signal": { "dbm": -70 }, "data_rate_kbps": 256 }] },
        { "parameters": [{ "parameter": { "generic": 0 }, "action": 2, "thresholds": [] }] },
    ]);
    let digits = "02 00 01 01 04 63616665 01 00 ba 01 00000100  01 01 00 00 00 02 00";
    assert_eq!(value(54, digits), events);
}

#[test]
fn states_and_actions() {
    let asked = json!({
        "states": ["operation_mode"],
        "parameters": [{ "generic": 1 }, { "ieee80211": 0 }],
        "descriptors": ["classes_of_service", "queues"],
    });
    assert_eq!(value(27, "0001 02 0001 0500 0003"), asked);
    let told = json!([{
        "link": link(),
        "states": [{ "operation_mode": 0 }, { "channel_id": 6 }],
        "parameters": [{ "parameter": { "generic": 1 }, "value": { "number": 40 } }],
        "descriptors": [{ "classes_of_service": 4 }, { "queues": 2 }],
    }]);
    let digits = format!("01 {LINK} 02 00 00 01 0006  01 00 01 00 0028  02 00 04 01 02");
    assert_eq!(value(28, &digits), told);
    let device = json!([{ "device_info": "phone" }, { "battery_level": 80 }]);
    assert_eq!(value(26, "02 00 05 70686f6e65 01 50"), device);
    let asked = json!([{
        "link": link(),
        "address": mac(),
        "action": 1,
        "attributes": ["retain_resource", "forward_data"],
        "execution_time_ms": 250,
    }]);
    assert_eq!(value(38, &format!("01 {LINK} 01 {MAC} 01 06 00fa")), asked);
    let scan = json!([{ "address": mac(), "network_id": "cafe", "signal": { "percent": 80 } }]);
    assert_eq!(
        value(39, &format!("01 {LINK} 00 01 01 {MAC} 04 63616665 01 50")),
        json!([{ "link": link(), "result": 0, "scan": scan }])
    );
    let detected = json!([{
        "link": { "link": link() },
        "network_id": "cafe",
        "network_aux_id": "",
        "signal": { "dbm": -70 },
        "sinr": 20,
        "data_rate_kbps": 54_321,
        "mih_capability": ["event_service", "command_service", "information_service"],
        "network_capabilities": ["security", "internet_access"],
    }]);
    let digits = format!("01 {LINK} 00 04 63616665 00 00 ba 0014 0000d431 0e 00000081");
    assert_eq!(value(58, &digits), detected);
}

#[test]
fn resources_and_targets() {
    let list = |value: u16| json!([{ "class": 1, "value": value }]);
    let qos = json!({
        "classes_of_service": 2,
        "min_packet_transfer_delay": list(1),
        "avg_packet_transfer_delay": list(2),
        "max_packet_transfer_delay": list(3),
        "packet_delay_jitter": list(4),
        "packet_loss_rate": list(5),
    });
    let digits = "02 01010001 01010002 01010003 01010004 01010005";
    assert_eq!(value(33, digits), qos);
    let assigned = json!({ "qos": qos, "transport": { "carrier": "abc" } });
    assert_eq!(value(57, &format!("{digits} 02 03 616263")), assigned);
    let requested = json!({
        "qos": qos,
        "transport": { "predefined_configuration_id": -1 },
        "cause": 2,
    });
    assert_eq!(value(63, &format!("{digits} 01 ff 02")), requested);
    let result = json!([{
        "link": { "link": link(), "poas": [mac()] },
        "qos": qos,
        "configuration_methods": { "value": ["ipv6_stateful"] },
        "dhcp_server": { "supported": true },
        "foreign_agent": "nothing",
        "access_router": { "value": "192.0.2.7" },
    }]);
    let result_digits =
        format!("01 {LINK} 01 {MAC} {digits} 02 00001000 01 01 00 02 0001 04 c0000207");
    assert_eq!(value(32, &result_digits), result);
    let targets = json!([
        { "network": { "network_id": "cafe", "network_aux_id": "h" } },
        { "poa": mac() },
    ]);
    assert_eq!(value(56, &format!("02 00 04 63616665 01 01 68 01 {MAC}")), targets);
    let router = json!("2001:db8::7");
    assert_eq!(value(35, "0002 10 20010db8000000000000000000000007"), router);
}

#[test]
fn information_queries() {
    let rdf = json!([{ "mime_type": "a/b", "data": "data" }, { "data": "" }]);
    for kind in [44, 49, 51] {
        assert_eq!(value(kind, "02 01 03 612f62 04 64617461 00 00"), rdf);
    }
    assert_eq!(value(46, "02 01 61 00"), json!(["a", ""]));
    assert_eq!(value(43, "0100"), json!("0100"));
    assert_eq!(value(7, "0000000000000011"), json!(["binary_data", "0x10"]));
}
