//! Enumerations and BITMAPs with the standard's names (IEEE 802.21-2008, annex F; numbers from ODTONE,
//! `inc/odtone/mih/types`, and from tshark's dissector). Bit 0 of a BITMAP is the least significant bit here,
//! regardless of the [`BitOrder`](super::BitOrder) on the wire.

use serde::Serialize;

use super::value::{bitmaps, plain};
use crate::layout::{codes, flags, number};

codes! {
    /// STATUS of a response.
    pub struct Status(u8) {
        SUCCESS = 0 "Success",
        UNSPECIFIED_FAILURE = 1 "Unspecified Failure",
        REJECTED = 2 "Rejected",
        AUTHORIZATION_FAILURE = 3 "Authorization Failure",
        NETWORK_ERROR = 4 "Network Error",
    }

    /// LINK_TYPE.
    pub struct LinkType(u8) {
        GSM = 1 "Wireless - GSM",
        GPRS = 2 "Wireless - GPRS",
        EDGE = 3 "Wireless - EDGE",
        ETHERNET = 15 "Ethernet",
        WIRELESS_OTHER = 18 "Wireless - Other",
        IEEE_802_11 = 19 "Wireless - IEEE 802.11",
        CDMA2000 = 22 "Wireless - CDMA2000",
        UMTS = 23 "Wireless - UMTS",
        CDMA2000_HRPD = 24 "Wireless - cdma2000-HRPD",
        IEEE_802_16 = 27 "Wireless - IEEE 802.16",
        IEEE_802_20 = 28 "Wireless - IEEE 802.20",
        IEEE_802_22 = 29 "Wireless - IEEE 802.22",
    }

    /// REG_REQUEST_CODE.
    pub struct RegisterRequestCode(u8) {
        REGISTRATION = 0 "Registration",
        RE_REGISTRATION = 1 "Re-Registration",
    }

    /// LINK_DN_REASON.
    pub struct LinkDownReason(u8) {
        EXPLICIT_DISCONNECT = 0 "Explicit disconnect",
        PACKET_TIMEOUT = 1 "Packet timeout",
        NO_RESOURCE = 2 "No resource",
        NO_BROADCAST = 3 "No broadcast",
        AUTHENTICATION_FAILURE = 4 "Authentication failure",
        BILLING_FAILURE = 5 "Billing failure",
    }

    /// LINK_GD_REASON.
    pub struct LinkGoingDownReason(u8) {
        EXPLICIT_DISCONNECT = 0 "Explicit disconnect",
        LINK_PARAMETER_DEGRADING = 1 "Link parameter degrading",
        LOW_POWER = 2 "Low power",
        NO_RESOURCE = 3 "No resource",
    }

    /// LINK_PARAM_GEN: a parameter of any link.
    pub struct GenericParameter(u8) {
        DATA_RATE = 0 "Data Rate, in kb/s",
        SIGNAL_STRENGTH = 1 "Signal Strength",
        SINR = 2 "Signal over interference plus noise ratio",
        THROUGHPUT = 3 "Throughput",
        PACKET_ERROR_RATE = 4 "Packet Error Rate",
    }

    /// LINK_PARAM_802_11: a parameter of IEEE 802.11.
    pub struct Ieee80211Parameter(u8) {
        RSSI = 0 "RSSI of the beacon channel",
        NO_QOS_RESOURCE = 1 "No QoS resource available",
        MULTICAST_PACKET_LOSS_RATE = 2 "Multicast packet loss rate",
    }

    /// The second member of THRESHOLD: the direction in which the threshold is crossed.
    pub struct ThresholdDirection(u8) {
        ABOVE = 0 "Above threshold",
        BELOW = 1 "Below threshold",
    }

    /// TH_ACTION.
    pub struct ThresholdAction(u8) {
        NORMAL = 0 "Set normal threshold",
        ONE_SHOT = 1 "Set one-shot threshold",
        CANCEL = 2 "Cancel threshold",
    }

    /// OP_MODE of a link.
    pub struct OperationMode(u8) {
        NORMAL = 0 "Normal mode",
        POWER_SAVING = 1 "Power saving mode",
        POWERED_DOWN = 2 "Powered down",
    }

    /// LINK_AC_TYPE: the requested action of a link.
    pub struct LinkActionType(u8) {
        NONE = 0 "None",
        DISCONNECT = 1 "Disconnect",
        LOW_POWER = 2 "Low power",
        POWER_DOWN = 3 "Power down",
        POWER_UP = 4 "Power up",
    }

    /// LINK_AC_RESULT.
    pub struct LinkActionResult(u8) {
        SUCCESS = 0 "Success",
        FAILURE = 1 "Failure",
        REFUSED = 2 "Refused",
        INCAPABLE = 3 "Incapable",
    }

    /// HO_STATUS.
    pub struct HandoverStatus(u8) {
        PERMITTED = 0 "Handover permitted",
        DECLINED = 1 "Handover declined",
    }

    /// HO_RESULT. ODTONE sends [`Self::REJECTED_BY_ODTONE`].
    pub struct HandoverResult(u8) {
        SUCCESS = 0 "Success",
        FAILURE = 1 "Failure",
        REJECTED = 2 "Rejected",
        REJECTED_BY_ODTONE = 3 "Rejected (ODTONE)",
    }

    /// HO_CAUSE.
    pub struct HandoverCause(u8) {
        EXPLICIT_DISCONNECT = 0 "Explicit disconnect",
        PACKET_TIMEOUT = 1 "Packet timeout",
        NO_RESOURCE = 2 "No resource",
        NO_BROADCAST = 3 "No broadcast",
        AUTHENTICATION_FAILURE = 4 "Authentication failure",
        BILLING_FAILURE = 5 "Billing failure",
    }
}

plain!(
    Status LinkType RegisterRequestCode LinkDownReason LinkGoingDownReason GenericParameter Ieee80211Parameter
    ThresholdDirection ThresholdAction OperationMode LinkActionType LinkActionResult HandoverStatus HandoverResult
    HandoverCause
);

flags! {
    /// MIH_EVT_LIST: events of a link.
    pub struct EventList(u32) {
        /// MIH_Link_Detected.
        LINK_DETECTED = 0x01 "link_detected",
        /// MIH_Link_Up.
        LINK_UP = 0x02 "link_up",
        /// MIH_Link_Down.
        LINK_DOWN = 0x04 "link_down",
        /// MIH_Link_Parameters_Report.
        LINK_PARAMETERS_REPORT = 0x08 "link_parameters_report",
        /// MIH_Link_Going_Down.
        LINK_GOING_DOWN = 0x10 "link_going_down",
        /// MIH_Link_Handover_Imminent.
        LINK_HANDOVER_IMMINENT = 0x20 "link_handover_imminent",
        /// MIH_Link_Handover_Complete.
        LINK_HANDOVER_COMPLETE = 0x40 "link_handover_complete",
        /// MIH_Link_PDU_Transmit_Status.
        LINK_PDU_TRANSMIT_STATUS = 0x80 "link_pdu_transmit_status",
    }

    /// MIH_CMD_LIST: commands of a function. (LINK_CMD_LIST, the commands of a link, has other bits.)
    pub struct CommandList(u32) {
        /// MIH_Link_Get_Parameters.
        LINK_GET_PARAMETERS = 0x01 "link_get_parameters",
        /// MIH_Link_Configure_Thresholds.
        LINK_CONFIGURE_THRESHOLDS = 0x02 "link_configure_thresholds",
        /// MIH_Link_Actions.
        LINK_ACTIONS = 0x04 "link_actions",
        /// The commands of network-initiated handovers, MIH_Net_HO and MIH_N2N_HO.
        NET_HO = 0x08 "net_ho",
        /// The commands of host-initiated handovers, MIH_MN_HO.
        MN_HO = 0x10 "mn_ho",
    }

    /// MIH_IQ_TYPE_LIST: types of queries, and (from bit 4) information elements that can be queried.
    pub struct QueryTypeList(u64) {
        /// Binary data.
        BINARY_DATA = 0x01 "binary_data",
        /// RDF data.
        RDF_DATA = 0x02 "rdf_data",
        /// The URL of the RDF schema.
        RDF_SCHEMA_URL = 0x04 "rdf_schema_url",
        /// The RDF schema.
        RDF_SCHEMA = 0x08 "rdf_schema",
    }

    /// MIH_TRANS_LST: transports of frames.
    pub struct TransportList(u16) {
        /// UDP.
        UDP = 0x01 "udp",
        /// TCP.
        TCP = 0x02 "tcp",
    }

    /// IP_MOB_MGMT: mobility protocols.
    pub struct MobilityManagement(u16) {
        /// Mobile IPv4 (RFC 3344).
        MOBILE_IPV4 = 0x01 "mobile_ipv4",
        /// Mobile IPv4 Regional Registration (RFC 4857).
        REGIONAL_REGISTRATION = 0x02 "regional_registration",
        /// Mobile IPv6 (RFC 3775).
        MOBILE_IPV6 = 0x04 "mobile_ipv6",
        /// Hierarchical Mobile IPv6 (RFC 4140).
        HIERARCHICAL_MOBILE_IPV6 = 0x08 "hierarchical_mobile_ipv6",
        /// Low Latency Handoffs (RFC 4881).
        LOW_LATENCY_HANDOFFS = 0x10 "low_latency_handoffs",
        /// Mobile IPv6 Fast Handovers (RFC 5268).
        FAST_HANDOVERS = 0x20 "fast_handovers",
        /// IKEv2 Mobility and Multihoming, MOBIKE (RFC 4555).
        MOBIKE = 0x40 "mobike",
    }

    /// IP_CFG_MTHDS: how hosts obtain addresses.
    pub struct ConfigurationMethods(u32) {
        /// IPv4 static configuration.
        IPV4_STATIC = 0x01 "ipv4_static",
        /// IPv4 dynamic configuration (DHCPv4).
        IPV4_DYNAMIC = 0x02 "ipv4_dynamic",
        /// Mobile IPv4 with a foreign agent's care-of address.
        MOBILE_IPV4_FA = 0x04 "mobile_ipv4_fa",
        /// Mobile IPv4 without a foreign agent.
        MOBILE_IPV4 = 0x08 "mobile_ipv4",
        /// IPv6 stateless address configuration.
        IPV6_STATELESS = 0x0800 "ipv6_stateless",
        /// IPv6 stateful address configuration (DHCPv6).
        IPV6_STATEFUL = 0x1000 "ipv6_stateful",
        /// IPv6 manual configuration.
        IPV6_MANUAL = 0x2000 "ipv6_manual",
    }

    /// DEV_STATES_REQ: requested states of a device.
    pub struct DeviceStatesRequest(u16) {
        /// DEVICE_INFO.
        DEVICE_INFO = 0x01 "device_info",
        /// BATT_LEVEL.
        BATTERY_LEVEL = 0x02 "battery_level",
    }

    /// LINK_STATES_REQ: requested states of a link.
    pub struct LinkStatesRequest(u16) {
        /// OP_MODE.
        OPERATION_MODE = 0x01 "operation_mode",
        /// CHANNEL_ID.
        CHANNEL_ID = 0x02 "channel_id",
    }

    /// LINK_DESC_REQ: requested abilities of a link.
    pub struct LinkDescriptorsRequest(u16) {
        /// Classes of service.
        CLASSES_OF_SERVICE = 0x01 "classes_of_service",
        /// Queues.
        QUEUES = 0x02 "queues",
    }

    /// LINK_AC_ATTR: attributes of a link's action.
    pub struct LinkActionAttributes(u8) {
        /// LINK_SCAN.
        SCAN = 0x01 "scan",
        /// LINK_RES_RETAIN.
        RETAIN_RESOURCE = 0x02 "retain_resource",
        /// DATA_FWD_REQ.
        FORWARD_DATA = 0x04 "forward_data",
    }

    /// LINK_MIHCAP_FLAG: services available over a link. In ODTONE they start at bit 1.
    pub struct MihCapability(u8) {
        /// Event Service.
        EVENT_SERVICE = 0x02 "event_service",
        /// Command Service.
        COMMAND_SERVICE = 0x04 "command_service",
        /// Information Service.
        INFORMATION_SERVICE = 0x08 "information_service",
    }

    /// NET_CAPS.
    pub struct NetworkCapabilities(u32) {
        /// Security.
        SECURITY = 0x01 "security",
        /// QoS Class 0.
        QOS_0 = 0x02 "qos_0",
        /// QoS Class 1.
        QOS_1 = 0x04 "qos_1",
        /// QoS Class 2.
        QOS_2 = 0x08 "qos_2",
        /// QoS Class 3.
        QOS_3 = 0x10 "qos_3",
        /// QoS Class 4.
        QOS_4 = 0x20 "qos_4",
        /// QoS Class 5.
        QOS_5 = 0x40 "qos_5",
        /// Internet Access.
        INTERNET_ACCESS = 0x80 "internet_access",
        /// Emergency Services.
        EMERGENCY_SERVICES = 0x0100 "emergency_services",
        /// MIH Capability.
        MIH_CAPABILITY = 0x0200 "mih_capability",
    }
}

/// LINK_SUBTYPE: generations of a link type, which defines the meaning of the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkSubtype(pub u64);

number!(LinkSubtype);

bitmaps!(
    EventList CommandList QueryTypeList TransportList MobilityManagement ConfigurationMethods DeviceStatesRequest
    LinkStatesRequest LinkDescriptorsRequest LinkActionAttributes MihCapability NetworkCapabilities LinkSubtype
);
