//! What a seed draws.

use highorder_kernels::KernelFile;
use highorder_model::knobs;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A run, as an experiment and a machine file tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Where it is from.
    pub seed: u64,
    kernel: String,
    /// MiB and CPUs of the nodes; the first has both.
    first_node: (u64, u64),
    workload: String,
    /// What can be left out, and the rest is still a run.
    pieces: Vec<Piece>,
}

/// What can be left out of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A node besides the first: MiB and CPUs.
    Node(u64, u64),
    /// Lines of the machine's disk.
    Disk(String),
    /// A line of the variant, such as its swap.
    Variant(String),
    /// A knob and its value.
    Knob(&'static str, String),
    /// A demand's lines.
    Demand(String),
}

/// A parameter, and values of which one is drawn.
type Choices = (&'static str, &'static [&'static str]);

const ADVICE: Choices = ("advice", &["\"none\"", "\"huge\"", "\"no-huge\""]);

/// Workloads with parameters that end in a moment on machines of some hundred MiB.
const WORKLOADS: &[(&str, &[Choices])] = &[
    (
        "churn",
        &[
            ("live", &["0.3", "0.8", "1.1"]),
            ("operations", &["100", "1000"]),
            ("threads", &["1", "3"]),
            ("area_max", &["\"1 MiB\"", "\"8 MiB\""]),
            ADVICE,
        ],
    ),
    ("dd", &[("size", &["0.3", "1.5", "\"2 GiB\""]), ("reads", &["0", "1"])]),
    (
        "fleet",
        &[
            ("seconds", &["10", "30"]),
            ("period_ms", &["1000"]),
            ("anon", &["0.3", "0.7"]),
            ("files", &["0.2", "0.5"]),
            ("tree", &["0.05"]),
            ("file_size", &["\"4 MiB\""]),
            ("small_files", &["50", "400"]),
            ("small_file_turnover", &["8", "64"]),
            ("anon_turnover", &["\"8 MiB\""]),
            ("file_turnover", &["\"8 MiB\""]),
            ("threads", &["1", "3"]),
            ADVICE,
        ],
    ),
    (
        "fsmark",
        &[
            ("file_size", &["\"100 KiB\"", "\"2 MiB\""]),
            ("iterations", &["1", "2"]),
            ("memory", &["0.2", "0.6"]),
            ("threads_per_cpu", &["1", "2"]),
        ],
    ),
    ("memhog", &[("memory", &["0.5", "0.9", "1.3"]), ("hold_seconds", &["1"]), ADVICE]),
    ("micro", &[("memory", &["0.3", "0.9"]), ("processes_per_cpu", &["1", "2"])]),
    (
        "mmap-demo",
        &[
            ("memory", &["0.3", "0.8", "1.2"]),
            ("passes", &["1", "2"]),
            ("fragment", &["0", "30"]),
            ("fragment_with", &["\"pinned\"", "\"anon\"", "\"file\""]),
            ADVICE,
        ],
    ),
    (
        "postmark",
        &[
            ("memory", &["0.1", "0.4"]),
            ("size_max", &["\"100 KiB\""]),
            ("transactions", &["100", "400"]),
            ("subdirectories", &["4"]),
        ],
    ),
    (
        "small-files",
        &[
            ("memory", &["0.2", "0.8"]),
            ("file_size", &["\"16 KiB\"", "\"128 KiB\""]),
            ("read_seconds", &["1"]),
            ("writers", &["1", "3"]),
            ("unlink", &["\"all\"", "\"half\"", "\"none\""]),
        ],
    ),
    (
        "stress-highalloc",
        &[
            ("memory", &["0.5", "0.9"]),
            ("passes", &["1"]),
            ("pause_seconds", &["0", "1"]),
            ("rest_seconds", &["1"]),
            ("warm_seconds", &["1"]),
            ("unit_ms", &["10"]),
            ("rate", &["\"64 MiB\""]),
            ("order", &["3", "9", "10"]),
            ("rested", &["\"yes\"", "\"no\""]),
        ],
    ),
    (
        "stutter",
        &[
            ("file", &["0.4"]),
            ("hog", &["0.4", "0.9"]),
            ("mapping", &["\"4 MiB\""]),
            ("rounds", &["1", "2"]),
            ADVICE,
        ],
    ),
    (
        "thpfioscale",
        &[
            ("area", &["40", "120"]),
            ("memory", &["0.3", "0.8"]),
            ("file_size", &["\"64 KiB\""]),
            ("read_seconds", &["1"]),
            ("writers", &["1", "2"]),
            ("threads", &["1", "2"]),
            ADVICE,
        ],
    ),
    ("thpscale", &[("memory", &["0.3", "0.8"]), ("threads", &["1", "3"]), ADVICE]),
    (
        "usemem",
        &[
            ("memory", &["0.4", "0.9", "1.2"]),
            ("file", &["0.0", "0.5"]),
            ("passes", &["1", "2"]),
            ("threads", &["1", "3"]),
            ADVICE,
        ],
    ),
];

/// What is drawn from.
struct Dice(Pcg64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// True once in so many times.
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

impl Scenario {
    /// What this seed draws.
    ///
    /// # Panics
    /// A kernel that comes with the program is no kernel.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(Pcg64::seed_from_u64(seed));
        let kernel = (*dice.one_of(&highorder_kernels::names())).to_owned();
        let first_node = (*dice.one_of(&[96, 128, 200, 300]), *dice.one_of(&[1, 2, 4]));
        let mut workload = String::new();
        let (name, parameters) = *dice.one_of(WORKLOADS);
        writeln!(workload, "name = \"{name}\"").expect("a text takes all");
        for (key, values) in parameters {
            writeln!(workload, "{key} = {}", dice.one_of(values)).expect("a text takes all");
        }
        let mut pieces = Vec::new();
        for _ in 0..*dice.one_of(&[0, 0, 0, 1, 2]) {
            pieces.push(Piece::Node(*dice.one_of(&[32, 64, 160]), *dice.one_of(&[0, 1, 2])));
        }
        pieces.extend(dice.disk());
        if !dice.one_in(3) {
            pieces.push(Piece::Variant(format!("swap_mib = {}", dice.one_of(&[0, 1, 8, 64, 400]))));
        }
        dice.add_knobs(&KernelFile::load(&kernel).expect("it comes with the program"), &mut pieces);
        for _ in 0..*dice.one_of(&[0, 0, 1, 2]) {
            pieces.push(Piece::Demand(dice.demand()));
        }
        Self { seed, kernel, first_node, workload, pieces }
    }

    /// What can be left out.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The same without these pieces, by number.
    #[must_use]
    pub fn without(&self, dropped: &[usize]) -> Self {
        let pieces = self.pieces.iter().enumerate().filter(|(number, _)| !dropped.contains(number));
        Self { pieces: pieces.map(|(_, piece)| piece.clone()).collect(), ..self.clone() }
    }

    /// The machine file.
    #[must_use]
    pub fn machine(&self) -> String {
        let mut text = "based_on = \"guest-tcg\"\ndescription = \"drawn\"\n".to_owned();
        let nodes = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Node(mib, cpus) => Some((*mib, *cpus)),
            _ => None,
        });
        for (mib, cpus) in [self.first_node].into_iter().chain(nodes) {
            text.push_str(&format!("\n[[node]]\nmemory_mib = {mib}\ncpus = {cpus}\n"));
        }
        for piece in &self.pieces {
            if let Piece::Disk(lines) = piece {
                text.push_str(&format!("\n[[disk]]\nsource = \"drawn\"\n{lines}"));
            }
        }
        text
    }

    /// The experiment, which names the machine file `machine.toml`.
    #[must_use]
    pub fn experiment(&self) -> String {
        let Self { seed, kernel, workload, .. } = self;
        let mut text = format!(
            "description = \"drawn from seed {seed}\"\nmachine = \"machine.toml\"\nseed = {seed}\n\
             sample_interval_ms = 100\n\n[workload]\n{workload}"
        );
        let mut variant = format!("\n[[variant]]\nkernel = \"{kernel}\"\n");
        let mut settings = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Demand(lines) => text.push_str(&format!("\n[[demand]]\n{lines}")),
                Piece::Variant(line) => variant.push_str(&format!("{line}\n")),
                Piece::Knob(name, value) => {
                    settings.push_str(&format!("\"{name}\" = \"{value}\"\n"));
                }
                Piece::Node(..) | Piece::Disk(_) => {}
            }
        }
        text.push_str(&variant);
        if !settings.is_empty() {
            text.push_str(&format!("[variant.knobs]\n{settings}"));
        }
        text
    }

    /// Writes both into a folder and returns the experiment's path.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::write(folder.join("machine.toml"), self.machine())?;
        let path = folder.join("experiment.toml");
        fs::write(&path, self.experiment())?;
        Ok(path)
    }
}

impl Dice {
    /// Another disk than the base's: small queues, other times, in the range of what there is.
    fn disk(&mut self) -> Option<Piece> {
        if self.one_in(2) {
            return None;
        }
        let mut lines = format!(
            "capacity_gb = {}\nnr_requests = {}\nmax_request_kib = {}\nfilesystem = \"{}\"\n",
            self.one_of(&[2, 8]),
            self.one_of(&[4, 128, 1024]),
            self.one_of(&[64, 128, 1280]),
            self.one_of(&["ext4", "xfs"])
        );
        if self.one_in(2) {
            let mut times = || {
                format!(
                    "{{ access_ns = {}, command_ns = {}, bytes_per_second = {} }}",
                    self.one_of(&[0, 50_000, 1_000_000]),
                    self.one_of(&[0, 100_000]),
                    self.one_of(&[5_000_000, 100_000_000, 4_000_000_000_u64])
                )
            };
            let (read, write) = (times(), times());
            let depth = self.one_of(&[1, 32]);
            lines.push_str(&format!(
                "[disk.flash]\nqueue_depth = {depth}\nread = {read}\nwrite = {write}\n"
            ));
        }
        Some(Piece::Disk(lines))
    }

    /// Up to six knobs that this kernel has, often at the ends of their ranges.
    fn add_knobs(&mut self, kernel: &KernelFile, pieces: &mut Vec<Piece>) {
        for _ in 0..self.below(7) {
            let knob = self.one_of(knobs());
            let is_there =
                pieces.iter().any(|p| matches!(p, Piece::Knob(name, _) if *name == knob.name));
            let Some(value) = knob.on(&kernel.release, &kernel.policy, &kernel.flows) else {
                continue;
            };
            if is_there {
                continue;
            }
            let drawn = match value.allowed.strip_prefix("a whole number, ") {
                Some(range) => self.within(range),
                None => {
                    let words: Vec<&str> = value.allowed.split(", ").collect();
                    (*self.one_of(&words)).to_owned()
                }
            };
            pieces.push(Piece::Knob(knob.name, drawn));
        }
    }

    /// A number of a range such as `0..=200`: its ends, or one between, small ones more often.
    fn within(&mut self, range: &str) -> String {
        let (least, most) = range.split_once("..=").expect("a range");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (least, most) = (number(least), number(most));
        let shift = self.below(40) as u32;
        match self.below(4) {
            0 => least,
            1 => most,
            _ => least + ((most - least) >> shift),
        }
        .to_string()
    }

    fn demand(&mut self) -> String {
        let kind = *self.one_of(&[
            "kernel-stack",
            "network-buffer",
            "page-table",
            "pipe",
            "module",
            "object",
        ]);
        let mut lines = format!(
            "kind = \"{kind}\"\nrate_per_s = {}\nlifetime_s = {}\n",
            self.one_of(&["0.5", "20.0", "100.0"]),
            self.one_of(&["0.1", "2.0", "100.0"])
        );
        match kind {
            "object" => lines.push_str(&format!("size = {}\n", self.one_of(&[1, 192, 4096, 8192]))),
            "kernel-stack" => {}
            _ => lines.push_str(&format!("order = {}\n", self.below(4))),
        }
        if kind != "kernel-stack" {
            lines.push_str(&format!("gfp = \"{}\"\n", self.one_of(&["sleeping", "atomic"])));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_lab::Experiment;

    #[test]
    fn whatever_is_drawn_lies_within_the_documented_limits() {
        for seed in 0..400 {
            let scenario = Scenario::draw(seed);
            assert_eq!(scenario, Scenario::draw(seed), "seed {seed}");
            let folder = tempfile::tempdir().unwrap();
            let path = scenario.write(folder.path()).unwrap();
            let experiment = Experiment::load(path.to_str().unwrap());
            let files = || format!("{}\n{}", scenario.machine(), scenario.experiment());
            experiment.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", files()));
        }
    }

    #[test]
    fn a_scenario_without_pieces_is_still_one() {
        let scenario = Scenario::draw(7);
        let all: Vec<usize> = (0..scenario.pieces().len()).collect();
        let bare = scenario.without(&all);
        assert!(bare.pieces().is_empty());
        assert!(bare.experiment().contains("[[variant]]") && bare.machine().contains("[[node]]"));
    }
}
