//! The settings that a valid file puts in force, defaults included.

use segue_aaa::{AaaProfile, Signed};
use segue_daemon::config::{
    AnchorFile, HostFile, LmaFile, MagFile, MihFunctionFile, MihLinkSapFile, ProfileKey,
    ScheduleKey,
};
use segue_daemon::settings::{
    Choice, Common, Lma, Mag, Mih, MihSource, Radius, RadiusServer, Relay,
};
use segue_daemon::{anchor, host, nat};
use segue_datapath::Services;
use segue_grammar::SteeringKeys;
use segue_ip::Prefix;
use segue_lab::file::Plan;
use segue_mih::{MihfConfig, Transport};
use segue_pmip::{Encapsulation, GreUse, Rated, Worth};
use segue_population::Spec;
use segue_scenario::file::Scenario;
use segue_text::units;
use segue_tunnel::PathConfig;
use segue_wire::Mode;

/// A key and its value in words.
pub(super) struct Row {
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

/// The address at which metrics are served.
fn served(common: &Common, default: bool) -> Row {
    row("metrics", common.metrics.map_or("none".into(), |at| at.to_string()), default)
}

/// How long the log keeps events.
fn kept(common: &Common, default: bool) -> Row {
    let kept = common.history.as_ref().map_or("none".into(), |log| units::span(log.keep));
    row("history", kept, default)
}

/// Maximum size of the event log in megabytes.
fn limited(common: &Common, default: bool) -> Row {
    let megabytes = common.history.as_ref().map_or(0, |log| log.bytes / 1_000_000);
    row("history_mb", megabytes, default)
}

/// A list in words, or `none` if it is empty.
fn listed<T: ToString>(all: impl IntoIterator<Item = T>, none: &str) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { none.to_owned() } else { all.join(", ") }
}

fn choice(choice: Choice) -> &'static str {
    match choice {
        Choice::Auto => "auto: eBPF where the kernel takes it, else user space",
        Choice::Ebpf => "ebpf, or no start",
        Choice::User => "user space",
    }
}

/// Rows for a host.
pub(super) fn host(file: &HostFile, settings: &host::Settings) -> Vec<Row> {
    let mtu = settings
        .mtu
        .map_or("1456, or 1436 if the anchor has an IPv6 address".into(), |mtu| mtu.to_string());
    let mut rows = vec![
        row(
            "join_file",
            file.join_file.as_ref().map_or("none".into(), |f| f.display().to_string()),
            file.join_file.is_none(),
        ),
        row("state", settings.state.display(), file.state.is_none()),
        row("device", &settings.tunnel.device, file.device.is_none()),
        row("mtu", mtu, file.mtu.is_none()),
        row("port", settings.tunnel.port, file.port.is_none()),
        row("datapath", choice(settings.tunnel.datapath), file.datapath.is_none()),
        row(
            "routes",
            settings
                .routes
                .as_ref()
                .map_or("everything that the anchor has a way out for".into(), |routes| {
                    listed(routes, "none: nothing goes through the tunnel")
                }),
            file.routes.is_none(),
        ),
        row("fail_closed", settings.fail_closed, file.fail_closed.is_none()),
        row(
            "priority",
            settings.priority.map_or("behind other programs' tunnels".into(), |p| p.to_string()),
            file.priority.is_none(),
        ),
        row(
            "interfaces",
            listed(&settings.common.interfaces, "all that reach the anchor"),
            file.interfaces.is_none(),
        ),
        row(
            "nameservers",
            listed(&settings.nameservers, "those of the system"),
            file.nameservers.is_none(),
        ),
        row("instance", file.instance.as_deref().unwrap_or("none"), file.instance.is_none()),
        row("control", settings.common.control.display(), file.control.is_none()),
        row(
            "control_group",
            file.control_group.as_deref().unwrap_or("root alone"),
            file.control_group.is_none(),
        ),
        served(&settings.common, file.metrics.is_none()),
        kept(&settings.common, file.history.is_none()),
        limited(&settings.common, file.history_mb.is_none()),
        row("realtime", settings.tunnel.realtime, file.realtime.is_none()),
        row("keepalive", probing(&settings.path), false),
    ];
    rows.extend(settings.paths.iter().map(|(name, path)| own_path(name, path)));
    let steering = &settings.steering;
    rows.push(row(
        "steering",
        format!("margin {} points, held for {}", steering.margin, steering.hold),
        false,
    ));
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
pub(super) fn anchor(file: &AnchorFile, settings: &anchor::Settings) -> Vec<Row> {
    let [v4, v6] = [settings.pool_v4, settings.pool_v6].map(|pool| pool.map(|pool| pool.prefix()));
    let pools: Vec<Prefix> = [v4, v6].into_iter().flatten().collect();
    let in_force = nat::in_force(&pools, settings.nat);
    let anchor_services = match settings.reach.anchor {
        Services::Nothing => "nothing",
        Services::Ping => "ping",
        Services::All => "all",
    };
    vec![
        row("addresses", listed(&settings.addresses, "the anchor's own"), file.addresses.is_none()),
        row("device", &settings.tunnel.device, file.device.is_none()),
        row("mtu", settings.mtu, file.mtu.is_none()),
        row("port", settings.tunnel.port, file.port.is_none()),
        row("signal_port", settings.signal_port, file.signal_port.is_none()),
        row("datapath", choice(settings.tunnel.datapath), file.datapath.is_none()),
        row(
            "interfaces",
            listed(&settings.common.interfaces, "all that are up"),
            file.interfaces.is_none(),
        ),
        row("pool_v4", listed(v4, "none"), file.pool_v4.is_none()),
        row("pool_v6", listed(v6, "none"), file.pool_v6.is_none()),
        row("nat", in_force.trim_start_matches("nat: "), file.nat.is_none()),
        row("max_paths", settings.max_paths, file.max_paths.is_none()),
        row("reach_hosts", settings.reach.hosts, file.reach_hosts.is_none()),
        row("reach_anchor", anchor_services, file.reach_anchor.is_none()),
        row("reach_routed", settings.reach.routed, file.reach_routed.is_none()),
        row(
            "stamp",
            settings.stamp.as_ref().map_or("off".into(), |s| format!("port {}", s.port)),
            file.stamp.is_none(),
        ),
        row("expiry", settings.expiry, file.expiry.is_none()),
        row(
            "certificate_lifetime",
            segue_clock::Span::from_secs(settings.certificate_lifetime.as_secs()),
            file.certificate_lifetime.is_none(),
        ),
        row("allow_upmt", settings.allow_upmt, file.allow_upmt.is_none()),
        row("state", settings.state.display(), file.state.is_none()),
        row("instance", file.instance.as_deref().unwrap_or("none"), file.instance.is_none()),
        row("control", settings.common.control.display(), file.control.is_none()),
        row(
            "control_group",
            file.control_group.as_deref().unwrap_or("root alone"),
            file.control_group.is_none(),
        ),
        served(&settings.common, file.metrics.is_none()),
        kept(&settings.common, file.history.is_none()),
        limited(&settings.common, file.history_mb.is_none()),
        row("realtime", settings.tunnel.realtime, file.realtime.is_none()),
    ]
}

/// Rows for a local mobility anchor.
pub(super) fn lma(file: &LmaFile, settings: &Lma) -> Vec<Row> {
    let machine = &settings.machine;
    let nodes = file.nodes.as_ref();
    let nodes = nodes.map_or("all that gateways register".into(), |nodes| listed(nodes, "none"));
    let schedule = schedule(file.schedule.unwrap_or(ScheduleKey::Static));
    let measured =
        machine.keepalive.as_ref().map_or("gateways are not measured".into(), |probed| {
            format!("every {}, {} lost: not reached", probed.t_ka, probed.k)
        });
    let gre = match machine.gre {
        GreUse::Off => "off",
        GreUse::Allowed => "allowed",
        GreUse::Required => "required",
    };
    let steering = &machine.steering;
    let steering = format!("better by {} for {}", steering.margin, steering.hold);
    let decisions = settings.decisions.as_ref().map(|path| path.display().to_string());
    let mut rows = vec![
        row("address", machine.address, false),
        row(
            "address_v4",
            machine.address_v4.map_or("none".into(), |address| address.to_string()),
            file.address_v4.is_none(),
        ),
        row("accept_udp", machine.accept_udp, file.accept_udp.is_none()),
        row("nat_keepalive", machine.nat_keepalive, file.nat_keepalive.is_none()),
        row("gre", gre, file.gre.is_none()),
        row("pool", machine.pool.network(), false),
        row("prefix_length", file.prefix_length.unwrap_or(64), file.prefix_length.is_none()),
        row("prefix_hold", machine.prefix_hold, file.prefix_hold.is_none()),
        row("gateways", listed(machine.gateways.iter().map(|one| one.prefix), "none"), false),
        row("nodes", nodes, file.nodes.is_none()),
        row("profile", profile(file.profile), file.profile.is_none()),
        row("lifetime", machine.longest.span(), file.lifetime.is_none()),
        row("timestamp_window", machine.window, file.timestamp_window.is_none()),
        row("delete_delay", machine.delete_delay, file.delete_delay.is_none()),
        row("assign_delay", machine.assign_delay, file.assign_delay.is_none()),
        row("flow_mobility", machine.flow_mobility, file.flow_mobility.is_none()),
        row(
            "flow_mobility_initiate",
            machine.flow_mobility_initiate,
            file.flow_mobility_initiate.is_none(),
        ),
        row("schedule", schedule, file.schedule.is_none()),
        row(
            "access",
            listed(machine.accesses.iter().map(rated), "all alike"),
            file.access.is_empty(),
        ),
        row("keepalive", measured, file.keepalive.is_none()),
        row("steering", steering, file.steering == SteeringKeys::default()),
        row("every_flow", machine.always_ask, file.every_flow.is_none()),
        row("flow_label", settings.relay.labels, file.flow_label.is_none()),
        row("flow_idle", settings.machine.flow_idle, file.flow_idle.is_none()),
        row("max_flows", machine.max_flows, file.max_flows.is_none()),
        row("decisions", decisions.unwrap_or("nobody".into()), file.decisions.is_none()),
        row("mih", heard(settings.mih.as_ref()), file.mih.is_none()),
        row("radius", radius(settings.radius.as_ref()), file.radius.is_none()),
        row("max_bindings", machine.capacity, file.max_bindings.is_none()),
        row("max_tunnels", machine.max_tunnels, file.max_tunnels.is_none()),
        row("state", settings.state.display(), file.state.is_none()),
        row("instance", file.instance.as_deref().unwrap_or("none"), file.instance.is_none()),
    ];
    let given = [file.device.is_none(), file.mtu.is_none(), file.datapath.is_none()];
    rows.extend(relay(&settings.relay, given));
    let given = [file.interfaces.is_none(), file.control.is_none(), file.control_group.is_none()];
    rows.extend(common(&settings.common, "all that are up", file.control_group.as_deref(), given));
    rows.push(served(&settings.common, file.metrics.is_none()));
    rows.push(kept(&settings.common, file.history.is_none()));
    rows.push(limited(&settings.common, file.history_mb.is_none()));
    rows
}

/// How flows are placed.
fn schedule(key: ScheduleKey) -> &'static str {
    match key {
        ScheduleKey::Static => "static: to the interface whose prefix they have",
        ScheduleKey::Hash => "hash: by their addresses, ports and protocol",
        ScheduleKey::Random => "random",
        ScheduleKey::LeastLoaded => "least-loaded: to the interface with the fewest flows",
        ScheduleKey::Preferred => "preferred: to the cheapest interface, then to the preferred one",
        ScheduleKey::Quality => "quality: to the interface that serves the flow's class best",
    }
}

/// How an anchor rates accesses.
fn rated(rated: &Rated) -> String {
    let Worth { price, preference } = rated.worth;
    let kind = rated.access.map_or("any", |access| access.name().unwrap_or("unknown"));
    let gateway = rated.gateway.map(|prefix| format!(" at {prefix}")).unwrap_or_default();
    format!("{kind}{gateway}: price {price}, preference {preference}")
}

/// Rows for a mobile access gateway.
pub(super) fn mag(file: &MagFile, settings: &Mag) -> Vec<Row> {
    let machine = &settings.machine;
    let realm = match file.realm.as_deref() {
        _ if settings.radius.is_some() => "servers say who hosts are",
        None => "segue.invalid",
        Some("") => "none: hosts that no [[node]] names are refused",
        Some(realm) => realm,
    };
    let encapsulation = match machine.encapsulation {
        Encapsulation::Ip => "ip",
        Encapsulation::Gre => "gre",
        Encapsulation::Udp => "udp",
    };
    let lifetime = &machine.lifetime;
    let mut rows = vec![
        row("anchor", machine.anchor, false),
        row("encapsulation", encapsulation, file.encapsulation.is_none()),
        row("forward_all", machine.forward_all, file.forward_all.is_none()),
        row("profile", profile(file.profile), file.profile.is_none()),
        row("realm", realm, file.realm.is_none()),
        row("radius", radius(settings.radius.as_ref()), file.radius.is_none()),
        row("name_servers", listed(&machine.name_servers, "none"), file.name_servers.is_none()),
        row("fixed_mac", settings.fixed_mac, file.fixed_mac.is_none()),
        row("advertise_every", machine.advertise_every, file.advertise_every.is_none()),
        row("lifetime_first", lifetime.first, file.lifetime_first.is_none()),
        row("lifetime_min", lifetime.shortest, file.lifetime_min.is_none()),
        row("lifetime_max", lifetime.longest, file.lifetime_max.is_none()),
        row("max_hosts", machine.capacity, file.max_hosts.is_none()),
        row("state", settings.state.display(), file.state.is_none()),
        row("instance", file.instance.as_deref().unwrap_or("none"), file.instance.is_none()),
    ];
    let given = [file.device.is_none(), file.mtu.is_none(), file.datapath.is_none()];
    rows.extend(relay(&settings.relay, given));
    let given = [file.interfaces.is_none(), file.control.is_none(), file.control_group.is_none()];
    let all = "all that are up and no accesses";
    rows.extend(common(&settings.common, all, file.control_group.as_deref(), given));
    rows.push(served(&settings.common, file.metrics.is_none()));
    rows.push(kept(&settings.common, file.history.is_none()));
    rows.push(limited(&settings.common, file.history_mb.is_none()));
    rows.extend(
        machine
            .accesses
            .iter()
            .map(|access| row(&format!("access.{}", access.interface), access.proxy_coa, false)),
    );
    rows.push(row("mih", heard(settings.mih.as_ref()), file.mih.is_none()));
    rows.push(row("node", format!("{} known by link-layer address", file.node.len()), false));
    rows
}

/// The functions that report link events.
fn heard(config: Option<&MihfConfig>) -> String {
    let functions = config.into_iter().flat_map(|config| &config.functions);
    listed(functions.map(|function| function.address), "nobody tells of links")
}

/// Rows common to both IEEE 802.21 daemons.
fn mih(
    settings: &Mih,
    [name, instance, control]: [bool; 3],
    [instance_name, group]: [Option<&str>; 2],
) -> Vec<Row> {
    vec![
        row("name", settings.machine.name.0.escape_ascii(), name),
        row("instance", instance_name.unwrap_or("none"), instance),
        row("control", settings.common.control.display(), control),
        row("control_group", group.unwrap_or("root alone"), group.is_none()),
    ]
}

/// Rows for an MIH function.
pub(super) fn mih_function(file: &MihFunctionFile, settings: &Mih) -> Vec<Row> {
    let given = [file.name.is_none(), file.instance.is_none(), file.control.is_none()];
    let mut rows =
        mih(settings, given, [&file.instance, &file.control_group].map(|key| key.as_deref()));
    rows.push(served(&settings.common, file.metrics.is_none()));
    rows.push(row("peers", listed(&settings.machine.peers, "none"), file.peers.is_none()));
    rows.push(row("validity", settings.machine.validity, file.validity.is_none()));
    rows
}

/// Rows for a link service access point.
pub(super) fn mih_link_sap(file: &MihLinkSapFile, settings: &Mih) -> Vec<Row> {
    let given = [file.name.is_none(), file.instance.is_none(), file.control.is_none()];
    let mut rows =
        mih(settings, given, [&file.instance, &file.control_group].map(|key| key.as_deref()));
    rows.push(served(&settings.common, file.metrics.is_none()));
    rows.push(row("functions", heard(Some(&settings.machine)), file.functions.is_none()));
    let functions = settings.machine.functions.iter();
    let tcp = functions.clone().any(|function| function.transport == Transport::Tcp);
    rows.push(row("transport", if tcp { "tcp" } else { "udp" }, file.transport.is_none()));
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

fn profile(key: Option<ProfileKey>) -> &'static str {
    match key.unwrap_or(ProfileKey::Standard) {
        ProfileKey::Standard => "standard",
        ProfileKey::Oai => "oai",
    }
}

fn relay(relay: &Relay, [device, mtu, datapath]: [bool; 3]) -> [Row; 3] {
    [
        row("device", &relay.device, device),
        row("mtu", relay.mtu, mtu),
        row("datapath", choice(relay.datapath), datapath),
    ]
}

fn common(
    common: &Common,
    every: &str,
    group: Option<&str>,
    [interfaces, control, no_group]: [bool; 3],
) -> [Row; 3] {
    [
        row("interfaces", listed(&common.interfaces, every), interfaces),
        row("control", common.control.display(), control),
        row("control_group", group.filter(|g| !g.is_empty()).unwrap_or("root alone"), no_group),
    ]
}

/// Rows for a test network.
pub(super) fn lab(plan: &Plan) -> Vec<Row> {
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
pub(super) fn scenario(scenario: &Scenario) -> Vec<Row> {
    let built = scenario.build();
    vec![
        row("seed", scenario.seed(), false),
        row("duration", scenario.duration(), false),
        row("links", listed(built.links.iter().map(|(name, _)| name), "none"), false),
        row("sweep", if scenario.is_swept() { "yes: segue sim sweep" } else { "no" }, false),
    ]
}

/// Rows for a simulated population.
pub(super) fn population(spec: &Spec) -> Vec<Row> {
    vec![
        row("seed", spec.seed, false),
        row("duration", spec.duration, false),
        row("hosts", spec.hosts, false),
        row("anchors", spec.anchors, false),
        row("shards", spec.shards, false),
    ]
}
