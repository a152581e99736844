//! Types, flags and status codes with the names of the RFCs.

use crate::layout::{codes, flags};

codes! {
    /// MH Type.
    pub struct MessageType(u8) {
        BINDING_REFRESH_REQUEST = 0 "Binding Refresh Request",
        HOME_TEST_INIT = 1 "Home Test Init",
        CARE_OF_TEST_INIT = 2 "Care-of Test Init",
        HOME_TEST = 3 "Home Test",
        CARE_OF_TEST = 4 "Care-of Test",
        BINDING_UPDATE = 5 "Binding Update",
        BINDING_ACKNOWLEDGEMENT = 6 "Binding Acknowledgement",
        BINDING_ERROR = 7 "Binding Error",
        FAST_BINDING_UPDATE = 8 "Fast Binding Update",
        FAST_BINDING_ACKNOWLEDGMENT = 9 "Fast Binding Acknowledgment",
        FAST_NEIGHBOR_ADVERTISEMENT = 10 "Fast Neighbor Advertisement",
        EXPERIMENTAL = 11 "Experimental Mobility Header",
        HOME_AGENT_SWITCH = 12 "Home Agent Switch",
        HEARTBEAT = 13 "Heartbeat",
        HANDOVER_INITIATE = 14 "Handover Initiate",
        HANDOVER_ACKNOWLEDGE = 15 "Handover Acknowledge",
        BINDING_REVOCATION = 16 "Binding Revocation",
        LOCALIZED_ROUTING_INITIATION = 17 "Localized Routing Initiation",
        LOCALIZED_ROUTING_ACKNOWLEDGMENT = 18 "Localized Routing Acknowledgment",
        UPDATE_NOTIFICATION = 19 "Update Notification",
        UPDATE_NOTIFICATION_ACKNOWLEDGEMENT = 20 "Update Notification Acknowledgement",
        FLOW_BINDING = 21 "Flow Binding",
        SUBSCRIPTION_QUERY = 22 "Subscription Query",
        SUBSCRIPTION_RESPONSE = 23 "Subscription Response",
    }
}

flags! {
    /// Flags of a Binding Update, including those of proxies and mobile networks.
    pub struct BindingUpdateFlags(u16) {
        /// Acknowledge: an acknowledgement is requested.
        ACKNOWLEDGE = 0x8000 "A",
        /// Home Registration.
        HOME_REGISTRATION = 0x4000 "H",
        /// Link-Local Address Compatibility.
        LINK_LOCAL = 0x2000 "L",
        /// Key Management Mobility Capability.
        KEY_MANAGEMENT = 0x1000 "K",
        /// MAP Registration (RFC 4140, RFC 5380).
        MAP_REGISTRATION = 0x0800 "M",
        /// Mobile Router (RFC 3963).
        MOBILE_ROUTER = 0x0400 "R",
        /// Proxy Registration (RFC 5213).
        PROXY = 0x0200 "P",
        /// Force UDP encapsulation (RFC 5555).
        FORCE_UDP = 0x0100 "F",
        /// TLV-header format (RFC 5845).
        TLV_HEADER = 0x0080 "T",
        /// Bulk Binding Update (RFC 6602), in an update of a proxy. Shares its bit with [`Self::OVERWRITE`].
        BULK = 0x0040 "B" [0x0200 = 0x0200],
        /// Overwrite (RFC 5648), in an update of a host. Shares its bit with [`Self::BULK`].
        OVERWRITE = 0x0040 "O" [0x0200 = 0],
        /// Multicast signalling (RFC 7161).
        MULTICAST = 0x0020 "S",
    }

    /// Flags of a Binding Acknowledgement.
    pub struct BindingAcknowledgementFlags(u8) {
        /// Key Management Mobility Capability.
        KEY_MANAGEMENT = 0x80 "K",
        /// Mobile Router (RFC 3963).
        MOBILE_ROUTER = 0x40 "R",
        /// Proxy Registration (RFC 5213).
        PROXY = 0x20 "P",
        /// TLV-header format (RFC 5845).
        TLV_HEADER = 0x10 "T",
        /// Bulk Binding Update (RFC 6602).
        BULK = 0x08 "B",
    }

    /// Flags of a Heartbeat (RFC 5847).
    pub struct HeartbeatFlags(u16) {
        /// Unsolicited: a response without a request.
        UNSOLICITED = 0x0002 "U",
        /// Response.
        RESPONSE = 0x0001 "R",
    }

    /// Flags of a Handover Initiate (RFC 5568; P and F RFC 5949).
    pub struct HandoverInitiateFlags(u8) {
        /// Assigned address configuration: a new care-of address is requested.
        ASSIGN = 0x80 "S",
        /// Buffer.
        BUFFER = 0x40 "U",
        /// Proxy.
        PROXY = 0x20 "P",
        /// Forwarding is requested.
        FORWARDING = 0x10 "F",
    }

    /// Flags of a Handover Acknowledge (RFC 5949).
    pub struct HandoverAcknowledgeFlags(u8) {
        /// Buffer.
        BUFFER = 0x80 "U",
        /// Proxy.
        PROXY = 0x40 "P",
        /// Forwarding is established.
        FORWARDING = 0x20 "F",
    }

    /// Flags of both messages of Binding Revocation (RFC 5846).
    pub struct RevocationFlags(u16) {
        /// Proxy Binding.
        PROXY = 0x8000 "P",
        /// IPv4 HoA Binding Only.
        IPV4_ONLY = 0x4000 "V",
        /// Global.
        GLOBAL = 0x2000 "G",
    }

    /// Flags of an Update Notification (RFC 7077).
    pub struct UpdateNotificationFlags(u16) {
        /// An acknowledgement is requested.
        ACKNOWLEDGE = 0x8000 "A",
        /// Retransmission.
        RETRANSMISSION = 0x4000 "D",
    }

    /// Flags of a Localized Routing Acknowledgment (RFC 6705).
    pub struct LocalizedRoutingFlags(u8) {
        /// Unsolicited.
        UNSOLICITED = 0x80 "U",
    }
}

codes! {
    /// Status of a Binding Acknowledgement; below 128 the update was accepted.
    pub struct Status(u8) {
        ACCEPTED = 0 "Binding Update accepted",
        ACCEPTED_PREFIX_DISCOVERY = 1 "Accepted but prefix discovery necessary",
        GRE_KEY_OPTION_NOT_REQUIRED = 2 "GRE_KEY_OPTION_NOT_REQUIRED",
        GRE_TUNNELING_BUT_TLV_HEADER_NOT_SUPPORTED = 3 "GRE_TUNNELING_BUT_TLV_HEADER_NOT_SUPPORTED",
        MCOA_NOTCOMPLETE = 4 "MCOA NOTCOMPLETE",
        MCOA_RETURNHOME_WO_NDP = 5 "MCOA RETURNHOME WO/NDP",
        PBU_ACCEPTED_TB_IGNORED_SETTINGSMISMATCH = 6 "PBU_ACCEPTED_TB_IGNORED_SETTINGSMISMATCH",
        REASON_UNSPECIFIED = 128 "Reason unspecified",
        ADMINISTRATIVELY_PROHIBITED = 129 "Administratively prohibited",
        INSUFFICIENT_RESOURCES = 130 "Insufficient resources",
        HOME_REGISTRATION_NOT_SUPPORTED = 131 "Home registration not supported",
        NOT_HOME_SUBNET = 132 "Not home subnet",
        NOT_HOME_AGENT = 133 "Not home agent for this mobile node",
        DUPLICATE_ADDRESS = 134 "Duplicate Address Detection failed",
        SEQUENCE_OUT_OF_WINDOW = 135 "Sequence number out of window",
        EXPIRED_HOME_NONCE_INDEX = 136 "Expired home nonce index",
        EXPIRED_CARE_OF_NONCE_INDEX = 137 "Expired care-of nonce index",
        EXPIRED_NONCES = 138 "Expired nonces",
        REGISTRATION_TYPE_CHANGE = 139 "Registration type change disallowed",
        MOBILE_ROUTER_OPERATION_NOT_PERMITTED = 140 "Mobile Router Operation not permitted",
        INVALID_PREFIX = 141 "Invalid Prefix",
        NOT_AUTHORIZED_FOR_PREFIX = 142 "Not Authorized for Prefix",
        FORWARDING_SETUP_FAILED = 143 "Forwarding Setup failed",
        MIPV6_ID_MISMATCH = 144 "MIPV6-ID-MISMATCH",
        MIPV6_MESG_ID_REQD = 145 "MIPV6-MESG-ID-REQD",
        MIPV6_AUTH_FAIL = 146 "MIPV6-AUTH-FAIL",
        PERMANENT_HOME_KEYGEN_TOKEN_UNAVAILABLE = 147 "Permanent home keygen token unavailable",
        CGA_AND_SIGNATURE_FAILED = 148 "CGA and signature verification failed",
        PERMANENT_HOME_KEYGEN_TOKEN_EXISTS = 149 "Permanent home keygen token exists",
        NON_NULL_HOME_NONCE_INDEX_EXPECTED = 150 "Non-null home nonce index expected",
        SERVICE_AUTHORIZATION_FAILED = 151 "SERVICE_AUTHORIZATION_FAILED",
        PROXY_REG_NOT_ENABLED = 152 "PROXY_REG_NOT_ENABLED",
        NOT_LMA_FOR_THIS_MOBILE_NODE = 153 "NOT_LMA_FOR_THIS_MOBILE_NODE",
        MAG_NOT_AUTHORIZED_FOR_PROXY_REG = 154 "MAG_NOT_AUTHORIZED_FOR_PROXY_REG",
        NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX = 155 "NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX",
        TIMESTAMP_MISMATCH = 156 "TIMESTAMP_MISMATCH",
        TIMESTAMP_LOWER_THAN_PREV_ACCEPTED = 157 "TIMESTAMP_LOWER_THAN_PREV_ACCEPTED",
        MISSING_HOME_NETWORK_PREFIX_OPTION = 158 "MISSING_HOME_NETWORK_PREFIX_OPTION",
        BCE_PBU_PREFIX_SET_DO_NOT_MATCH = 159 "BCE_PBU_PREFIX_SET_DO_NOT_MATCH",
        MISSING_MN_IDENTIFIER_OPTION = 160 "MISSING_MN_IDENTIFIER_OPTION",
        MISSING_HANDOFF_INDICATOR_OPTION = 161 "MISSING_HANDOFF_INDICATOR_OPTION",
        MISSING_ACCESS_TECH_TYPE_OPTION = 162 "MISSING_ACCESS_TECH_TYPE_OPTION",
        GRE_KEY_OPTION_REQUIRED = 163 "GRE_KEY_OPTION_REQUIRED",
        MCOA_MALFORMED = 164 "MCOA MALFORMED",
        MCOA_NON_MCOA_BINDING_EXISTS = 165 "MCOA NON-MCOA BINDING EXISTS",
        MCOA_PROHIBITED = 166 "MCOA PROHIBITED",
        MCOA_UNKNOWN_COA = 167 "MCOA UNKNOWN COA",
        MCOA_BULK_REGISTRATION_PROHIBITED = 168 "MCOA BULK REGISTRATION PROHIBITED",
        MCOA_SIMULTANEOUS_HOME_AND_FOREIGN_PROHIBITED = 169 "MCOA SIMULTANEOUS HOME AND FOREIGN PROHIBITED",
        NOT_AUTHORIZED_FOR_IPV4_MOBILITY_SERVICE = 170 "NOT_AUTHORIZED_FOR_IPV4_MOBILITY_SERVICE",
        NOT_AUTHORIZED_FOR_IPV4_HOME_ADDRESS = 171 "NOT_AUTHORIZED_FOR_IPV4_HOME_ADDRESS",
        NOT_AUTHORIZED_FOR_IPV6_MOBILITY_SERVICE = 172 "NOT_AUTHORIZED_FOR_IPV6_MOBILITY_SERVICE",
        MULTIPLE_IPV4_HOME_ADDRESS_ASSIGNMENT_NOT_SUPPORTED = 173 "MULTIPLE_IPV4_HOME_ADDRESS_ASSIGNMENT_NOT_SUPPORTED",
        INVALID_CARE_OF_ADDRESS = 174 "Invalid Care-of Address",
        INVALID_MOBILE_NODE_GROUP_IDENTIFIER = 175 "INVALID_MOBILE_NODE_GROUP_IDENTIFIER",
        REINIT_SA_WITH_HAC = 176 "REINIT_SA_WITH_HAC",
        NOT_AUTHORIZED_FOR_DELEGATED_MNP = 177 "NOT_AUTHORIZED_FOR_DELEGATED_MNP",
        REQUESTED_DMNP_IN_USE = 178 "REQUESTED_DMNP_IN_USE",
        CANNOT_SUPPORT_MULTIPATH_BINDING = 180 "CANNOT_SUPPORT_MULTIPATH_BINDING",
    }

    /// Status of a Binding Error.
    pub struct BindingErrorStatus(u8) {
        UNKNOWN_BINDING = 1 "Unknown binding for Home Address destination option",
        UNRECOGNIZED_MH_TYPE = 2 "Unrecognized MH Type value",
    }

    /// Status of a Fast Binding Acknowledgment (RFC 5568, 6.2.3).
    pub struct FastStatus(u8) {
        ACCEPTED = 0 "Fast Binding Update accepted",
        ACCEPTED_USE_SUPPLIED_NCOA = 1 "Accepted, use the supplied NCoA",
        REASON_UNSPECIFIED = 128 "Reason unspecified",
        ADMINISTRATIVELY_PROHIBITED = 129 "Administratively prohibited",
        INSUFFICIENT_RESOURCES = 130 "Insufficient resources",
        INCORRECT_INTERFACE_IDENTIFIER_LENGTH = 131 "Incorrect interface identifier length",
    }

    /// Code of a Handover Initiate.
    pub struct HandoverInitiateCode(u8) {
        FBU_FROM_PCOA = 0 "FBU with the PCoA as source address",
        FBU_FROM_OTHER = 1 "FBU whose source address is not the PCoA",
        FORWARDING_COMPLETE = 2 "Indicate the completion of forwarding",
        ALL_CONTEXT = 3 "All available context transferred",
    }

    /// Code of a Handover Acknowledge.
    pub struct HandoverAcknowledgeCode(u8) {
        ACCEPTED = 0 "Handover accepted, NCoA valid",
        ACCEPTED_NCOA_NOT_VALID = 1 "Handover accepted, NCoA not valid or in use",
        ACCEPTED_NCOA_ASSIGNED = 2 "Handover accepted, NCoA assigned",
        ACCEPTED_USE_PCOA = 3 "Handover accepted, use PCoA",
        UNSOLICITED = 4 "Message sent unsolicited",
        CONTEXT_ACCEPTED = 5 "Context transfer accepted or successful",
        ALL_CONTEXT = 6 "All available context transferred",
        REASON_UNSPECIFIED = 128 "Handover not accepted, reason unspecified",
        ADMINISTRATIVELY_PROHIBITED = 129 "Administratively prohibited",
        INSUFFICIENT_RESOURCES = 130 "Insufficient resources",
        CONTEXT_NOT_AVAILABLE = 131 "Requested context not available",
        FORWARDING_NOT_AVAILABLE = 132 "Forwarding not available",
    }

    /// Trigger of a Binding Revocation Indication (RFC 5846, 5.1).
    pub struct RevocationTrigger(u8) {
        UNSPECIFIED = 0 "Unspecified",
        ADMINISTRATIVE_REASON = 1 "Administrative Reason",
        INTER_MAG_SAME_ACCESS = 2 "Inter-MAG Handover - same Access Type",
        INTER_MAG_DIFFERENT_ACCESS = 3 "Inter-MAG Handover - different Access Type",
        INTER_MAG_UNKNOWN = 4 "Inter-MAG Handover - Unknown",
        USER_INITIATED = 5 "User-Initiated Session(s) Termination",
        ACCESS_NETWORK = 6 "Access Network Session(s) Termination",
        POSSIBLE_OUT_OF_SYNC = 7 "Possible Out-of-Sync BCE State",
        PER_PEER_POLICY = 128 "Per-Peer Policy",
        LOCAL_POLICY = 129 "Revoking Mobility Node Local Policy",
    }

    /// Status of a Binding Revocation Acknowledgement (RFC 5846, 5.2).
    pub struct RevocationStatus(u8) {
        SUCCESS = 0 "Success",
        PARTIAL_SUCCESS = 1 "Partial success",
        BINDING_DOES_NOT_EXIST = 128 "Binding Does NOT Exist",
        IPV4_HOA_OPTION_REQUIRED = 129 "IPv4 Home Address Option Required",
        GLOBAL_NOT_AUTHORIZED = 130 "Global Revocation NOT Authorized",
        IDENTITY_REQUIRED = 131 "Revoked Mobile Nodes Identity Required",
        MN_ATTACHED = 132 "Revocation Failed - MN is Attached",
        TRIGGER_NOT_SUPPORTED = 133 "Revocation Trigger NOT Supported",
        FUNCTION_NOT_SUPPORTED = 134 "Revocation Function NOT Supported",
        PROXY_NOT_SUPPORTED = 135 "Proxy Binding Revocation NOT Supported",
    }

    /// Notification Reason of an Update Notification (RFC 7077, 4.1; RFC 7864).
    pub struct NotificationReason(u16) {
        FORCE_REREGISTRATION = 1 "FORCE-REREGISTRATION",
        UPDATE_SESSION_PARAMETERS = 2 "UPDATE-SESSION-PARAMETERS",
        VENDOR_SPECIFIC_REASON = 3 "VENDOR-SPECIFIC-REASON",
        ANI_PARAMS_REQUESTED = 4 "ANI-PARAMS-REQUESTED",
        FLOW_MOBILITY = 8 "FLOW-MOBILITY",
    }

    /// Status of an Update Notification Acknowledgement (RFC 7077, 4.2; RFC 7864).
    pub struct NotificationStatus(u8) {
        SUCCESS = 0 "Success",
        FAILED_TO_UPDATE_SESSION_PARAMETERS = 128 "FAILED-TO-UPDATE-SESSION-PARAMETERS",
        MISSING_VENDOR_SPECIFIC_OPTION = 129 "MISSING-VENDOR-SPECIFIC-OPTION",
        REASON_UNSPECIFIED = 131 "Reason unspecified",
        MN_NOT_ATTACHED = 132 "MN not attached",
    }

    /// Status of a Localized Routing Acknowledgment (RFC 6705, 10.2).
    pub struct LocalizedRoutingStatus(u8) {
        SUCCESS = 0 "Success",
        NOT_ALLOWED = 128 "Localized Routing Not Allowed",
        MN_NOT_ATTACHED = 129 "MN Not Attached",
    }
}

impl Status {
    /// Returns whether the update was accepted.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 < 128
    }
}
