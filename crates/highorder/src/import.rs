//! `highorder import`: results of mmtests become records.

use crate::compare::DEFAULT_STORE;
use crate::failure::Failure;
use crate::output;
use highorder_record::{Put, Store, read_mmtests};
use std::path::PathBuf;

/// What to import, and where to.
#[derive(clap::Args)]
#[command(after_help = "\
FOLDER is what run-mmtests.sh NAME left: the folder NAME of its log folder, with iter-0, iter-1 ...; one of \
these; or the log folder itself as it was before 2019, with tests-timestamp-NAME and BENCHMARK-NAME.

Each benchmark of each repetition becomes a record: the counters before and after, and the times. Of \
usemem, thpscale, thpfioscale and stutter the results are read as well. `highorder compare NAME` then \
shows it, beside runs of the model for one.

Examples:
  highorder import work/log/usemem-test
  highorder import work/log --store records")]
pub(crate) struct Arguments {
    /// The results
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
}

/// Reads all, then stores them, and says how each can be named.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let records =
        read_mmtests(&arguments.folder).map_err(|error| Failure::input(error.to_string()))?;
    let store = Store::open(&arguments.store)?;
    let mut text = String::new();
    for record in &records {
        let is_new = store.put(record)? == Put::Added;
        let was_there = if is_new { "" } else { " (was there)" };
        let (id, name) = (record.identity().to_string(), record.inputs.readable_name());
        text.push_str(&format!("{} {name}{was_there}\n", &id[..8]));
    }
    output::print(text.as_bytes())
}
