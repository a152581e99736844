//! Reads the PDML output of tshark.

use std::path::Path;
use std::process::Command;

/// A field, in the order of the packet.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The value as text.
    pub(crate) show: String,
    /// Name and value in readable form.
    pub(crate) showname: String,
    /// The bytes as hexadecimal digits; for a flag, its value.
    pub(crate) value: String,
}

/// A Mobility Header or an ICMPv6 message.
#[derive(Debug)]
pub(crate) struct Message {
    /// The packet's number in the capture.
    pub(crate) packet: u64,
    /// Source of the innermost IPv6 header.
    pub(crate) source: String,
    pub(crate) destination: String,
    /// Its fields, after those of the extension headers before it.
    pub(crate) fields: Vec<Field>,
}

/// Every Mobility Header and every ICMPv6 message of a capture. `None` without tshark.
pub(crate) fn messages(capture: &Path) -> Option<Vec<Message>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "pdml", "-r"]).arg(capture);
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: tshark cannot be run: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(read(&String::from_utf8(output.stdout).unwrap()))
}

fn read(pdml: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    let (mut packet, mut headers, mut ends) = (0, Vec::new(), [String::new(), String::new()]);
    // The protocols that are open at this line; the fields of a message go to the last entry of `messages`.
    let mut within: Vec<String> = Vec::new();
    for line in pdml.lines().map(str::trim_start) {
        if line.starts_with("<proto ") {
            let name = attribute(line, "name");
            match name.as_str() {
                "geninfo" => packet += 1,
                "ipv6" => headers.clear(),
                "mipv6" | "icmpv6" => {
                    let fields = std::mem::take(&mut headers);
                    let [source, destination] = ends.clone();
                    messages.push(Message { packet, source, destination, fields });
                }
                _ => {}
            }
            within.push(name);
        } else if line.starts_with("</proto>") {
            within.pop();
        } else if line.starts_with("<field ") {
            let [name, show] = ["name", "show"].map(|of| attribute(line, of));
            match name.as_str() {
                "ipv6.src" => ends[0].clone_from(&show),
                "ipv6.dst" => ends[1].clone_from(&show),
                _ => {}
            }
            let [showname, value] = ["showname", "value"].map(|of| attribute(line, of));
            let field = Field { name, show, showname, value };
            match within.last().map(String::as_str) {
                Some("mipv6" | "icmpv6") => messages.last_mut().unwrap().fields.push(field),
                Some("ipv6" | "ipv6.dstopts" | "ipv6.routing") => headers.push(field),
                _ => {}
            }
        }
    }
    messages
}

/// An attribute of a tag; empty if the tag does not have it.
pub(crate) fn attribute(tag: &str, name: &str) -> String {
    let begin = format!(" {name}=\"");
    let Some((_, rest)) = tag.split_once(&begin) else { return String::new() };
    let value = rest.split('"').next().unwrap();
    value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
