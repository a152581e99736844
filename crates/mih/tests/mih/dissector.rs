//! Checks all kinds of our frames with tshark.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command as Program, Stdio};

use segue_clock::Span;
use segue_ip::Datagram;
use segue_mih::{Action, Command, MihfInput, Transport};
use segue_wire::mih::codes::{
    CommandList, DeviceStatesRequest, GenericParameter, LinkActionAttributes, LinkActionResult,
    LinkActionType, LinkDescriptorsRequest, LinkGoingDownReason, LinkStatesRequest,
    ThresholdAction, ThresholdDirection,
};
use segue_wire::mih::link::{LinkStatusRequest, ParameterConfiguration, ParameterType, Threshold};

use crate::stage::*;

const SIGNAL: ParameterType = ParameterType::Generic(GenericParameter::SIGNAL_STRENGTH);

/// An IPv6 packet with a UDP datagram and its checksum.
fn packet(datagram: &Datagram) -> Vec<u8> {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (datagram.from.0, datagram.to.0) else { panic!() };
    let length = (datagram.bytes.len() as u16 + 8).to_be_bytes();
    let ports = [datagram.from.1.to_be_bytes(), datagram.to.1.to_be_bytes()].concat();
    let mut udp = [&ports[..], &length, &[0, 0], &datagram.bytes].concat();
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 0], &length, &[0, 0, 0, 17]].concat();
    let mut words = [pseudo, udp.clone()].concat();
    words.resize(words.len().next_multiple_of(2), 0);
    let sum: u32 = words.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let head = [0x60, 0, 0, 0, length[0], length[1], 17, 64];
    [&head[..], &from.octets(), &to.octets(), &udp].concat()
}

/// Per packet: the message ID, and the problems that tshark found. `None` if tshark is not installed.
fn dissected(packets: &[Datagram]) -> Option<Vec<String>> {
    let head: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 101];
    let mut capture: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    for (n, datagram) in packets.iter().enumerate() {
        let packet = packet(datagram);
        let length = packet.len() as u32;
        capture.extend([n as u32, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        capture.extend(packet);
    }
    let mut tshark = Program::new("tshark");
    tshark.args(["-r", "-", "-T", "fields", "-E", "separator=;", "-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-e", "mih.mid", "-e", "_ws.malformed", "-e", "_ws.expert.message"]);
    tshark.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = tshark.spawn() else {
        println!("skipped: there is no tshark");
        return None;
    };
    child.stdin.take().unwrap().write_all(&capture).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn order(stage: &mut Stage, command: Command) {
    stage.give(GATEWAY, MihfInput::Command { number: 1, command });
    stage.run(Span::from_millis(200));
}

#[test]
fn tshark_finds_nothing_wrong_with_any_frame() {
    let mut access = sap(&[1], Transport::Udp);
    access.links[0].commands = access.links[0].commands | CommandList::LINK_ACTIONS;
    let user = user("mag", Some(1), Transport::Udp);
    let mut stage = Stage::new(&[(FUNCTION, function()), (SAP, access), (GATEWAY, user)]);
    stage.run(Span::from_secs(3));
    stage.happens(up(1, 1));
    let parameters = vec![ParameterConfiguration {
        parameter: SIGNAL,
        interval_ms: Some(300),
        action: ThresholdAction::NORMAL,
        thresholds: vec![Threshold { value: 0xffba, direction: ThresholdDirection::BELOW }],
    }];
    order(&mut stage, Command::ConfigureThresholds { link: link(1), parameters });
    for dbm in [-60_i16, -75] {
        let values = vec![(SIGNAL, dbm.cast_unsigned())];
        let (link, station) = (link(1), Some(station(1)));
        stage.give(SAP, MihfInput::Measured { link, station, values });
        stage.run(Span::from_millis(400));
    }
    let status = LinkStatusRequest {
        states: LinkStatesRequest::OPERATION_MODE,
        parameters: vec![SIGNAL],
        descriptors: LinkDescriptorsRequest(0),
    };
    let device = DeviceStatesRequest::DEVICE_INFO;
    order(&mut stage, Command::GetParameters { device, links: vec![link(1)], status });
    let action = Action {
        link: link(1),
        station: Some(station(1)),
        action: LinkActionType::DISCONNECT,
        attributes: LinkActionAttributes(0),
        after_ms: 0,
    };
    order(&mut stage, Command::Actions(vec![action]));
    let number = stage.wishes.iter().find_map(|(_, wish)| match wish {
        segue_mih::MihfWish::Act { number, .. } => Some(*number),
        _ => None,
    });
    let (number, result) = (number.unwrap(), LinkActionResult::SUCCESS);
    stage.give(SAP, MihfInput::Acted { number, result });
    let reason = LinkGoingDownReason::LINK_PARAMETER_DEGRADING;
    let what = segue_mih::What::GoingDown { within_ms: 300, reason };
    stage.happens(segue_mih::Event { link: link(1), station: Some(station(1)), what });
    stage.run(Span::from_millis(200));
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    stage.give(GATEWAY, MihfInput::Leave);
    stage.run(Span::from_secs(1));
    let sent: Vec<Datagram> = stage.sent.iter().map(|sent| sent.datagram.clone()).collect();
    let Some(said) = dissected(&sent) else { return };
    assert_eq!(said.len(), sent.len());
    let mut seen = BTreeSet::new();
    for (line, sent) in said.iter().zip(&stage.sent) {
        let (id, wrong) = line.split_once(';').unwrap();
        assert!(!id.is_empty(), "{}: {line}", sent.line());
        seen.insert(sent.line().split(": ").nth(1).unwrap().replace("ack of ", ""));
        // tshark decodes network types, configuration requests and status requests differently from ODTONE.
        let differs = [
            "Capability_Discover response",
            "Configure_Thresholds request",
            "Get_Parameters request",
        ];
        let differs = differs.iter().any(|name| sent.line().contains(name));
        assert!(wrong == ";" || differs, "{}: {line}", sent.line());
    }
    println!("{seen:#?}");
    assert_eq!(seen.len(), 20, "{seen:?}");
    // Verifies that the check can fail.
    let mut cut = sent[0].clone();
    cut.bytes.truncate(cut.bytes.len() - 4);
    assert!(dissected(&[cut]).unwrap()[0].contains("alformed"));
}
