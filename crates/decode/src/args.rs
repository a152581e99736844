//! The command-line options of `segue decode`, and the program that they run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_text::terminal::Stream;
use segue_text::terminal::layout::wrap;

use crate::names::Chosen;
use crate::{Bare, Capture, Element, Link, bare, hex, link, packet, unpacked};

/// The longest text, in bytes, that is read as hexadecimal digits; enough for the largest packet.
const TEXT_MAX: u64 = 1 << 20;

/// Show the mobility messages of a capture or a packet, field by field
///
/// Mobility Headers (Mobile IPv6, Proxy Mobile IPv6 and what extends them), neighbour discovery, MIH (IEEE 802.21),
/// RADIUS, Segue's own packets, UPMT's and STAMP's, also inside of tunnels. A message that cannot be read is listed with
/// the reason; packets of other protocols are counted.
#[derive(clap::Args)]
pub struct Args {
    /// A capture (pcap or pcapng, also compressed with gzip), or hexadecimal digits: here, in a file, or with - on standard input
    #[arg(value_name = "FILE|HEX")]
    input: String,
    /// What hexadecimal digits are: an IP packet, or a message by itself
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value_t = As::Ip)]
    what: As,
    /// Show these messages alone: a group (mobility, nd, mih, radius, segue, upmt, stamp), or a name such as
    /// binding-update; several with commas or by repetition
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = Chosen::of)]
    only: Vec<Chosen>,
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

/// Runs the subcommand.
///
/// # Errors
/// The input is neither a capture nor hexadecimal digits, the digits hold no message, or the capture is broken. A
/// broken capture is printed up to the fault.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (live, out) = (args.input == "-", BufWriter::new(io::stdout().lock()));
    let Args { only, json, .. } = args;
    let mut out = Printer { out, json, only, live, printed: 0, hidden: BTreeMap::new() };
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

fn read(input: impl Read, what: As, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let (mut head, input) = unpacked(input).context("cannot be read")?;
    if let Some(magic) = head.first_chunk()
        && Capture::<File>::is(*magic)
    {
        return capture(*magic, input, out);
    }
    head.clear();
    input.take(TEXT_MAX).read_to_end(&mut head).context("cannot be read")?;
    let bytes = str::from_utf8(&head).ok().and_then(hex::parse);
    one(&bytes.context("neither a capture (pcap, pcapng) nor hexadecimal digits")?, what, out)
}

fn capture(magic: [u8; 4], input: impl Read, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let mut capture = Capture::open(magic, input)?;
    let broken = loop {
        match capture.next_packet() {
            Ok(Some(read)) => {
                let mut elements = match Link::of(read.link_type) {
                    Some(link) => packet(read.number, link, &read.bytes, read.length),
                    None => {
                        let unknown = link::unknown(read.link_type);
                        vec![Element::without_message(read.number, unknown)]
                    }
                };
                let time = read.time.map(|time| time.to_string());
                elements.iter_mut().for_each(|element| element.time.clone_from(&time));
                out.packet(&elements)?;
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    out.end(broken.is_none())?;
    broken.map_or(Ok(()), Err)
}

/// Decodes a single packet or message given as digits.
fn one(bytes: &[u8], what: As, out: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let elements = match what {
        As::Ip if !matches!(bytes[0] >> 4, 4 | 6) => {
            bail!("these digits begin like no IP packet: say with --as what they are")
        }
        As::Ip => packet(1, Link::Raw(0), bytes, bytes.len()),
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
    out.packet(&elements)?;
    out.end(true)
}

/// Prints elements as they arrive, and finally counts those it did not print.
struct Printer<W: Write> {
    out: W,
    json: bool,
    /// Types of messages to show; all of them if empty.
    only: Vec<Chosen>,
    /// Flushes after each packet: the input may be a live capture.
    live: bool,
    printed: u64,
    /// Messages that `only` excludes, by name, and packets of other protocols, by kind.
    hidden: BTreeMap<String, u64>,
}

impl<W: Write> Printer<W> {
    /// Prints the messages of one packet.
    fn packet(&mut self, elements: &[Element]) -> anyhow::Result<()> {
        let mut printed = Ok(());
        for element in elements.iter().filter(|element| element.other.is_none()) {
            let message = element.message.unwrap_or("broken");
            if self.only.is_empty() || self.only.iter().any(|chosen| chosen.has(message)) {
                printed = printed.and_then(|()| self.element(element));
            } else {
                *self.hidden.entry(message.to_owned()).or_default() += 1;
            }
        }
        // A packet counts as hidden only if it holds no message at all.
        if elements.iter().all(|element| element.other.is_some())
            && let Some(other) = elements.last().and_then(|element| element.other.clone())
        {
            *self.hidden.entry(other).or_default() += 1;
        }
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
            write!(self.out, "{}", wrap(&element.to_string(), Stream::Output.room()))?;
        }
        self.printed += 1;
        Ok(())
    }

    /// Ends the output with the counts of what was not printed. With JSON they go to standard error, unless the capture
    /// is broken (`whole` is false): its error is then the only line there.
    fn end(&mut self, whole: bool) -> anyhow::Result<()> {
        let mut counts: Vec<(&String, &u64)> = self.hidden.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let counts: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let hidden = match &counts[..] {
            [] => String::new(),
            counts => {
                let line = format!("not shown: {}\n", counts.join(", "));
                wrap(&line, Stream::Output.room())
            }
        };
        let end: &[u8] = match (self.json, self.printed) {
            (false, _) => hidden.as_bytes(),
            (true, 0) => b"[]\n",
            (true, _) => b"\n]\n",
        };
        if self.json && whole && !hidden.is_empty() {
            eprint!("{hidden}");
        }
        self.out.write_all(end).and_then(|()| self.out.flush()).context(CANNOT_WRITE)
    }
}

const CANNOT_WRITE: &str = "cannot write to standard output";
