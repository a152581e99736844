//! The options of `segue decode`, and what they start.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::{Bare, Capture, Element, Link, Packet, bare, hex, packet};

/// The longest text that is taken for hexadecimal digits: that of a packet.
const TEXT_MAX: u64 = 1 << 20;

/// Show the mobility messages of a capture or a packet, field by field
///
/// Mobility Headers (Mobile IPv6, Proxy Mobile IPv6 and what extends them), neighbour discovery, MIH (IEEE 802.21),
/// RADIUS, Segue's own packets, UPMT's and STAMP's, also inside of tunnels. Every packet gives its messages, or the reason why it has none.
#[derive(clap::Args)]
pub struct Args {
    /// A capture (pcap or pcapng), or hexadecimal digits: here, in a file, or with - on standard input
    #[arg(value_name = "FILE|HEX")]
    input: String,
    /// What hexadecimal digits are: an IP packet, or a message by itself
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value_t = As::Ip)]
    what: As,
    /// Print JSON: a list of messages
    #[arg(long)]
    json: bool,
}

/// What hexadecimal digits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum As {
    /// An IPv4 or IPv6 packet
    Ip,
    /// A Mobility Header
    Mh,
    /// An ICMPv6 message
    Icmpv6,
    /// The payload of a UDP datagram on Segue's port
    Segue,
    /// An MIH frame
    Mih,
    /// A RADIUS packet
    Radius,
}

/// Runs the verb.
///
/// # Errors
/// Input that is neither a capture nor digits, a capture that is broken (behind what was before that), digits that hold
/// no message.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (live, out) = (args.input == "-", BufWriter::new(io::stdout().lock()));
    let mut out = Printer { out, json: args.json, live, printed: 0 };
    if args.input != "-" && !Path::new(&args.input).exists() {
        let Some(bytes) = hex::parse(&args.input) else {
            bail!("{}: there is no such file, and these are no hexadecimal digits", args.input);
        };
        one(&bytes, args.what, &mut out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (name, input): (&str, Box<dyn Read>) = match args.input.as_str() {
        "-" => ("standard input", Box::new(io::stdin().lock())),
        name => {
            let file = File::open(name).with_context(|| format!("cannot read {name}"))?;
            (name, Box::new(BufReader::new(file)))
        }
    };
    read(input, args.what, &mut out).with_context(|| name.to_owned())?;
    Ok(ExitCode::SUCCESS)
}

fn read(mut input: impl Read, what: As, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let mut head = Vec::new();
    input.by_ref().take(4).read_to_end(&mut head).context("cannot be read")?;
    if let Some(magic) = head.first_chunk()
        && Capture::<File>::is(*magic)
    {
        return capture(*magic, head.chain(input), out);
    }
    input.take(TEXT_MAX).read_to_end(&mut head).context("cannot be read")?;
    let bytes = str::from_utf8(&head).ok().and_then(hex::parse);
    one(&bytes.context("neither a capture (pcap, pcapng) nor hexadecimal digits")?, what, out)
}

fn capture(magic: [u8; 4], input: impl Read, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let mut capture = Capture::open(magic, input)?;
    let broken = loop {
        match capture.next_packet() {
            Ok(Some(Packet { number, data_link, bytes, cut })) => match Link::of(data_link) {
                Some(link) => out.print(&packet(number, link, &bytes, cut))?,
                None => {
                    let error = format!("link type {}: not decoded", u32::from(data_link));
                    out.print(&[Element::without_message(number, error)])?;
                }
            },
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    out.end()?;
    broken.map_or(Ok(()), Err)
}

/// A packet or a message by itself.
fn one(bytes: &[u8], what: As, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let elements = match what {
        As::Ip if !matches!(bytes[0] >> 4, 4 | 6) => {
            bail!("these digits begin like no IP packet: say with --as what they are")
        }
        As::Ip => packet(1, Link::Raw, bytes, false),
        As::Mh => bare(Bare::MobilityHeader, bytes),
        As::Icmpv6 => bare(Bare::Icmpv6, bytes),
        As::Segue => bare(Bare::Segue, bytes),
        As::Mih => bare(Bare::Mih, bytes),
        As::Radius => bare(Bare::Radius, bytes),
    };
    if elements.iter().all(|element| element.message.is_none()) {
        let error = elements.into_iter().find_map(|element| element.error);
        bail!("no message: {}", error.unwrap_or_default());
    }
    out.print(&elements)?;
    out.end()
}

/// Prints elements as they come.
struct Printer<W: Write> {
    out: W,
    json: bool,
    /// What is printed is shown at once: the input may go on for long.
    live: bool,
    printed: u64,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, elements: &[Element]) -> anyhow::Result<()> {
        let mut printed = elements.iter().try_for_each(|element| self.element(element));
        if self.live {
            printed = printed.and_then(|()| self.out.flush());
        }
        printed.context(CANNOT_WRITE)
    }

    fn element(&mut self, element: &Element) -> io::Result<()> {
        if self.json {
            self.out.write_all(if self.printed == 0 { b"[\n" } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, element)?;
        } else {
            write!(self.out, "{element}")?;
        }
        self.printed += 1;
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let end: &[u8] = match (self.json, self.printed) {
            (false, _) => b"",
            (true, 0) => b"[]\n",
            (true, _) => b"\n]\n",
        };
        self.out.write_all(end).and_then(|()| self.out.flush()).context(CANNOT_WRITE)
    }
}

const CANNOT_WRITE: &str = "cannot write to standard output";
