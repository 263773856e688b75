//! What runs left, as `run` and `compare` print it: the field's tables, one column for each variant.

use crate::complete;
use crate::failure::Failure;
use crate::output::{self, Force, VERSION};
use clap::ValueEnum;
use clap_complete::engine::ArgValueCompleter;
use highorder_files::Destination;
use highorder_lab::Sweep;
use highorder_lab::memory_map::Moment;
use highorder_page::{Image, Map, Page, shown_runs};
use highorder_record::compare::{self, Detail};
use highorder_record::end_state;
use highorder_record::killed::{KILLED_MEANS, killed_process};
use highorder_record::listing;
use highorder_record::noise::Verdict;
use highorder_record::verdict::{self, Findings};
use highorder_record::{
    Comparison, Form, Group, Identity, Inputs, PublishedForm, Record, Scale, Source, published,
    time_lines, vmstat_listing,
};
use highorder_report::BLOCK_LIVES;
use highorder_tables::text::counted;
use highorder_tables::{Column, Table, Value};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Rows of what differs that people are shown; programs get all.
const DIFFERENCES_SHOWN: usize = 16;
/// Headings of tables of sums over runs, and of means.
const DURATION: &str = "Duration";
const VMSTAT: &str = "vmstat";
const MEMORY: &str = "Memory";

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables to read
    #[default]
    Text,
    /// One object
    Json,
    /// One table, a row for each value that is compared; with --listing the listings alone
    Csv,
    /// Tables for Markdown
    Md,
    /// One page for a browser, with pictures; works offline
    Html,
}

/// How to print, and where to.
#[derive(clap::Args)]
pub(crate) struct Printing {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write into this file instead of printing
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Beside each change, whether it is more than noise: the rank test's p, where the change lies, the
    /// verdict
    #[arg(long)]
    noise: bool,
    /// Also show each run as vmstat(8) and time(1) do, a line every SECONDS of virtual time, or for every
    /// sample
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = seconds)]
    listing: Option<f64>,
    /// In the form of these published tables, whose rows come first and in their order [default: what the
    /// experiment says]
    #[arg(long, value_name = "TABLES", value_parser = published_form, add = ArgValueCompleter::new(complete::forms))]
    published: Option<String>,
    #[command(flatten)]
    pub(crate) force: Force,
}

fn published_form(text: &str) -> Result<String, String> {
    let names = published::names();
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(highorder_input::expected(text, &names)),
    }
}

/// Seconds between two lines: from none to a day.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds, 0 to 86400".to_owned())
}

impl Printing {
    /// Whether another form is asked for than that which the experiment names.
    pub(crate) fn has_other_form(&self) -> bool {
        self.published.is_some() || self.listing.is_some() || self.noise
    }

    /// Where results are written, if not printed.
    pub(crate) fn destination(&self) -> Result<Option<Destination>, Failure> {
        self.force.destination(self.out.as_deref())
    }

    /// The arguments that say what is shown, as words of a command line, without defaults.
    pub(crate) fn shown_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(format) =
            self.format.to_possible_value().filter(|_| self.format != Format::Text)
        {
            words.extend(["--format".to_owned(), format.get_name().to_owned()]);
        }
        if self.noise {
            words.push("--noise".to_owned());
        }
        words.extend(self.listing.map(|seconds| format!("--listing={seconds}")));
        words.extend(self.published.iter().flat_map(|n| ["--published".to_owned(), n.clone()]));
        words
    }

    /// Those that say where to, likewise.
    pub(crate) fn place_words(&self) -> Vec<String> {
        let out = self.out.iter().map(|out| out.display().to_string());
        let mut words: Vec<String> = out.flat_map(|out| ["--out".to_owned(), out]).collect();
        words.extend(self.force.words());
        words
    }
}

/// Runs of one variant.
pub(crate) struct Variant {
    /// The column's heading.
    pub(crate) label: String,
    /// Its runs; not empty.
    pub(crate) records: Vec<Record>,
}

/// What is compared, and how it came about.
pub(crate) struct Results {
    /// The variants, the base first.
    pub(crate) variants: Vec<Variant>,
    /// The published form that the experiment names.
    pub(crate) published: Option<&'static str>,
    /// What the parts of the variants' names are, where results are one table with a row for each.
    pub(crate) matrix: Vec<String>,
    /// The key over whose values results are shown.
    pub(crate) sweep: Option<Sweep>,
    /// The command line that gives the same results.
    pub(crate) command: String,
}

impl Results {
    /// Prints them beside what is written elsewhere, or writes them.
    pub(crate) fn show<'a>(
        &self,
        printing: &Printing,
        out: Option<&Destination>,
        beside: impl IntoIterator<Item = &'a Destination>,
    ) -> Result<(), Failure> {
        let text = match (printing.format, self.shown_sweep(printing)) {
            (format, Some(sweep)) => self.sweep_as(sweep, format)?,
            (format, None) => self.as_format(format, printing)?,
        };
        match out {
            Some(out) => output::write(out, text.as_bytes()),
            None => output::print_beside(text.as_bytes(), beside),
        }
    }

    fn as_format(&self, format: Format, printing: &Printing) -> Result<String, Failure> {
        Ok(match format {
            _ if self.is_matrix(printing) => self.matrix_as(format)?,
            Format::Text => self.text(printing),
            Format::Md => self.markdown(printing),
            Format::Csv => self.csv(printing),
            Format::Json => self.json(printing)?,
            Format::Html => self.html(printing)?,
        })
    }

    pub(crate) fn groups(&self) -> Vec<Group<'_>> {
        fn group(variant: &Variant) -> Group<'_> {
            Group { label: variant.label.clone(), records: variant.records.iter().collect() }
        }
        self.variants.iter().map(group).collect()
    }

    /// What a person wants to know first.
    pub(crate) fn findings(&self) -> Findings {
        verdict::find(&self.groups(), !self.matrix.is_empty() || self.sweep.is_some())
    }

    /// The form that is asked for, or else the experiment's.
    fn published(&self, printing: &Printing) -> Option<&'static PublishedForm> {
        published::find(printing.published.as_deref().or(self.published)?)
    }

    /// The tables that have rows: metrics, latencies, huge pages, time, what the kernel counted, and the state of
    /// memory; or those of a published form before the rest of these.
    fn comparisons(&self, printing: &Printing) -> Vec<Comparison> {
        let Some(published) = self.published(printing) else { return self.unpublished() };
        let groups = self.groups();
        let mut tables = compare::in_published_form(published, &groups);
        let memory = end_state::memory(MEMORY, &groups);
        tables.extend(Some(memory).filter(|table| !table.rows.is_empty()));
        tables
    }

    /// These in our own form.
    pub(crate) fn unpublished(&self) -> Vec<Comparison> {
        let groups = self.groups();
        let form = Form::default();
        let mut tables = vec![
            compare::metrics("Metrics", &groups),
            compare::latencies("Latencies", &groups),
            compare::percentage_huge("Huge pages", &groups),
            compare::duration(DURATION, &groups, form),
            compare::vmstat(VMSTAT, &groups, form),
            end_state::memory(MEMORY, &groups),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    /// A line for each variant: what it was run of.
    fn origins(&self) -> Vec<String> {
        let origin = |variant: &Variant| format!("{}: {}", variant.label, origin(&variant.records));
        self.variants.iter().map(origin).collect()
    }

    /// What a reader should know before comparing.
    fn notes(&self, comparisons: &[Comparison]) -> Vec<String> {
        let mut notes: Vec<String> = compare::unequal_runs(&self.groups()).into_iter().collect();
        let has_stars = comparisons.iter().flat_map(|table| &table.rows).any(|row| {
            let mut verdicts = row.cells.iter().filter_map(|cell| cell.noise);
            verdicts.any(|noise| noise.verdict == Verdict::Difference)
        });
        if has_stars {
            notes.push(
                "A change in stars is more than noise among the samples of these runs; of two equal \
                 kernels, one row in twenty shows stars all the same. Whether other runs would differ \
                 too, repeats tell: the verdict goes by them."
                    .to_owned(),
            );
        }
        let rows = || comparisons.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells);
        if rows().any(|cell| cell.killed_runs > 0) {
            notes.push(KILLED_MEANS.to_owned());
        }
        for variant in &self.variants {
            // Who was killed stands in the verdict.
            let told = variant.records.iter().flat_map(|record| &record.notes);
            let told: BTreeSet<&String> =
                told.filter(|note| killed_process(note).is_none()).collect();
            notes.extend(told.into_iter().map(|note| format!("{}: {note}", variant.label)));
        }
        notes
    }

    /// Which of the values that determine runs differ between the variants. What the runs of one source
    /// never have, as a real kernel has no kernel file, sets them apart from none of another.
    fn differences(&self) -> Table {
        let column =
            |heading: &str| Column { heading: heading.to_owned(), key: heading.to_owned() };
        let labels = self.variants.iter().map(|variant| column(&variant.label));
        let columns = std::iter::once(column("value")).chain(labels).collect();
        let mut table = Table { title: "What differs".to_owned(), columns, rows: Vec::new() };
        let all: Vec<BTreeMap<String, String>> =
            self.variants.iter().map(|variant| values(&variant.records)).collect();
        let source = |variant: &Variant| variant.records.first().map(|r| r.inputs.source);
        let sources: Vec<Option<Source>> = self.variants.iter().map(source).collect();
        let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
        for key in keys {
            let found: Vec<Option<&String>> = all.iter().map(|values| values.get(key)).collect();
            let has_it =
                |source| sources.iter().zip(&found).any(|(s, v)| *s == source && v.is_some());
            let comparable = sources.iter().zip(&found).filter(|(source, _)| has_it(**source));
            let comparable: BTreeSet<&Option<&String>> =
                comparable.map(|(_, value)| value).collect();
            if comparable.len() < 2 {
                continue;
            }
            let cell = |value: Option<&String>| value.map_or(Value::Missing, |v| v.as_str().into());
            let cells = found.into_iter().map(cell);
            table.push(std::iter::once(Value::from(key.as_str())).chain(cells).collect());
        }
        table
    }

    /// The tables, with what the values of several runs are made of in their headings.
    fn headed(&self, printing: &Printing) -> Vec<Comparison> {
        let counts: BTreeSet<usize> =
            self.variants.iter().map(|variant| variant.records.len()).collect();
        let runs = match counts.iter().collect::<Vec<_>>()[..] {
            [] | [1] => return self.comparisons(printing),
            [nr] => format!("{nr} runs"),
            _ => "each variant's runs".to_owned(),
        };
        let headed = |mut comparison: Comparison| {
            let how = match comparison.title.as_str() {
                DURATION | VMSTAT => "sum",
                MEMORY => "mean",
                _ => return comparison,
            };
            comparison.title = format!("{} ({how} of {runs})", comparison.title);
            comparison
        };
        self.comparisons(printing).into_iter().map(headed).collect()
    }

    fn text(&self, printing: &Printing) -> String {
        let comparisons = self.headed(printing);
        let mut text = verdict_text(&self.findings());
        for origin in self.origins() {
            text.push_str(&format!("{origin}\n"));
        }
        for note in self.notes(&comparisons) {
            text.push_str(&format!("{note}\n"));
        }
        let mut differences = self.differences();
        if !differences.rows.is_empty() {
            let hidden = differences.rows.len().saturating_sub(DIFFERENCES_SHOWN);
            differences.rows.truncate(DIFFERENCES_SHOWN);
            text.push_str(&format!("\n{}", differences.text()));
            if hidden > 0 {
                let hidden = counted(hidden as u64, "other value");
                text.push_str(&format!("and {hidden} (--format md or json has all)\n"));
            }
        }
        for comparison in &comparisons {
            text.push_str(&format!("\n{}", comparison.text()));
            let has_noise = |table: &Comparison| {
                table.rows.iter().any(|row| row.cells.iter().any(|cell| cell.noise.is_some()))
            };
            if printing.noise && has_noise(comparison) {
                let mut table = comparison.table(Detail::Noise);
                table.title = format!("{}: noise", comparison.title);
                text.push_str(&format!("\n{}", table.text()));
            }
        }
        for listing in self.listings(printing) {
            text.push_str(&format!("\n{}\n\n{}", listing.title, listing.text));
            text.push_str(&format!("\n{}", listing.time));
            text.extend(listing.hint.map(|hint| format!("{hint}\n")));
        }
        text.push_str(&format!("\n{VERSION}; again with: {}\n", self.command));
        text
    }

    fn markdown(&self, printing: &Printing) -> String {
        let comparisons = self.headed(printing);
        let mut text = verdict_markdown(&self.findings());
        for line in self.origins().into_iter().chain(self.notes(&comparisons)) {
            text.push_str(&format!("- {line}\n"));
        }
        let detail = if printing.noise { Detail::Noise } else { Detail::Plain };
        let differences = self.differences();
        let tables = comparisons.iter().map(|comparison| comparison.table(detail));
        for table in std::iter::once(differences).filter(|t| !t.rows.is_empty()).chain(tables) {
            text.push_str(&format!("\n{}", table.markdown()));
        }
        for listing in self.listings(printing) {
            let Listing { title, text: lines, time, hint, .. } = listing;
            text.push_str(&format!("\n{title}:\n\n```text\n{lines}\n{time}```\n"));
            text.extend(hint.map(|hint| format!("\n{hint}\n")));
        }
        text.push_str(&format!("\n{VERSION}; again with: `{}`\n", self.command));
        text
    }

    /// All comparisons as one table; or, where listings are asked for, all of these as one.
    fn csv(&self, printing: &Printing) -> String {
        let tables: Vec<Table> = match printing.listing {
            Some(_) => self.listings(printing).into_iter().map(|listing| listing.table).collect(),
            None => self.comparisons(printing).iter().map(with_statistic).collect(),
        };
        let first = if printing.listing.is_some() { "run" } else { "table" };
        let mut all = Table::default();
        for table in tables {
            let name = Column { heading: first.to_owned(), key: first.to_owned() };
            all.columns = std::iter::once(name).chain(table.columns).collect();
            for row in table.rows {
                all.rows
                    .push(std::iter::once(Value::from(table.title.as_str())).chain(row).collect());
            }
        }
        all.csv()
    }

    fn json(&self, printing: &Printing) -> Result<String, Failure> {
        let table = |table: &Table| -> Result<Json, Failure> {
            serde_json::from_str(&table.json()).map_err(|e| Failure::internal(e.to_string()))
        };
        let comparisons = self.comparisons(printing);
        let tables: Result<Vec<Json>, Failure> =
            comparisons.iter().map(|c| table(&c.table(Detail::All))).collect();
        let listings: Result<Vec<Json>, Failure> = self
            .listings(printing)
            .iter()
            .map(|l| Ok(json!({ "run": l.title, "vmstat": table(&l.table)?, "time": l.time, "note": l.hint })))
            .collect();
        let run = |record: &Record| json!({ "identity": record.identity().to_string(), "inputs": record.inputs });
        let variant = |variant: &Variant| {
            let runs: Vec<Json> = variant.records.iter().map(run).collect();
            json!({ "label": variant.label, "runs": runs })
        };
        let value = json!({
            "program": VERSION,
            "command": self.command,
            "verdict": self.findings(),
            "notes": self.notes(&comparisons),
            "variants": self.variants.iter().map(variant).collect::<Vec<_>>(),
            "differences": table(&self.differences())?,
            "tables": tables?,
            "listings": listings?,
        });
        Ok(format!("{value:#}\n"))
    }

    /// The experiments, with their scale.
    pub(crate) fn title(&self) -> String {
        let all = self.variants.iter().flat_map(|variant| &variant.records);
        let titles: BTreeSet<String> = all.map(|record| title(&record.inputs)).collect();
        titles.into_iter().collect::<Vec<_>>().join(", ")
    }

    fn html(&self, printing: &Printing) -> Result<String, Failure> {
        let groups = self.groups();
        // A run that stands in two columns has one map, which both show.
        let shown: BTreeMap<Identity, &Record> =
            shown_runs(&groups).into_iter().map(|record| (record.identity(), record)).collect();
        let maps: Vec<Map<'_>> =
            shown.iter().flat_map(|(run, record)| maps(*run, record)).collect();
        let page = Page {
            title: &self.title(),
            command: &self.command,
            groups: &groups,
            form: self.published(printing).map_or(Form::default(), |published| published.form),
            maps: &maps,
        };
        highorder_page::render(&page).map_err(|error| Failure::internal(error.to_string()))
    }

    fn listings(&self, printing: &Printing) -> Vec<Listing> {
        let Some(seconds) = printing.listing else { return Vec::new() };
        let interval_ns = (seconds * 1e9).round() as u64;
        let of_record = |record: &Record| {
            let listing = vmstat_listing(record, interval_ns);
            let title = record.inputs.readable_name();
            let table = Table { title: title.clone(), ..listing.table() };
            let hint = listing::too_coarse(record, interval_ns);
            Listing { title, text: listing.text(), time: time_lines(record), table, hint }
        };
        self.variants.iter().flat_map(|variant| &variant.records).map(of_record).collect()
    }
}

/// The verdict before everything else; nothing if there is none.
pub(crate) fn verdict_text(findings: &Findings) -> String {
    let lines: String = findings.lines().iter().map(|line| format!("{line}\n")).collect();
    if lines.is_empty() { lines } else { format!("Verdict\n\n{lines}\n") }
}

/// The same as lists in Markdown.
pub(crate) fn verdict_markdown(findings: &Findings) -> String {
    let mut text = String::new();
    for paragraph in &findings.text {
        text.push_str(&format!("- {}\n", paragraph.text));
        paragraph.items.iter().for_each(|item| text.push_str(&format!("  - {item}\n")));
    }
    if text.is_empty() { text } else { format!("**Verdict**\n\n{text}\n") }
}

/// One run as vmstat(8) and time(1) show it.
struct Listing {
    title: String,
    text: String,
    time: String,
    table: Table,
    /// What a reader should know of it.
    hint: Option<String>,
}

/// A comparison's table with the column `statistic`, which those without statistics lack.
fn with_statistic(comparison: &Comparison) -> Table {
    let mut table = comparison.table(Detail::All);
    if table.columns.first().is_none_or(|column| column.key != "statistic") {
        let column = Column { heading: "statistic".to_owned(), key: "statistic".to_owned() };
        table.columns.insert(0, column);
        table.rows.iter_mut().for_each(|row| row.insert(0, Value::from("")));
    }
    table
}

/// The record's pictures of memory: at a moment, and over time.
fn maps(run: Identity, record: &Record) -> impl Iterator<Item = Map<'_>> {
    let of = |name: &str, description| {
        let svg = record.pictures.get(name)?;
        Some(Map { run, description, image: Image::Svg(svg) })
    };
    let held = "What every page of memory holds while the workload's memory is mapped";
    let end = "What every page of memory holds when the workload has ended";
    let at_a_moment = of(Moment::Held.picture(), held).or_else(|| of(Moment::End.picture(), end));
    let over_time = of(BLOCK_LIVES, "What became of pageblocks over time");
    at_a_moment.into_iter().chain(over_time)
}

/// An experiment with its scale, where that is not 1.
fn title(inputs: &Inputs) -> String {
    let scale = inputs.scale;
    match scale == Scale::default() {
        true => inputs.experiment.clone(),
        false => format!("{} at scale {scale}", inputs.experiment),
    }
}

/// Where records come from, as one would say it: those of one variant differ only in threads and seed.
fn origin(records: &[Record]) -> String {
    let Some(inputs) = records.first().map(|record| &record.inputs) else {
        return "no runs".to_owned();
    };
    let of = |value: &str, text: String| if value.is_empty() { String::new() } else { text };
    let number = |record: &Record| record.inputs.workload.values.get("threads")?.parse().ok();
    let threads: BTreeSet<u64> = records.iter().filter_map(number).collect();
    let seeds: BTreeSet<u64> = records.iter().map(|record| record.inputs.seed).collect();
    let kernel = inputs.kernel.values.get("kernel").unwrap_or(&inputs.kernel.name);
    let parts = [
        counted(records.len() as u64, "run"),
        of(&inputs.experiment, format!("experiment {}", inputs.experiment)),
        of(&inputs.machine.name, format!("{} at scale {}", inputs.machine.name, inputs.scale)),
        of(kernel, format!("kernel {kernel}")),
        of(&inputs.workload.name, format!("workload {}", inputs.workload.name)),
        range("threads", &threads),
        range(if seeds.len() == 1 { "seed" } else { "seeds" }, &seeds),
        of(&inputs.program_version, format!("highorder {}", inputs.program_version)),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// `threads 1, 4 and 7` is `threads 1 4 7`; what comes without a gap is `seeds 1-4`.
fn range(what: &str, numbers: &BTreeSet<u64>) -> String {
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
        return String::new();
    };
    if numbers.len() > 2 && last - first + 1 == numbers.len() as u64 {
        return format!("{what} {first}-{last}");
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("{what} {}", numbers.join(" "))
}

/// The values behind a variant's runs, but for those by which its runs differ among each other.
fn values(records: &[Record]) -> BTreeMap<String, String> {
    let Some(record) = records.first() else { return BTreeMap::new() };
    let Inputs { source, machine, kernel, workload, scale, program_version, .. } = &record.inputs;
    let mut values = BTreeMap::new();
    for (kind, named) in [("machine", machine), ("kernel", kernel), ("workload", workload)] {
        let own = |key: &str| matches!((kind, key), ("workload", "threads" | "captured"));
        let of_kind = named.values.iter().filter(|(key, _)| !own(key));
        values.extend(of_kind.map(|(key, value)| (format!("{kind} {key}"), value.clone())));
    }
    for (kind, named) in [("machine", machine), ("workload", workload)] {
        values.insert(kind.to_owned(), named.name.clone());
    }
    let source = match source {
        Source::Model => "the model",
        Source::Host => "this machine's kernel",
        Source::Vm => "a virtual machine's kernel",
        Source::Foreign => "captures",
    };
    values.insert("run by".to_owned(), source.to_owned());
    values.insert("scale".to_owned(), scale.to_string());
    values.insert("highorder".to_owned(), program_version.clone());
    values
}
