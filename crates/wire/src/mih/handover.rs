//! Handover resources and targets, and information queries.

use alloc::vec::Vec;
use core::net::IpAddr;

use serde::Serialize;

use super::codes::{ConfigurationMethods, HandoverCause};
use super::identity::{LinkAddress, LinkPoas};
use super::link::ClassValue;
use super::profile::BitOrder;
use super::value::{OctetString, Value, choice, sequence};
use crate::WireError;
use crate::layout::{Reader, Wire};

/// A CHOICE of NULL, BOOLEAN and a value: knowledge about a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// NULL: unknown.
    Nothing,
    /// BOOLEAN: whether the requested service exists.
    Supported(bool),
    /// The value.
    Value(T),
}

impl<T: Value> Value for Known<T> {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        match u8::read(reader)? {
            0 => Ok(Known::Nothing),
            1 => bool::decode(reader, order).map(Known::Supported),
            2 => T::decode(reader, order).map(Known::Value),
            got => Err(WireError::Field { field: "choice of RQ_RESULT's member", got: got.into() }),
        }
    }

    fn encode(&self, order: BitOrder, out: &mut Vec<u8>) {
        match self {
            Known::Nothing => out.push(0),
            Known::Supported(supported) => out.extend([1, (*supported).into()]),
            Known::Value(value) => {
                out.push(2);
                value.encode(order, out);
            }
        }
    }
}

/// TSP_CONTAINER: parameters in transit between the target network and the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportContainer {
    /// NULL.
    Nothing,
    /// PREDEF_CFG_ID.
    PredefinedConfigurationId(i8),
    /// TSP_CARRIER.
    Carrier(OctetString),
}

impl Value for TransportContainer {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        match u8::read(reader)? {
            0 => Ok(TransportContainer::Nothing),
            1 => i8::decode(reader, order).map(TransportContainer::PredefinedConfigurationId),
            2 => OctetString::decode(reader, order).map(TransportContainer::Carrier),
            got => Err(WireError::Field { field: "choice of TSP_CONTAINER", got: got.into() }),
        }
    }

    fn encode(&self, order: BitOrder, out: &mut Vec<u8>) {
        match self {
            TransportContainer::Nothing => out.push(0),
            TransportContainer::PredefinedConfigurationId(id) => {
                out.extend([1, id.cast_unsigned()]);
            }
            TransportContainer::Carrier(carrier) => {
                out.push(2);
                carrier.encode(order, out);
            }
        }
    }
}

choice! {
    /// TGT_NET_INFO: the target of a handover.
    pub enum TargetNetwork "TGT_NET_INFO" {
        /// A network by name.
        0 Network(NetworkName),
        /// A point of attachment.
        1 Poa(LinkAddress),
    }
}

sequence! {
    /// NETWORK_ID and NET_AUX_ID.
    pub struct NetworkName {
        /// NETWORK_ID, as an SSID.
        network_id: OctetString,
        /// NET_AUX_ID, as an HESSID.
        #[serde(skip_serializing_if = "Option::is_none")]
        network_aux_id: Option<OctetString>,
    }

    /// QOS_LIST: QoS values by class of service.
    pub struct QosList {
        /// NUM_COS_TYPES.
        classes_of_service: u8,
        /// LIST(MIN_PK_TX_DELAY), in ms.
        min_packet_transfer_delay: Vec<ClassValue>,
        /// LIST(AVG_PK_TX_DELAY), in ms.
        avg_packet_transfer_delay: Vec<ClassValue>,
        /// LIST(MAX_PK_TX_DELAY), in ms.
        max_packet_transfer_delay: Vec<ClassValue>,
        /// LIST(PK_DELAY_JITTER), in ms.
        packet_delay_jitter: Vec<ClassValue>,
        /// LIST(PK_LOSS_RATE).
        packet_loss_rate: Vec<ClassValue>,
    }

    /// RQ_RESULT: the resources of a target network.
    pub struct ResourceResult {
        /// The link and its points of attachment, the preferred one first.
        link: LinkPoas,
        /// QOS_LIST.
        qos: QosList,
        /// IP_CFG_MTHDS.
        configuration_methods: Known<ConfigurationMethods>,
        /// DHCP_SERV.
        dhcp_server: Known<IpAddr>,
        /// FN_AGENT: the foreign agent.
        foreign_agent: Known<IpAddr>,
        /// ACC_RTR: the access router.
        access_router: Known<IpAddr>,
    }

    /// ASGN_RES_SET.
    pub struct AssignedResources {
        /// QOS_LIST.
        qos: QosList,
        /// TSP_CONTAINER.
        transport: TransportContainer,
    }

    /// REQ_RES_SET.
    pub struct RequestedResources {
        /// QOS_LIST.
        qos: QosList,
        /// TSP_CONTAINER.
        transport: TransportContainer,
        /// HO_CAUSE.
        cause: HandoverCause,
    }

    /// IQ_RDF_DATA, IR_RDF_DATA and IR_RDF_SCHM.
    pub struct RdfData {
        /// MIME_TYPE.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<OctetString>,
        /// The query, the answer or the schema.
        data: OctetString,
    }
}
