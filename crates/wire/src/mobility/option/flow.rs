//! Flow binding options (RFC 6089) and their sub-options.

use alloc::vec::Vec;

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire, codes, hex, layout};
use crate::mobility::{Family, TrafficSelector};
use crate::padded::{Alignment, RawOption, RawOptions, push};

codes! {
    /// Status of a Flow Identification.
    pub struct FlowStatus(u8) {
        SUCCESS = 0 "Flow binding successful",
        PROHIBITED = 128 "Administratively prohibited",
        REJECTED = 129 "Flow binding rejected, reason unspecified",
        MALFORMED = 130 "Flow Identification option malformed",
        BID_NOT_FOUND = 131 "BID not found",
        FID_NOT_FOUND = 132 "FID not found",
        SELECTOR_FORMAT_NOT_SUPPORTED = 133 "Traffic selector format not supported",
    }
}

layout! {
    /// Flow Summary (RFC 6089, 4.3): the flow bindings to keep unchanged.
    pub struct FlowSummary {
        /// FIDs of these bindings.
        fids: Vec<u16>,
    }

    /// Flow Identification (RFC 6089, 4.2).
    ///
    /// ```text
    ///                                 |             FID               |
    /// |           FID-PRI             |   Reserved    |    Status     |
    /// ~                         sub-options                           ~
    /// ```
    pub struct FlowIdentification {
        /// Flow Identifier, not 0.
        fid: u16,
        /// Priority, not 0; the lowest number has precedence.
        fid_pri: u16,
        /// In an acknowledgement, the result.
        [1] status: FlowStatus,
        /// Traffic selectors, binding references and others.
        sub_options: Vec<FlowSubOption>,
    }

    /// Binding Reference (RFC 6089, 4.2.1.3).
    pub struct BindingReference {
        /// BIDs of the bindings to forward to.
        bids: Vec<u16>,
    }

    /// A traffic selector of an unknown format.
    pub struct OtherTrafficSelector {
        /// TS Format.
        ts_format: u8,
        /// The selector.
        #[serde(serialize_with = "hex")]
        [1] traffic_selector: Vec<u8>,
    }
}

/// Sub-options of a Flow Identification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "sub_option", rename_all = "snake_case")]
pub enum FlowSubOption {
    /// Binding Reference (2).
    BindingReference(BindingReference),
    /// Traffic Selector (3).
    TrafficSelector(TrafficSelector),
    /// Traffic Selector (3) of an unknown format.
    OtherTrafficSelector(OtherTrafficSelector),
    /// Any other sub-option.
    Unknown(super::Unknown),
}

const BINDING_REFERENCE: u8 = 2;
const TRAFFIC_SELECTOR: u8 = 3;

impl FlowSubOption {
    /// RFC 6089 requires Binding Reference at even offsets. RFC 6088 assumes natural alignment of the selector's
    /// fields, which no position of the option achieves; at even offsets the fields are packed.
    const ALIGNMENT: Alignment = Alignment::At { n: 2, offset: 0 };

    fn read(raw: &RawOption<'_>) -> Result<FlowSubOption, WireError> {
        let selector = |data| Reader::new("Traffic Selector", data, 0);
        match (raw.kind, raw.data) {
            (BINDING_REFERENCE, data) => {
                let mut reader = Reader::new("Binding Reference", data, 0);
                Ok(FlowSubOption::BindingReference(Wire::read(&mut reader)?))
            }
            (TRAFFIC_SELECTOR, data) => match data.first().and_then(|f| Family::of_ts_format(*f)) {
                Some(family) => {
                    selector(data).take(2)?;
                    TrafficSelector::parse(family, &data[2..]).map(FlowSubOption::TrafficSelector)
                }
                None => Ok(FlowSubOption::OtherTrafficSelector(Wire::read(&mut selector(data))?)),
            },
            (kind, data) => {
                Ok(FlowSubOption::Unknown(super::Unknown { kind, data: data.to_vec() }))
            }
        }
    }

    /// Its name, type and data.
    fn data(&self) -> (&'static str, u8, Vec<u8>) {
        let mut data = Vec::new();
        let (name, kind) = match self {
            FlowSubOption::BindingReference(reference) => {
                reference.write(&mut data);
                ("Binding Reference", BINDING_REFERENCE)
            }
            FlowSubOption::TrafficSelector(selector) => {
                data.extend([selector.family.ts_format(), 0]);
                selector.write(&mut data);
                ("Traffic Selector", TRAFFIC_SELECTOR)
            }
            FlowSubOption::OtherTrafficSelector(selector) => {
                selector.write(&mut data);
                ("Traffic Selector", TRAFFIC_SELECTOR)
            }
            FlowSubOption::Unknown(option) => {
                data.extend(&option.data);
                ("Flow Identification sub-option", option.kind)
            }
        };
        (name, kind, data)
    }
}

/// All sub-options left.
impl Wire for Vec<FlowSubOption> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let options = RawOptions::new(reader.what, reader.rest());
        options.map(|raw| FlowSubOption::read(&raw?)).collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        for option in self {
            let (name, kind, data) = option.data();
            // More than 255 bytes do not fit the option, which is then refused on emission.
            let short = &data[..data.len().min(255)];
            let _ = push(out, name, kind, FlowSubOption::ALIGNMENT, short);
        }
    }
}
