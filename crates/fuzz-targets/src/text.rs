//! Text from users and programs: configuration, join lines, requests, numbers.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use segue_clock::Span;
use segue_daemon::config::{AnchorFile, HostFile};
use segue_daemon::control::{Request, Response, Tunnels};
use segue_daemon::identity::{Authority, Join};
use segue_grammar::parse;
use segue_ip::Prefix;
use segue_lab::file;
use segue_probe::parse_key;
use segue_scenario::file::Scenario;
use segue_text::units as people;
use segue_traffic::apps::{MAX_FRAME_BYTES, Trace, TraceUnits};

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// Checks that an error for users is one non-empty line.
fn expect_one_line(error: &str) {
    assert!(!error.is_empty() && !error.contains(char::is_control), "{error:?}");
}

/// The join line: a parsed line parses to itself from its own text. An error does not repeat the line, which is a
/// secret. Input that is not a line is tried as the content of one.
pub(crate) fn join(data: &[u8]) {
    if let Some(line) = text(data) {
        expect_join(line);
    }
    expect_join(&format!("segue2:{}", URL_SAFE_NO_PAD.encode(data)));
}

fn expect_join(line: &str) {
    match line.parse::<Join>() {
        Ok(join) => {
            assert!(!join.anchor.is_empty());
            let again = join.to_string();
            assert!(again.len() <= line.len() && !again.contains(char::is_whitespace));
            assert_eq!(again.parse::<Join>().expect("its own line"), join);
        }
        Err(error) => {
            let error = format!("{error:#}");
            expect_one_line(&error);
            let line = line.trim();
            assert!(error.len() < 300 && (line.len() < 20 || !error.contains(line)));
        }
    }
}

/// A certificate request: the certificate is for the key whose possession the request proves; otherwise there is an
/// error of one line.
pub(crate) fn certificate_request(data: &[u8]) {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| Authority::generate().expect("random numbers"));
    match authority.certify("laptop", data, 2_000_000_000) {
        Ok(issued) => {
            // An uncompressed point of P-256, which the request and the certificate both contain.
            assert_eq!(issued.key.len(), 65);
            for whole in [data, &issued.certificate] {
                assert!(whole.windows(65).any(|bytes| bytes == issued.key));
            }
        }
        Err(error) => expect_one_line(&format!("{error:#}")),
    }
}

fn expect_file_error(error: &str, text: &str) {
    expect_line(error.strip_prefix("f:").expect("the file"), text);
}

/// Checks that an error begins with a line number of `text`.
fn expect_line(error: &str, text: &str) {
    expect_one_line(error);
    let line = error.split(':').next().and_then(|number| number.parse().ok());
    let line: usize = line.expect("the line");
    assert!((1..=text.matches('\n').count() + 1).contains(&line), "{error:?}");
}

/// A host's configuration: an error is one line with file and line, or with the key. A daemon can use an accepted one.
pub(crate) fn host_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let file = match parse::<HostFile>(text, "f") {
        Ok(file) => file,
        Err(error) => return expect_file_error(&error.to_string(), text),
    };
    match file.validate() {
        Ok(settings) => {
            assert!(
                settings.tunnel.device.starts_with("segue") && settings.tunnel.device.len() <= 15
            );
            assert!(settings.mtu.is_none_or(|mtu| (576..=65_535).contains(&mtu)));
            assert!(settings.steering.margin >= 0.0 && settings.steering.margin.is_finite());
            for path in settings.paths.values().chain([&settings.path]) {
                let keepalive = &path.keepalive;
                // A probe states whole milliseconds in 16 bits.
                assert!(keepalive.t_ka >= Span::from_millis(5));
                assert!(keepalive.t_ka <= Span::from_millis(65_535));
                assert!(keepalive.k >= 1 && keepalive.n >= 1 && !keepalive.taus.is_empty());
                assert!(path.price >= 0.0 && path.price.is_finite());
                assert!(path.preference.is_finite());
            }
        }
        Err(error) => expect_one_line(&format!("{error:#}")),
    }
}

/// An anchor's configuration, like [`host_config`].
pub(crate) fn anchor_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let file = match parse::<AnchorFile>(text, "f") {
        Ok(file) => file,
        Err(error) => return expect_file_error(&error.to_string(), text),
    };
    match file.validate() {
        Ok(settings) => {
            assert!(
                settings.tunnel.device.starts_with("segue") && settings.tunnel.device.len() <= 15
            );
            assert!((576..=65_535).contains(&settings.mtu));
            assert!(settings.pool_v4.is_some() || settings.pool_v6.is_some());
            assert!(settings.expiry > Span::ZERO && settings.max_paths >= 2);
        }
        Err(error) => expect_one_line(&format!("{error:#}")),
    }
}

/// The description of a test network: an error is one line with file and line. An accepted one parses to the same
/// result again, and is rejected with an unknown key appended.
pub(crate) fn lab_file(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match file::parse(text, "f") {
        Ok(plan) => {
            let again = file::parse(&format!("{text}\n# The end.\n"), "f");
            assert_eq!(format!("{:?}", again.expect("a comment is allowed")), format!("{plan:?}"));
            let more = format!("{text}\n[[node]]\nname = \"z\"\nno_such_key = 1\n");
            let error = file::parse(&more, "f").expect_err("an unknown key");
            expect_file_error(&error.to_string(), &more);
        }
        Err(error) => expect_file_error(&error.to_string(), text),
    }
}

/// A scenario: an error is one line with file and line. An accepted one is accepted again with a comment appended, and
/// rejected with an unknown key appended. Setting its seed to the existing value changes nothing.
pub(crate) fn scenario(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Scenario::parse_alone(text, "f") {
        Ok(scenario) => {
            let again = Scenario::parse_alone(&format!("{text}\n# The end.\n"), "f");
            assert_eq!(again.expect("a comment is allowed").duration(), scenario.duration());
            let more = format!("{text}\n[[event]]\nno_such_key = 1\n");
            let error = Scenario::parse_alone(&more, "f").err().expect("an unknown key");
            expect_file_error(&error.to_string(), &more);
            let seed = scenario.seed();
            let set = scenario.with(&[("seed".into(), seed.to_string())]);
            assert_eq!(set.expect("its own seed").seed(), seed);
        }
        Err(error) => expect_file_error(&error.to_string(), text),
    }
}

/// The file that `segue probe --key` reads: it is accepted exactly if it contains 32 hexadecimal digits and otherwise
/// only white space, and the key has their value. Input that is not text is tried as the content of a file.
pub(crate) fn probe_key(data: &[u8]) {
    let digits = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    if let Some(text) = text(data) {
        let inner = text.trim();
        let fits = inner.len() == 32 && inner.bytes().all(|b| b.is_ascii_hexdigit());
        let stated = parse_key(text).map(|key| digits(&key.0));
        assert_eq!(stated, fits.then(|| inner.to_ascii_lowercase()));
    }
    let read = parse_key(&format!("{}\n", digits(data)));
    assert_eq!(read.map(|key| key.0.to_vec()), (data.len() == 16).then(|| data.to_vec()));
}

/// The control socket: a message is emitted in a form that parses to the same message.
pub(crate) fn control(data: &[u8]) {
    let write = |value: &dyn Fn() -> serde_json::Result<String>| value().expect("written");
    if let Ok(request) = serde_json::from_slice::<Request<Tunnels>>(data) {
        let line = write(&|| serde_json::to_string(&request));
        assert!(!line.contains('\n'));
        let again: Request<Tunnels> = serde_json::from_str(&line).expect("its own line");
        assert_eq!(write(&|| serde_json::to_string(&again)), line);
    }
    if let Ok(response) = serde_json::from_slice::<Response<Tunnels>>(data) {
        let line = write(&|| serde_json::to_string(&response));
        assert!(!line.contains('\n'));
        let again: Response<Tunnels> = serde_json::from_str(&line).expect("its own line");
        assert_eq!(write(&|| serde_json::to_string(&again)), line);
    }
}

/// Durations, ratios and rates as typed by users: within range, or an error of one line.
pub(crate) fn units(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match people::duration(text) {
        Ok(span) => {
            let again = people::duration(&format!("{}ns", span.0)).expect("whole nanoseconds");
            // The parser rounds numbers above 2⁵³.
            assert!(again.0.abs_diff(span.0) <= span.0 >> 52);
        }
        Err(error) => expect_one_line(&error),
    }
    match people::ratio(text) {
        Ok(ratio) => assert!((0.0..=1.0).contains(&ratio) && ratio.is_sign_positive()),
        Err(error) => expect_one_line(&error),
    }
    if let Err(error) = people::rate(text) {
        expect_one_line(&error);
    }
}

/// A trace of video frames: an error is one line with the line number. An accepted one parses to the same result from
/// its own text and with a comment appended, and is rejected with an invalid line appended.
pub(crate) fn video_trace(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for (seconds, bits) in [(false, false), (true, true)] {
        let units = TraceUnits { seconds, bits };
        let trace = match Trace::parse(text, units) {
            Ok(trace) => trace,
            Err(error) => {
                expect_line(&error.to_string(), text);
                continue;
            }
        };
        let frames = trace.frames();
        assert!(frames.len() >= 2 && frames.iter().all(|f| f.bytes <= MAX_FRAME_BYTES));
        assert!(frames.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(frames.last().is_some_and(|last| last.at <= trace.period()) && trace.bytes() > 0);
        let own = trace.to_string();
        assert_eq!(Trace::parse(&own, TraceUnits::MS_BYTES).as_ref(), Ok(&trace));
        let more = format!("{text}\n# The end.\n");
        assert_eq!(Trace::parse(&more, units).as_ref(), Ok(&trace));
        let more = format!("{text}\n1 2 3 4\n");
        expect_line(&Trace::parse(&more, units).expect_err("no frame").to_string(), &more);
    }
}

/// An address with a prefix length parses to itself from its own text.
pub(crate) fn prefix(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match text.parse::<Prefix>() {
        Ok(prefix) => {
            assert!(prefix.len <= if prefix.addr.is_ipv4() { 32 } else { 128 });
            assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
        }
        Err(error) => expect_one_line(&error.to_string()),
    }
}
