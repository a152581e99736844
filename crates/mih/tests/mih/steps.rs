//! Steps 1 to 10 of paper 3's Fig. 6, the ones that use this protocol.

use segue_clock::Span;
use segue_mih::Transport;

use crate::stage::*;

#[test]
fn a_gateway_hears_of_a_host_in_the_order_of_the_papers_figure() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut stage = Stage::new(&[(FUNCTION, function()), (SAP, sap(&[1], transport))]);
        stage.run(Span::from_secs(1));
        stage.sent.clear();
        stage.start(GATEWAY, user("mag", Some(1), transport));
        stage.run(Span::from_secs(1));
        stage.happens(up(1, 7));
        stage.run(Span::from_secs(1));
        let all: Vec<String> = stage.sent.iter().map(crate::stage::Sent::line).collect();
        let steps: Vec<&str> =
            all.iter().map(String::as_str).filter(|line| !line.contains("ack of")).collect();
        let expected = [
            "MAG → MIHF: MIH_Register request",
            "MIHF → MAG: MIH_Register response",
            "MAG → MIHF: MIH_Capability_Discover request",
            "MIHF → MAG: MIH_Capability_Discover response",
            "MAG → MIHF: MIH_Event_Subscribe request",
            "MIHF → LS: MIH_Event_Subscribe request",
            "LS → MIHF: MIH_Event_Subscribe response",
            "MIHF → MAG: MIH_Event_Subscribe response",
            "LS → MIHF: MIH_Link_Up indication",
            "MIHF → MAG: MIH_Link_Up indication",
        ];
        assert_eq!(steps, expected, "{transport:?}");
        assert_eq!(stage.news(GATEWAY), [up(1, 7)]);
        // Over UDP each frame is acknowledged, separately or with its answer; over TCP none is.
        let acks = all.len() - steps.len();
        assert_eq!(acks > 0, transport == Transport::Udp, "{all:#?}");
        for sent in &stage.sent {
            let frame = sent.frame();
            let is_ack = frame.ack_rsp && frame.tlvs().len() == 2;
            assert_eq!(frame.ack_req, transport == Transport::Udp && !is_ack, "{}", sent.line());
        }
        // No frame was sent twice.
        let mut once: Vec<&[u8]> = stage.sent.iter().map(|sent| &sent.datagram.bytes[..]).collect();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), stage.sent.len());
    }
}
