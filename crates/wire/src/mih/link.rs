//! Parameters, thresholds, states and actions of links.

use alloc::vec::Vec;

use super::codes::*;
use super::identity::{LinkAddress, LinkId, LinkTupleId};
use super::value::{OctetString, choice, sequence};

choice! {
    /// LINK_PARAM_TYPE: a parameter of a link, by link type.
    pub enum ParameterType "LINK_PARAM_TYPE" {
        /// Any link: LINK_PARAM_GEN.
        0 Generic(GenericParameter),
        /// LINK_PARAM_QOS.
        1 Qos(u8),
        /// GSM and GPRS: LINK_PARAM_GG.
        2 GsmGprs(u8),
        /// LINK_PARAM_EDGE.
        3 Edge(u8),
        /// LINK_PARAM_ETH.
        4 Ethernet(u8),
        /// LINK_PARAM_802_11.
        5 Ieee80211(Ieee80211Parameter),
        /// LINK_PARAM_C2K.
        6 Cdma2000(u8),
        /// LINK_PARAM_FDD.
        7 Fdd(u8),
        /// LINK_PARAM_HRPD.
        8 Hrpd(u8),
        /// LINK_PARAM_802_16.
        9 Ieee80216(u8),
        /// LINK_PARAM_802_20.
        10 Ieee80220(u8),
        /// LINK_PARAM_802_22.
        11 Ieee80222(u8),
    }

    /// QOS_PARAM_VAL: by class of service, in the units of [`QosList`](super::handover::QosList).
    pub enum QosValue "QOS_PARAM_VAL" {
        /// NUM_COS_TYPES.
        0 ClassesOfService(u8),
        /// LIST(MIN_PK_TX_DELAY).
        1 MinPacketTransferDelay(Vec<ClassValue>),
        /// LIST(AVG_PK_TX_DELAY).
        2 AvgPacketTransferDelay(Vec<ClassValue>),
        /// LIST(MAX_PK_TX_DELAY).
        3 MaxPacketTransferDelay(Vec<ClassValue>),
        /// LIST(PK_DELAY_JITTER).
        4 PacketDelayJitter(Vec<ClassValue>),
        /// LIST(PK_LOSS_RATE).
        5 PacketLossRate(Vec<ClassValue>),
    }

    /// The second member of LINK_PARAM.
    pub enum ParameterValue "LINK_PARAM's value" {
        /// LINK_PARAM_VAL.
        0 Number(u16),
        /// QOS_PARAM_VAL.
        1 Qos(QosValue),
    }

    /// DEV_STATES_RSP: a state of a device.
    pub enum DeviceState "DEV_STATES_RSP" {
        /// DEVICE_INFO.
        0 DeviceInfo(OctetString),
        /// BATT_LEVEL, in percent.
        1 BatteryLevel(u8),
    }

    /// LINK_STATES_RSP: a state of a link.
    pub enum LinkState "LINK_STATES_RSP" {
        /// OP_MODE.
        0 OperationMode(OperationMode),
        /// CHANNEL_ID.
        1 ChannelId(u16),
    }

    /// LINK_DESC_RSP: an ability of a link.
    pub enum LinkDescriptor "LINK_DESC_RSP" {
        /// NUM_COS.
        0 ClassesOfService(u8),
        /// NUM_QUEUE.
        1 Queues(u8),
    }

    /// SIG_STRENGTH.
    pub enum SignalStrength "SIG_STRENGTH" {
        /// In dBm.
        0 Dbm(i8),
        /// In percent of the maximum.
        1 Percent(u8),
    }

    /// EVT_CFG_INFO: the condition under which a subscriber is notified of an event.
    pub enum EventConfiguration "EVT_CFG_INFO" {
        /// LIST(LINK_DET_CFG): for detected links.
        0 LinkDetected(Vec<LinkDetectedConfiguration>),
        /// LIST(LINK_CFG_PARAM): for link parameters.
        1 Parameters(Vec<ParameterConfiguration>),
    }
}

sequence! {
    /// An element of QoS lists: a value for a class of service.
    pub struct ClassValue {
        /// COS_ID.
        class: u8,
        /// The value.
        value: u16,
    }

    /// LINK_PARAM: a parameter of a link.
    pub struct Parameter {
        /// The parameter's type.
        parameter: ParameterType,
        /// Its value.
        value: ParameterValue,
    }

    /// THRESHOLD.
    pub struct Threshold {
        /// THRESHOLD_VAL, in the parameter's unit.
        value: u16,
        /// THRESHOLD_XDIR.
        direction: ThresholdDirection,
    }

    /// LINK_PARAM_RPT: a parameter and the threshold that it crossed.
    pub struct ParameterReport {
        /// The parameter.
        parameter: Parameter,
        /// The threshold; `None` in a periodic report.
        #[serde(skip_serializing_if = "Option::is_none")]
        threshold: Option<Threshold>,
    }

    /// LINK_CFG_PARAM: the condition under which a parameter is reported.
    pub struct ParameterConfiguration {
        /// The parameter's type.
        parameter: ParameterType,
        /// TIMER_INTERVAL between reports.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval_ms: Option<u16>,
        /// TH_ACTION.
        action: ThresholdAction,
        /// The thresholds.
        thresholds: Vec<Threshold>,
    }

    /// LINK_CFG_STATUS: the result of configuring a threshold.
    pub struct ParameterConfigurationStatus {
        /// The parameter's type.
        parameter: ParameterType,
        /// The threshold.
        threshold: Threshold,
        /// CONFIG_STATUS: true if the threshold is set.
        configured: bool,
    }

    /// LINK_DET_CFG: the detected links to report.
    pub struct LinkDetectedConfiguration {
        /// NETWORK_ID.
        #[serde(skip_serializing_if = "Option::is_none")]
        network_id: Option<OctetString>,
        /// Minimum SIG_STRENGTH.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<SignalStrength>,
        /// Minimum LINK_DATA_RATE.
        #[serde(skip_serializing_if = "Option::is_none")]
        data_rate_kbps: Option<u32>,
    }

    /// LINK_DET_INFO: a link that was detected.
    pub struct LinkDetectedInfo {
        /// LINK_TUPLE_ID.
        link: LinkTupleId,
        /// NETWORK_ID.
        network_id: OctetString,
        /// NET_AUX_ID.
        network_aux_id: OctetString,
        /// SIG_STRENGTH.
        signal: SignalStrength,
        /// SINR, in dB.
        sinr: u16,
        /// LINK_DATA_RATE.
        data_rate_kbps: u32,
        /// LINK_MIHCAP_FLAG.
        mih_capability: MihCapability,
        /// NET_CAPS.
        network_capabilities: NetworkCapabilities,
    }

    /// LINK_STATUS_REQ: the requested status of links.
    pub struct LinkStatusRequest {
        /// LINK_STATES_REQ.
        states: LinkStatesRequest,
        /// LIST(LINK_PARAM_TYPE).
        parameters: Vec<ParameterType>,
        /// LINK_DESC_REQ.
        descriptors: LinkDescriptorsRequest,
    }

    /// An element of TLV 28: LINK_ID and LINK_STATUS_RSP.
    pub struct LinkStatus {
        /// The link.
        link: LinkId,
        /// LIST(LINK_STATES_RSP).
        states: Vec<LinkState>,
        /// LIST(LINK_PARAM).
        parameters: Vec<Parameter>,
        /// LIST(LINK_DESC_RSP).
        descriptors: Vec<LinkDescriptor>,
    }

    /// LINK_ACTION_REQ: a requested action of a link.
    pub struct LinkActionRequest {
        /// The link.
        link: LinkId,
        /// LINK_ADDR of the point of attachment to which data is forwarded.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<LinkAddress>,
        /// LINK_AC_TYPE.
        action: LinkActionType,
        /// LINK_AC_ATTR.
        attributes: LinkActionAttributes,
        /// LINK_AC_EX_TIME: time until the action.
        execution_time_ms: u16,
    }

    /// LINK_ACTION_RSP: the result of a link's action.
    pub struct LinkActionResponse {
        /// The link.
        link: LinkId,
        /// LINK_AC_RESULT.
        result: LinkActionResult,
        /// LIST(LINK_SCAN_RSP), if a scan was requested.
        #[serde(skip_serializing_if = "Option::is_none")]
        scan: Option<Vec<LinkScanResponse>>,
    }

    /// LINK_SCAN_RSP: a point of attachment that a scan found.
    pub struct LinkScanResponse {
        /// Its address.
        address: LinkAddress,
        /// NETWORK_ID.
        network_id: OctetString,
        /// SIG_STRENGTH.
        signal: SignalStrength,
    }
}
