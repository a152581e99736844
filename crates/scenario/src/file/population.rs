//! Scenarios with very many hosts: `[population]` replaces nodes and links.

use schemars::JsonSchema;
use segue_clock::Span;
use segue_grammar::link::{JitterText, LossText, Way};
use segue_grammar::schema::{self, Key, Table};
use segue_grammar::{Duration, Mistake, Part, Ratio, Source, Spanned, Within, hint};
use segue_keepalive::MeasuredBy as Measuring;
use segue_netem::Jitter;
use segue_population::{Class, Flows, Outages, Silent, Spec};
use serde::{Deserialize, Serialize};

use super::tables::Seed;

/// A file with `[population]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: Seed,
    duration: Duration,
    population: Spanned<Population>,
}

/// The table `[population]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Population {
    /// Number of hosts
    hosts: Spanned<u32>,
    /// Number of anchors
    anchors: Spanned<u32>,
    /// Number of parts that are simulated separately
    #[serde(default)]
    shards: Within<2, 0, { u32::MAX as i64 }>,
    /// Hosts start at random instants of this span
    start_over: Duration,
    /// Unanswered probes before a path is down
    k: Spanned<u8>,
    /// Time between probes
    t_ka: Spanned<Duration>,
    /// What feeds probes into the estimates, as with the user-space or the eBPF datapath
    #[serde(default)]
    measured_by: MeasuredBy,
    /// The classes of a host's paths
    paths: Spanned<Vec<Spanned<String>>>,
    /// Mean time between orders to a host with a flow to move it
    #[schemars(extend("x-unset" = "no orders"))]
    planned_every: Option<Spanned<Duration>>,
    /// Share of hosts with a flow, time between packets, their length
    #[schemars(extend("x-value" = "`{ share, interval, bytes }`"))]
    flows: Option<FlowsTable>,
    /// Kinds of paths
    class: Vec<ClassTable>,
}

/// The method that measures the paths.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MeasuredBy {
    #[default]
    Machines,
    PacketPath,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FlowsTable {
    share: Ratio,
    interval: Duration,
    /// A voice packet: 20 ms of G.711 with IPv4, UDP and RTP headers
    #[serde(default)]
    bytes: Within<200, 0, { u32::MAX as i64 }>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    /// Its name
    name: Spanned<String>,
    /// Delay of one direction
    delay: Spanned<Duration>,
    /// Uniform around the delay
    #[schemars(extend("x-value" = "time"))]
    jitter: Option<Spanned<JitterText>>,
    /// Loss of one direction
    #[schemars(extend("x-value" = "share, or `{ p, r, good, bad }`"))]
    loss: Option<LossText>,
    /// Mean time between outages, mean length, and `"both"`, `"up"` or `"down"`
    #[schemars(extend("x-value" = "`{ every, lasts, direction }`"))]
    outages: Option<OutagesTable>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutagesTable {
    every: Duration,
    lasts: Duration,
    #[serde(default)]
    direction: Direction,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    #[default]
    Both,
    Up,
    Down,
}

/// The tables of keys in the documentation.
pub(super) fn described() -> Vec<Table> {
    vec![
        Table::of::<Population>("population", "`[population]`"),
        Table::of::<ClassTable>("population.class", "`[[population.class]]`"),
    ]
}

/// The key of the table in a scenario's file.
pub(super) fn key() -> Vec<Key> {
    let schema = schema::table(Population::described());
    vec![Key { name: "population", schema, required: false }]
}

/// True if the text describes a population. Invalid TOML is refused later, when it is read as a scenario.
#[must_use]
pub fn is_one(text: &str) -> bool {
    text.parse().is_ok_and(|table: toml::Table| table.contains_key("population"))
}

/// Parses the text of the file `name` if it describes a population, and overrides some values.
///
/// # Errors
/// One line with file, line and key.
pub fn parse(text: &str, name: &str, sets: &[(String, String)]) -> anyhow::Result<Option<Spec>> {
    if !is_one(text) {
        return Ok(None);
    }
    let source = Source::new(name, text, sets)?;
    let spec = source.read().and_then(|file: File| spec(&file));
    spec.map(Some).map_err(|mistake| source.tell(&mistake))
}

fn spec(file: &File) -> Result<Spec, Mistake> {
    let table = file.population.get_ref();
    let classes: Vec<Class> = table.class.iter().map(class).collect::<Result<_, _>>()?;
    for (number, class) in table.class.iter().enumerate() {
        if table.class[..number].iter().any(|other| other.name.get_ref() == class.name.get_ref()) {
            return Err(Mistake::of(&class.name, "there is another class of this name"));
        }
    }
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    let number = |name: &Spanned<String>| {
        names.iter().position(|known| known == name.get_ref()).ok_or_else(|| {
            let message = format!("there is no class of this name{}", hint(name.get_ref(), &names));
            Mistake::of(name, message)
        })
    };
    let paths = table.paths.get_ref().iter().map(number).collect::<Result<_, _>>()?;
    let spec = Spec {
        seed: file.seed.get(),
        hosts: *table.hosts.get_ref(),
        anchors: *table.anchors.get_ref(),
        shards: table.shards.get(),
        duration: file.duration.0,
        start_over: table.start_over.0,
        k: *table.k.get_ref(),
        t_ka: table.t_ka.get_ref().0,
        measured_by: match table.measured_by {
            MeasuredBy::Machines => Measuring::Machine,
            MeasuredBy::PacketPath => Measuring::PacketPath,
        },
        classes,
        paths,
        flows: table.flows.as_ref().map(|flows| Flows {
            share: flows.share.0,
            interval: flows.interval.0,
            bytes: flows.bytes.get(),
        }),
        planned_every: table.planned_every.as_ref().map(|every| every.get_ref().0),
    };
    spec.check().map_err(|error| {
        let what = error.what;
        match error.key {
            "hosts" => Mistake::of(&table.hosts, what),
            "anchors" => Mistake::of(&table.anchors, what),
            "shards" => Mistake::beside(&table.hosts, "shards", what),
            "k" => Mistake::of(&table.k, what),
            "t_ka" => Mistake::of(&table.t_ka, what),
            "paths" => Mistake::of(&table.paths, what),
            _ => Mistake::of(&file.population, error.to_string()),
        }
    })?;
    Ok(spec)
}

fn class(table: &ClassTable) -> Result<Class, Mistake> {
    let jitter = table.jitter.as_ref().map(|jitter| *jitter.get_ref());
    let way = Way { jitter, loss: table.loss.clone(), ..Way::default() };
    let refused = |_: &str| Err("a population has no traces of losses");
    let way = way.load(refused).map_err(Mistake::at(&table.name))?;
    let link = way.spec();
    let jitter = match (link.jitter, &table.jitter) {
        (Jitter::None, _) => Span::ZERO,
        (Jitter::Uniform(jitter), _) => jitter,
        (Jitter::Normal(_), Some(written)) => {
            return Err(Mistake::of(written, "a population has uniform jitter: write a time"));
        }
        (Jitter::Normal(_), None) => Span::ZERO,
    };
    let outages = table.outages.as_ref().map(|outages| Outages {
        every: outages.every.0,
        lasts: outages.lasts.0,
        direction: match outages.direction {
            Direction::Both => Silent::Both,
            Direction::Up => Silent::Up,
            Direction::Down => Silent::Down,
        },
    });
    let (name, delay) = (table.name.get_ref().clone(), table.delay.get_ref().0);
    if name.is_empty() || name.len() > 15 || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let message = "the name of an interface has from 1 to 15 letters and digits";
        return Err(Mistake::of(&table.name, message));
    }
    Ok(Class { name, delay, jitter, loss: link.loss, outages })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
seed = 3
duration = "60s"

[population]
hosts = 100
anchors = 4
start_over = "5s"
k = 3
t_ka = "2s"
paths = ["wlan", "cell"]
flows = { share = "10%", interval = "1s" }

[[population.class]]
name = "wlan"
delay = "10ms"
jitter = "5ms"
loss = "1%"
outages = { every = "300s", lasts = "30s", direction = "up" }

[[population.class]]
name = "cell"
delay = "35ms"
loss = { p = 0.01, r = 0.5 }
"#;

    #[test]
    fn a_population_is_read_and_its_values_can_be_set_from_outside() {
        let sets = [("population.hosts".to_owned(), "50".to_owned())];
        let spec = parse(FILE, "p.toml", &sets).unwrap().unwrap();
        assert_eq!((spec.seed, spec.hosts, spec.shards), (3, 50, 2));
        assert_eq!((spec.paths, spec.classes.len()), (vec![0, 1], 2));
        assert_eq!(spec.classes[0].outages.map(|o| o.direction), Some(Silent::Up));
        assert!(parse("duration = \"1s\"\n", "p.toml", &[]).unwrap().is_none());
    }

    #[test]
    fn what_makes_no_population_is_refused_with_line_and_key() {
        for (from, to, words) in [
            ("hosts = 100", "hosts = 0", "p.toml:6: population.hosts: must be from 1"),
            ("anchors = 4", "anchors = 1", "p.toml:7: population.anchors: must be from"),
            ("k = 3", "k = 0", "p.toml:9: population.k: must be at least 1"),
            ("t_ka = \"2s\"", "t_ka = \"60ms\"", "there and back"),
            ("\"cell\"]", "\"sell\"]", "no class of this name (did you mean cell?)"),
            ("hosts = 100", "hots = 100", "population.hots: unknown key"),
            ("loss = \"1%\"", "loss = \"-1%\"", "p.toml:18: population.class.wlan.loss"),
            ("jitter = \"5ms\"", "jitter = \"15ms\"", "jitter: must not be more than the delay"),
            ("duration = \"60s\"", "duration = \"10s\"", "duration: must be longer"),
        ] {
            let text = FILE.replace(from, to);
            let error = parse(&text, "p.toml", &[]).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
