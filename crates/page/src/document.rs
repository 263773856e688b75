//! What became of a document's tables and claims as one HTML file: the score, where claims hold, each experiment's
//! variants side by side over virtual time with a map of memory beside them, and latencies. Works offline.

use crate::latency::{self, ClassPictures};
use crate::plot::{Direction, Mark, Plane, Values};
use crate::reproduction::{Section, SectionView};
use crate::timeline::{self, Timelines};
use crate::{PageError, Step, environment, heading, memory, series_class, steps, style, threads};
use highorder_record::verdict::{self, Paragraph};
use highorder_record::{Group, Record};
use highorder_report::axis::{Axis, Zero};
use highorder_report::{BLOCK_LIVES, BlockLives, UseClass};
use highorder_tables::text::{prefixed, significant};
use minijinja::value::Serde;
use serde::Serialize;

/// Thread counts of an experiment that are shown over time, at most: the least, the middle one and the most. Our choice:
/// more make the file long, and tables have them all.
const STEPS_MAX: usize = 3;
/// Ticks of a scatter's axes, about.
const TICKS: usize = 5;

/// What the page shows, top to bottom.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The heading.
    pub title: &'a str,
    /// The command that repeats it.
    pub command: &'a str,
    /// The program and its version.
    pub version: &'a str,
    /// What a reader should know, a sentence or two each.
    pub notes: &'a [String],
    /// The score and the claims.
    pub sections: &'a [Section],
    /// Claims that hold on some machines and not on others.
    pub scatters: &'a [Scatter],
    /// The experiments that repeat the document's tables.
    pub experiments: &'a [Experiment<'a>],
    /// Tables at the end, folded.
    pub appendix: &'a [Section],
}

/// An experiment, on the nominal machine.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Its name, once on a page.
    pub name: &'a str,
    /// What it does, in a line.
    pub description: &'a str,
    /// The command that runs it.
    pub command: &'a str,
    /// The variants; the first is what the others are compared with.
    pub groups: &'a [Group<'a>],
    /// Published tables with ours beside them.
    pub tables: Section,
}

/// What a claim asks about, over the unknown that decides it: a dot for each machine.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The claim's name.
    pub title: String,
    /// What was claimed.
    pub words: String,
    /// What has to be true.
    pub relation: String,
    /// The unknown, and of what its values are.
    pub x_name: String,
    /// As above.
    pub x_unit: String,
    /// The machines.
    pub dots: Vec<Dot>,
    /// The published value.
    pub published: Option<f64>,
    /// Where the unknown decides.
    pub threshold: f64,
    /// What it comes to, in a sentence.
    pub told: String,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Dot {
    /// The unknown there.
    pub x: f64,
    /// What the claim asks about.
    pub y: f64,
    /// Whether the claim holds.
    pub holds: bool,
    /// What the machine is called.
    pub name: String,
}

/// Draws the page.
///
/// # Errors
/// [`PageError::Template`]: a fault of this crate.
pub fn render(document: &Document<'_>) -> Result<String, PageError> {
    let view = View {
        kind: "reproduction",
        title: document.title,
        command: document.command,
        version: document.version,
        style: style(),
        script: include_str!("script.js"),
        verdict: &[],
        notes: document.notes,
        sections: document.sections.iter().enumerate().map(SectionView::new).collect(),
        scatters: document.scatters.iter().map(ScatterView::new).collect(),
        classes: UseClass::ALL.into_iter().map(ClassView::new).collect(),
        experiments: document.experiments.iter().map(ExperimentView::new).collect(),
        appendix: document.appendix.iter().enumerate().map(SectionView::new).collect(),
    };
    Ok(environment()?.get_template("document.html")?.render(Serde(&view))?)
}

#[derive(Serialize)]
struct View<'a> {
    kind: &'static str,
    title: &'a str,
    command: &'a str,
    version: &'a str,
    style: String,
    script: &'static str,
    verdict: &'a [Paragraph],
    notes: &'a [String],
    sections: Vec<SectionView<'a>>,
    scatters: Vec<ScatterView<'a>>,
    classes: Vec<ClassView>,
    experiments: Vec<ExperimentView<'a>>,
    appendix: Vec<SectionView<'a>>,
}

/// A colour of the map.
#[derive(Serialize)]
struct ClassView {
    letter: char,
    label: &'static str,
    colour: String,
}

impl ClassView {
    fn new(class: UseClass) -> Self {
        let swatch = class.swatch();
        Self { letter: swatch.letter, label: swatch.label, colour: swatch.colour.to_string() }
    }
}

#[derive(Serialize)]
struct ExperimentView<'a> {
    name: &'a str,
    /// In front of every name of the page that is this experiment's.
    scope: String,
    description: &'a str,
    command: &'a str,
    variants: Vec<heading::Variant>,
    findings: Vec<Paragraph>,
    tables: SectionView<'a>,
    over_threads: threads::OverThreads,
    classes: Vec<ClassPictures>,
    steps: Vec<StepView>,
}

/// What is shown of one number of threads.
#[derive(Serialize)]
struct StepView {
    id: String,
    name: String,
    timelines: Timelines,
    /// A map for each variant that has one.
    films: Vec<FilmView>,
    free_blocks: memory::FreeBlocks,
}

/// What pageblocks held from moment to moment.
#[derive(Serialize)]
struct FilmView {
    label: String,
    class: String,
    /// What is seen, for those who do not see it.
    description: String,
    /// Moments, zones and stays as JSON, which has no character that could end the element it stands in.
    json: String,
}

impl<'a> ExperimentView<'a> {
    fn new(experiment: &'a Experiment<'a>) -> Self {
        let groups = experiment.groups;
        let pooled = latency::pooled(groups);
        // What the workload timed itself comes before what the kernel's waits took.
        let mut classes = latency::pictures(groups, &pooled);
        classes.sort_by_key(|class| is_wait(&class.name));
        Self {
            name: experiment.name,
            scope: format!("{}-", experiment.name),
            description: experiment.description,
            command: experiment.command,
            variants: heading::variants(groups),
            findings: verdict::find(groups, false).text,
            tables: SectionView::new((0, &experiment.tables)),
            over_threads: threads::over_threads(groups),
            classes,
            steps: shown(&steps(groups))
                .iter()
                .enumerate()
                .map(|(number, step)| StepView::new(number, step, groups))
                .collect(),
        }
    }
}

/// Whether latencies are of waits in the kernel (`Stall::name` of the simulation, and what traces tell).
fn is_wait(class: &str) -> bool {
    class.starts_with("stall-") || class.contains("wait")
}

/// The first, the middle and the last of the steps.
fn shown<'s, 'a>(steps: &'s [Step<'a>]) -> Vec<&'s Step<'a>> {
    if steps.len() <= STEPS_MAX {
        return steps.iter().collect();
    }
    let last = steps.len() - 1;
    (0..STEPS_MAX).map(|number| &steps[number * last / (STEPS_MAX - 1)]).collect()
}

impl StepView {
    fn new(number: usize, step: &Step<'_>, groups: &[Group<'_>]) -> Self {
        let id = format!("step-{number}");
        let labels: Vec<String> = groups.iter().map(|group| group.label.clone()).collect();
        let film = |(variant, run): (usize, &Option<&Record>)| {
            let lives = BlockLives::read((*run)?.pictures.get(BLOCK_LIVES)?)?;
            Some(FilmView::new(&labels[variant], series_class(variant), &lives))
        };
        Self {
            name: step.name.clone(),
            timelines: timeline::timelines(&format!("{id}-time"), &step.runs, &labels),
            films: step.runs.iter().enumerate().filter_map(film).collect(),
            free_blocks: memory::free_blocks(&format!("{id}-memory"), groups, &step.runs),
            id,
        }
    }
}

impl FilmView {
    fn new(label: &str, class: String, lives: &BlockLives) -> Self {
        let quoted = |text: &str| format!("\"{}\"", text.replace(['"', '\\', '<'], " "));
        let seconds: Vec<String> = lives.seconds.iter().map(ToString::to_string).collect();
        let zones: Vec<String> = lives
            .zones
            .iter()
            .map(|zone| {
                let rows: Vec<String> = zone.stays().map(|stays| quoted(&stays)).collect();
                format!("{{\"name\":{},\"rows\":[{}]}}", quoted(&zone.name), rows.join(","))
            })
            .collect();
        let nr: usize = lives.zones.iter().map(|zone| zone.blocks.len()).sum();
        let end = lives.seconds.last().copied().unwrap_or(0.0);
        Self {
            label: label.to_owned(),
            class,
            description: format!(
                "{label}: what {nr} pageblocks hold, {} moments in {} s",
                lives.seconds.len(),
                significant(end)
            ),
            json: format!(
                "{{\"seconds\":[{}],\"zones\":[{}]}}",
                seconds.join(","),
                zones.join(",")
            ),
        }
    }
}

/// A scatter as the template draws it.
#[derive(Serialize)]
struct ScatterView<'a> {
    title: &'a str,
    words: &'a str,
    relation: &'a str,
    told: &'a str,
    label: String,
    x: Direction,
    y: Direction,
    x_label: String,
    marks: Vec<Mark>,
}

impl<'a> ScatterView<'a> {
    fn new(scatter: &'a Scatter) -> Self {
        let dots = &scatter.dots;
        let xs = dots.iter().map(|dot| dot.x).chain([scatter.threshold]);
        let ys = dots.iter().map(|dot| dot.y).chain(scatter.published);
        let x = roomy(Axis::linear(xs, TICKS, Zero::Free));
        let y = roomy(Axis::linear(ys.filter(|y| y.is_finite()), TICKS, Zero::Free));
        let plane = Plane { x: &x, y: &y };
        let of = |holds: bool| -> Vec<(f64, f64)> {
            dots.iter().filter(|dot| dot.holds == holds).map(|dot| (dot.x, dot.y)).collect()
        };
        let mark = |class: &str, d: String| Mark { class: class.to_owned(), d };
        let mut marks = Vec::new();
        if let Some(share) = x.share(scatter.threshold) {
            let at = (share * highorder_report::plane::UNITS).round();
            marks.push(mark(
                "line threshold",
                format!("M{at} 0V{}", highorder_report::plane::UNITS),
            ));
        }
        if let Some(published) = scatter.published {
            marks.push(mark("line published", plane.line(&[], &Values::Constant(published))));
        }
        // A ring: a dot with a hole.
        marks.push(mark("dots fails", plane.dots(&of(false))));
        marks.push(mark("dots hole", plane.dots(&of(false))));
        marks.push(mark("dots holds", plane.dots(&of(true))));
        let texts = |axis: &Axis| -> Vec<String> {
            axis.ticks.iter().map(|tick| prefixed(*tick)).collect()
        };
        let said = dots.iter().map(|dot| {
            let verb = if dot.holds { "holds" } else { "fails" };
            format!("{} at {}: {}, {verb}", dot.name, significant(dot.x), significant(dot.y))
        });
        Self {
            title: &scatter.title,
            words: &scatter.words,
            relation: &scatter.relation,
            told: &scatter.told,
            label: format!(
                "{} over {}. {}",
                scatter.title,
                scatter.x_name,
                said.collect::<Vec<_>>().join("; ")
            ),
            x: Direction::new(&x, &texts(&x), false, 0.08),
            y: Direction::new(&y, &texts(&y), true, 0.0),
            x_label: format!("{} ({})", scatter.x_name, scatter.x_unit),
            marks,
        }
    }
}

/// The axis with a little room at both ends, so that no dot lies on the edge.
fn roomy(axis: Axis) -> Axis {
    let (low, high) = axis.range;
    let room = 0.04 * (high - low);
    Axis { range: (low - room, high + room), ..axis }
}
