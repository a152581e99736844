//! The result table of a sweep, as CSV (RFC 4180) and as Parquet, with one row per run in order of run number. Columns
//! are the run, its seed, the axes, and every result of any run, in order of first appearance. A result that a run
//! lacks is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use segue_text::units;

use super::plan::Plan;
use super::store::{Figure, Kept};

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
    Bool,
    Text,
}

struct Column {
    name: String,
    kind: Kind,
    cells: Vec<Option<Cell>>,
}

/// The table of all runs.
pub(crate) struct Table {
    columns: Vec<Column>,
}

impl Table {
    /// The table of these runs, in ascending order.
    ///
    /// # Errors
    /// Two columns have the same name.
    pub(super) fn of(plan: &Plan, kept: &[Kept]) -> anyhow::Result<Table> {
        let rows = kept.len();
        let points: Vec<_> = kept.iter().map(|run| plan.point(run.run)).collect();
        let numbers = points.iter().map(|point| Some(Cell::Unsigned(point.run))).collect();
        let seeds = points.iter().map(|point| Some(Cell::Unsigned(point.seed))).collect();
        let mut columns = vec![column("run", numbers), column("seed", seeds)];
        for (place, axis) in plan.axes().iter().enumerate() {
            let cells = points.iter().map(|point| Some(written(point.values[place].1))).collect();
            columns.push(of_axis(&axis.key, cells));
        }
        let first = columns.len();
        let mut places = BTreeMap::new();
        let mut results: Vec<(&str, Vec<Option<Cell>>)> = Vec::new();
        for (row, run) in kept.iter().enumerate() {
            for (name, figure) in &run.results {
                let place = *places.entry(name.as_str()).or_insert_with(|| {
                    results.push((name, vec![None; rows]));
                    results.len() - 1
                });
                results[place].1[row] = Some(figure.cell()?);
            }
        }
        columns.extend(results.into_iter().map(|(name, cells)| column(name, cells)));
        let known = |name: &str| columns[..first].iter().any(|column| column.name == name);
        if let Some(twice) = columns[first..].iter().find(|column| known(&column.name)) {
            bail!("a result has the name of the axis {}: give its part another name", twice.name);
        }
        Ok(Table { columns })
    }

    /// A table of named columns of numbers, some of which may be missing.
    pub(crate) fn of_numbers(columns: impl Iterator<Item = (String, Vec<Option<f64>>)>) -> Table {
        let of = |(name, cells): (String, Vec<Option<f64>>)| {
            let cells = cells.into_iter().map(|cell| cell.map(Cell::Float)).collect();
            column(&name, cells)
        };
        Table { columns: columns.map(of).collect() }
    }

    /// The table as CSV with a header.
    #[must_use]
    pub(crate) fn csv(&self) -> Vec<u8> {
        let rows = self.columns[0].cells.len();
        let mut text = String::new();
        let heading = self.columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>();
        text.push_str(&heading.join(","));
        text.push_str("\r\n");
        for row in 0..rows {
            let cells = self.columns.iter().map(|column| match &column.cells[row] {
                Some(cell) => quoted(&cell.text()),
                None => String::new(),
            });
            text.push_str(&cells.collect::<Vec<_>>().join(","));
            text.push_str("\r\n");
        }
        text.into_bytes()
    }

    /// The table as Parquet: one row group, uncompressed, without a timestamp, so that the same table yields the same
    /// bytes.
    ///
    /// # Errors
    /// None for tables built here.
    pub(crate) fn parquet(&self) -> anyhow::Result<Vec<u8>> {
        let fields = self.columns.iter().map(|column| column.field().map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>().context("Parquet schema")?;
        let schema = Type::group_type_builder("segue").with_fields(fields).build()?;
        let made_by = format!("segue {}", env!("CARGO_PKG_VERSION"));
        let properties = WriterProperties::builder().set_created_by(made_by).build();
        let mut bytes = Vec::new();
        let mut writer =
            SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for column in &self.columns {
            column.write(&mut group).with_context(|| format!("Parquet column {}", column.name))?;
        }
        group.close()?;
        writer.close()?;
        Ok(bytes)
    }
}

impl Column {
    fn field(&self) -> parquet::errors::Result<Type> {
        let whole = |is_signed| Some(LogicalType::integer(64, is_signed));
        let (physical, logical) = match self.kind {
            Kind::Unsigned => (Physical::INT64, whole(false)),
            Kind::Signed => (Physical::INT64, whole(true)),
            Kind::Float => (Physical::DOUBLE, None),
            Kind::Bool => (Physical::BOOLEAN, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
    }

    fn write<W: std::io::Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> anyhow::Result<()> {
        match self.kind {
            // The signed column type holds the bits of an unsigned number.
            Kind::Unsigned => self.write_as::<Int64Type, W>(group, |cell| match cell {
                Cell::Unsigned(n) => Some(*n as i64),
                _ => None,
            }),
            Kind::Signed => self.write_as::<Int64Type, W>(group, |cell| match cell {
                Cell::Signed(n) => Some(*n),
                _ => None,
            }),
            Kind::Float => self.write_as::<DoubleType, W>(group, Cell::number),
            Kind::Bool => self.write_as::<BoolType, W>(group, |cell| match cell {
                Cell::Bool(yes) => Some(*yes),
                _ => None,
            }),
            Kind::Text => self.write_as::<ByteArrayType, W>(group, |cell| {
                Some(ByteArray::from(cell.text().as_str()))
            }),
        }
    }

    fn write_as<T: DataType, W: std::io::Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        value: impl Fn(&Cell) -> Option<T::T>,
    ) -> anyhow::Result<()> {
        let cells = self.cells.iter().flatten();
        let values = cells.map(value).collect::<Option<Vec<_>>>();
        let values = values.context("a value of another kind")?;
        let levels: Vec<i16> = self.cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let mut writer = group.next_column()?.context("more columns than the schema has")?;
        writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
        writer.close()?;
        Ok(())
    }
}

impl Cell {
    fn kind(&self) -> Kind {
        match self {
            Cell::Unsigned(_) => Kind::Unsigned,
            Cell::Signed(_) => Kind::Signed,
            Cell::Float(_) => Kind::Float,
            Cell::Bool(_) => Kind::Bool,
            Cell::Text(_) => Kind::Text,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Cell::Unsigned(n) => Some(*n as f64),
            Cell::Signed(n) => Some(*n as f64),
            Cell::Float(x) => Some(*x),
            Cell::Bool(_) | Cell::Text(_) => None,
        }
    }

    fn word(&self) -> Option<&str> {
        match self {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Cell::Unsigned(n) => n.to_string(),
            Cell::Signed(n) => n.to_string(),
            Cell::Float(x) => format!("{x:?}"),
            Cell::Bool(yes) => yes.to_string(),
            Cell::Text(text) => text.clone(),
        }
    }
}

impl Figure {
    fn cell(&self) -> anyhow::Result<Cell> {
        Ok(match self {
            Figure::Int(n) => Cell::Unsigned(*n),
            Figure::Float(text) => Cell::Float(text.parse().with_context(|| text.clone())?),
            Figure::Text(text) => Cell::Text(text.clone()),
        })
    }
}

/// A value of an axis, parsed as TOML; a value that is not TOML becomes a string.
fn written(text: &str) -> Cell {
    let table = format!("v = {text}").parse::<toml::Table>().ok();
    match table.filter(|table| table.len() == 1).and_then(|mut table| table.remove("v")) {
        Some(toml::Value::Integer(n)) => Cell::Signed(n),
        Some(toml::Value::Float(x)) => Cell::Float(x),
        Some(toml::Value::Boolean(yes)) => Cell::Bool(yes),
        Some(toml::Value::String(text)) => Cell::Text(text),
        _ => Cell::Text(text.to_owned()),
    }
}

/// The column of an axis. Durations and rates become numbers in seconds and bits per second, with the unit as suffix of
/// the column's name; percentages become shares of 1.
fn of_axis(key: &str, cells: Vec<Option<Cell>>) -> Column {
    type Read = fn(&Cell) -> Option<f64>;
    let seconds: Read = |cell| Some(units::duration(cell.word()?).ok()?.as_secs_f64());
    let rate: Read = |cell| Some(units::rate(cell.word()?).ok()? as f64);
    let share: Read = |cell| match cell.word() {
        Some(text) => units::ratio(text).ok().filter(|_| text.ends_with('%')),
        None => cell.number(),
    };
    let is_written = cells.iter().flatten().any(|cell| cell.word().is_some());
    for (unit, read) in [("_s", seconds), ("_bps", rate), ("", share)] {
        let numbers: Option<Vec<f64>> = cells.iter().flatten().map(read).collect();
        if let Some(numbers) = numbers.filter(|_| is_written) {
            let cells = numbers.into_iter().map(|number| Some(Cell::Float(number))).collect();
            return column(&format!("{key}{unit}"), cells);
        }
    }
    column(key, cells)
}

/// A column of the narrowest type that holds all its values: one fractional number makes the column fractional, and any
/// other mix makes it text.
fn column(name: &str, cells: Vec<Option<Cell>>) -> Column {
    let mut kinds = cells.iter().flatten().map(Cell::kind);
    let first = kinds.next().unwrap_or(Kind::Float);
    let numeric = |kind| matches!(kind, Kind::Unsigned | Kind::Signed | Kind::Float);
    let kind = kinds.fold(first, |kind, other| match (kind, other) {
        (a, b) if a == b => a,
        (a, b) if numeric(a) && numeric(b) => Kind::Float,
        _ => Kind::Text,
    });
    Column { name: name.to_owned(), kind, cells }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
