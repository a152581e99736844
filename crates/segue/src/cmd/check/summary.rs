//! The settings that a valid file puts in force, defaults included.

use std::collections::BTreeMap;

use segue_aaa::{AaaProfile, Signed};
use segue_daemon::config::{
    AnchorFile, HostFile, LmaFile, MagFile, MihFunctionFile, MihLinkSapFile,
};
use segue_daemon::settings::{Common, Lma, Mag, Mih, MihSource, Radius, RadiusServer};
use segue_daemon::{anchor, host, nat};
use segue_grammar::Part;
use segue_grammar::schema::{Key, lower, without_links};
use segue_ip::Prefix;
use segue_lab::file::Plan;
use segue_mih::MihfConfig;
use segue_pmip::{Access, Rated, Worth};
use segue_population::Spec;
use segue_scenario::file::Scenario;
use segue_tunnel::PathConfig;
use segue_wire::Mode;
use serde::Serialize;
use serde_json::Value;

/// A key and its value in words.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The key as written in the file.
    pub key: String,
    /// The value in force.
    pub value: String,
    /// The file does not set the key, so the default applies.
    pub default: bool,
}

fn row(key: &str, value: impl ToString, default: bool) -> Row {
    Row { key: key.to_owned(), value: value.to_string(), default }
}

/// A list in words, or `none` if it is empty.
fn listed<T: ToString>(all: impl IntoIterator<Item = T>, none: &str) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { none.to_owned() } else { all.join(", ") }
}

/// Values that only the settings have, in words.
type Words<'a> = Vec<(&'a str, String)>;

/// Rows for the keys of a file with this text, with `words` in place of their values.
fn rows<T: Part + Serialize>(text: &str, file: &T, words: Words<'_>) -> Vec<Row> {
    let values = serde_json::to_value(file).unwrap_or_default();
    let written = toml::de::DeTable::parse(text).map(toml::Spanned::into_inner);
    let written = written.unwrap_or_default();
    let words: BTreeMap<&str, String> = words.into_iter().collect();
    let row = |key: &Key| Row {
        key: key.name.to_owned(),
        value: words.get(key.name).cloned().unwrap_or_else(|| in_words(key, &values[key.name])),
        default: !written.contains_key(key.name),
    };
    T::described().iter().map(row).collect()
}

/// A value of a key in words; without a value, what applies then.
fn in_words(key: &Key, value: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let unset = || key.schema.get("x-unset").map_or("none".into(), text).replace(['`', '"'], "");
    match value {
        Value::Null => unset(),
        Value::String(text) if text.is_empty() => unset(),
        Value::Array(all) if all.is_empty() => unset(),
        Value::Array(all) => listed(all.iter().map(text), ""),
        value => {
            let choices =
                key.schema.get("oneOf").filter(|_| key.schema.contains_key("x-explained"));
            let choices = choices.and_then(Value::as_array);
            let choice = choices.into_iter().flatten().find(|choice| choice["const"] == *value);
            let meaning = choice.and_then(|choice| choice["description"].as_str());
            let meaning = meaning.map(|meaning| format!(": {}", lower(&without_links(meaning))));
            text(value) + meaning.unwrap_or_default().trim_end_matches('.')
        }
    }
}

/// Values of every daemon; `every` are the interfaces that it uses without a list.
fn common(common: &Common, every: &str) -> Words<'static> {
    let metrics = common.metrics.map_or("none".into(), |at| at.to_string());
    vec![
        ("control", common.control.display().to_string()),
        ("metrics", metrics),
        ("interfaces", listed(&common.interfaces, every)),
    ]
}

/// Rows for a host.
pub(crate) fn host(text: &str, file: &HostFile, settings: &host::Settings) -> Vec<Row> {
    let steering = &settings.steering;
    let mut words = common(&settings.common, "all that reach the anchor");
    words.extend([
        ("state", settings.state.display().to_string()),
        ("keepalive", probing(&settings.path)),
        ("path", listed(settings.paths.keys(), "all alike")),
        ("steering", format!("margin {} points, held for {}", steering.margin, steering.hold)),
    ]);
    if settings.routes.as_ref().is_some_and(Vec::is_empty) {
        words.push(("routes", "none: nothing goes through the tunnel".into()));
    }
    let mut rows = rows(text, file, words);
    rows.extend(settings.paths.iter().map(|(name, path)| own_path(name, path)));
    rows
}

/// A row for a path that has its own settings.
fn own_path(name: &str, path: &PathConfig) -> Row {
    let extra = format!(
        "price {}, preference {}, {:?} packets",
        path.price, path.preference, path.encapsulation
    );
    let source = path.source.map(|own| format!(", from {own}")).unwrap_or_default();
    let text = format!("{}; {}{source}", probing(path), extra.to_lowercase());
    row(&format!("path.{name}"), text, false)
}

/// How a path is probed.
fn probing(path: &PathConfig) -> String {
    if !path.enabled {
        return "not probed".into();
    }
    let keepalive = &path.keepalive;
    let start = format!("K {}, T_KA {}", keepalive.k, keepalive.t_ka);
    let how = match path.adaptive {
        Some(_) => format!("follows use, begins with {start}"),
        None => format!("{start}, fixed"),
    };
    let measured = match keepalive.mode {
        Mode::Both => "both ends measure",
        Mode::Client => "the host measures",
        Mode::Reports => "the host measures and reports",
        Mode::RoundTripLoss => "both measure times, the host losses of the round trip",
    };
    format!("{how}; {measured}")
}

/// Rows for an anchor.
pub(crate) fn anchor(text: &str, file: &AnchorFile, settings: &anchor::Settings) -> Vec<Row> {
    let [v4, v6] = [settings.pool_v4, settings.pool_v6].map(|pool| pool.map(|pool| pool.prefix()));
    let pools: Vec<Prefix> = [v4, v6].into_iter().flatten().collect();
    let in_force = nat::in_force(&pools, settings.nat);
    let stamp = settings.stamp.as_ref();
    let mut words = common(&settings.common, "all that are up");
    words.extend([
        ("state", settings.state.display().to_string()),
        ("addresses", listed(&settings.addresses, "the anchor's own")),
        ("nat", in_force.trim_start_matches("nat: ").to_owned()),
        ("stamp", stamp.map_or("off".into(), |stamp| format!("port {}", stamp.port))),
    ]);
    rows(text, file, words)
}

/// Rows for a local mobility anchor.
pub(crate) fn lma(text: &str, file: &LmaFile, settings: &Lma) -> Vec<Row> {
    let machine = &settings.machine;
    let measured =
        machine.keepalive.as_ref().map_or("gateways are not measured".into(), |probed| {
            format!("every {}, {} lost: not reached", probed.t_ka, probed.k)
        });
    let steering = &machine.steering;
    let mut words = common(&settings.common, "all that are up");
    words.extend([
        ("state", settings.state.display().to_string()),
        ("gateways", listed(machine.gateways.iter().map(|one| one.prefix), "none")),
        ("access", listed(machine.accesses.iter().map(rated), "all alike")),
        ("keepalive", measured),
        ("steering", format!("better by {} for {}", steering.margin, steering.hold)),
        ("mih", heard(settings.mih.as_ref())),
        ("radius", radius(settings.radius.as_ref())),
    ]);
    rows(text, file, words)
}

/// How an anchor rates accesses.
fn rated(rated: &Rated) -> String {
    let Worth { price, preference } = rated.worth;
    let kind = rated.access.map_or("any", |access| access.name().unwrap_or("unknown"));
    let gateway = rated.gateway.map(|prefix| format!(" at {prefix}")).unwrap_or_default();
    format!("{kind}{gateway}: price {price}, preference {preference}")
}

/// Rows for a mobile access gateway.
pub(crate) fn mag(text: &str, file: &MagFile, settings: &Mag) -> Vec<Row> {
    let machine = &settings.machine;
    let accesses = machine.accesses.iter();
    let hosts = machine.identities.as_ref().map_or(0, |identities| identities.known.len());
    let mut words = common(&settings.common, "all that are up and no accesses");
    words.extend([
        ("state", settings.state.display().to_string()),
        ("access", listed(accesses.clone().map(|access| &access.interface), "none")),
        ("mih", heard(settings.mih.as_ref())),
        ("radius", radius(settings.radius.as_ref())),
        ("node", format!("{hosts} known by link-layer address")),
    ]);
    if settings.radius.is_some() {
        words.push(("realm", "servers say who hosts are".into()));
    }
    let mut rows = rows(text, file, words);
    let access =
        |access: &Access| row(&format!("access.{}", access.interface), access.proxy_coa, false);
    rows.extend(accesses.map(access));
    rows
}

/// The functions that report link events.
fn heard(config: Option<&MihfConfig>) -> String {
    let functions = config.into_iter().flat_map(|config| &config.functions);
    listed(functions.map(|function| function.address), "nobody tells of links")
}

/// The identifier of an IEEE 802.21 daemon, and what every daemon has.
fn mih(settings: &Mih) -> Words<'static> {
    let mut words = common(&settings.common, "");
    words.push(("name", settings.machine.name.0.escape_ascii().to_string()));
    words
}

/// Rows for an MIH function.
pub(crate) fn mih_function(text: &str, file: &MihFunctionFile, settings: &Mih) -> Vec<Row> {
    let mut words = mih(settings);
    words.push(("peers", listed(&settings.machine.peers, "none")));
    rows(text, file, words)
}

/// Rows for a link service access point.
pub(crate) fn mih_link_sap(text: &str, file: &MihLinkSapFile, settings: &Mih) -> Vec<Row> {
    let mut words = mih(settings);
    words.push(("link", listed(settings.links.iter().map(|link| &link.interface), "none")));
    let mut rows = rows(text, file, words);
    rows.extend(settings.links.iter().map(|link| {
        let source = match &link.source {
            MihSource::Wire => "the wire".to_owned(),
            MihSource::Hostapd(path) => format!("hostapd at {}", path.display()),
            MihSource::Nl80211 => "the kernel's Wi-Fi".to_owned(),
            MihSource::Lab(path) => format!("the test network at {}", path.display()),
        };
        let orders = if link.orders { "does what peers order" } else { "takes no orders" };
        let foretells = match &link.forecasting {
            Some(of) => format!("foretells ends at {} dBm", of.lost_dbm),
            None => "foretells nothing".to_owned(),
        };
        let said = format!("{source}; {orders}; {foretells}");
        row(&format!("link.{}", link.interface), said, false)
    }));
    rows
}

/// The RADIUS servers that authorize hosts.
fn radius(radius: Option<&Radius>) -> String {
    let Some(radius) = radius else { return "nobody is asked".into() };
    let server = |server: &RadiusServer| {
        let at = |what, port: Option<u16>| port.map(|port| format!("{what} at port {port}"));
        let both = [at("asked", server.authentication), at("told", server.accounting)];
        let both: Vec<String> = both.into_iter().flatten().collect();
        format!("{} ({})", server.address, both.join(", "))
    };
    let profile = match radius.profile {
        AaaProfile::Rfc6572 => "rfc6572",
        AaaProfile::Paper => "paper",
    };
    let servers: Vec<String> = radius.servers.iter().map(server).collect();
    let answers = match radius.require_message_authenticator {
        Signed::Always => "answers need a Message-Authenticator",
        Signed::Auto => "answers of a server that has signed before need a Message-Authenticator",
        Signed::Never => "answers need no Message-Authenticator",
    };
    format!("{profile}: {}; {answers}", servers.join(", then "))
}

/// Rows for a test network.
pub(crate) fn lab(plan: &Plan) -> Vec<Row> {
    let (nodes, links) = plan.names();
    let (cells, radios) = plan.air();
    vec![
        row("nodes", listed(nodes, "none"), false),
        row("links", listed(links, "none"), false),
        row("cells", listed(cells, "none"), false),
        row("radios", listed(radios, "none"), false),
    ]
}

/// Rows for a simulated network.
pub(crate) fn scenario(scenario: &Scenario) -> Vec<Row> {
    let built = scenario.build();
    vec![
        row("seed", scenario.seed(), false),
        row("duration", scenario.duration(), false),
        row("links", listed(built.links.iter().map(|(name, _)| name), "none"), false),
        row("sweep", if scenario.is_swept() { "yes: segue sim sweep" } else { "no" }, false),
    ]
}

/// Rows for a simulated population.
pub(crate) fn population(spec: &Spec) -> Vec<Row> {
    vec![
        row("seed", spec.seed, false),
        row("duration", spec.duration, false),
        row("hosts", spec.hosts, false),
        row("anchors", spec.anchors, false),
        row("shards", spec.shards, false),
    ]
}
