//! What runs on real kernels are given on the command line.

use clap::ValueEnum;
use highorder_lab::RealOptions;
use highorder_real::Accel;
use highorder_sim::Ns;
use std::path::PathBuf;

/// Where it is kept what settings of this machine were: gone when it starts anew, as they are.
pub(crate) const STATE_FOLDER: &str = "/run/highorder";

/// Who executes a guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelWord {
    /// QEMU: slow, and needs no rights
    #[default]
    Tcg,
    /// The CPU, through /dev/kvm
    Kvm,
}

/// How guests are run.
#[derive(clap::Args)]
#[command(next_help_heading = "Guests")]
pub(crate) struct Guests {
    /// Who executes a guest's instructions
    #[arg(long, value_enum, value_name = "ACCEL", default_value_t = AccelWord::Tcg)]
    accel: AccelWord,
    /// Count a guest's time in instructions (tcg only): runs become nearly repeatable
    #[arg(long)]
    icount: bool,
    /// End a guest that takes longer; then there is no record. One whose kernel has not come up in a
    /// twelfth of it, but a minute, is started again, twice at most
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    guest_timeout: u64,
    /// Where files lie: guests' disks, without a name [default: where temporary files do]; and those of a
    /// workload on the host, which without it has none, in a folder that is gone afterwards
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Guests {
    /// What a run is given of these.
    pub(crate) fn options(&self) -> RealOptions {
        let mut options = RealOptions {
            accel: match self.accel {
                AccelWord::Tcg => Accel::Tcg,
                AccelWord::Kvm => Accel::Kvm,
            },
            icount: self.icount,
            guest_time: Ns::from_secs(self.guest_timeout),
            ..RealOptions::default()
        };
        if let Some(folder) = &self.folder {
            options.folder.clone_from(folder);
            options.host_folder = Some(folder.clone());
        }
        options
    }

    /// Those that change results, as words of a command line, without defaults; `on_host` says whether the
    /// host is among the places.
    pub(crate) fn words(&self, on_host: bool) -> Vec<String> {
        let mut words = Vec::new();
        if self.accel == AccelWord::Kvm {
            words.extend(["--accel".to_owned(), "kvm".to_owned()]);
        }
        if self.icount {
            words.push("--icount".to_owned());
        }
        if on_host {
            // Without it there are no files on the host.
            words.extend(self.folder_words());
        }
        words
    }

    fn folder_words(&self) -> Vec<String> {
        let folder = self.folder.iter();
        folder.flat_map(|folder| ["--folder".to_owned(), folder.display().to_string()]).collect()
    }

    /// Those that change nothing but whether there are results, likewise.
    pub(crate) fn other_words(&self, on_host: bool) -> Vec<String> {
        let mut words = Vec::new();
        if self.guest_timeout != 3600 {
            words.extend(["--guest-timeout".to_owned(), self.guest_timeout.to_string()]);
        }
        if !on_host {
            words.extend(self.folder_words());
        }
        words
    }
}
