//! What one run leaves: records, the store that keeps them, statistics, and tables that compare.
//!
//! - [`record`]: a run's [`Record`], with [`latencies`] and a [`timeline`]; its [`Identity`] is a hash
//!   of everything that determined the run.
//! - [`store`]: a folder of records as JSON and Parquet, which survives being killed.
//! - [`foreign`]: records of real kernels, from folders of `/proc` captures.
//! - [`stats`]: means, percentiles and signed percentages as the field prints them; [`vmstat_rows`]: what
//!   its reports make of `/proc/vmstat`.
//! - [`end_state`]: what state memory was left in; [`identical`]: variants whose runs came out alike.
//! - [`noise`]: whether a difference is more than noise; [`killed`]: which runs the OOM killer cut short.
//! - [`verdict`]: what a comparison says, in a few plain sentences.
//! - [`published`]: the form of published tables; [`score`]: what they say, and whether runs say it too.
//! - [`compare`]: groups of records side by side; [`matrix`]: many variants in one table; [`listing`]: one as vmstat(8) and time(1) show it.
//!
//! Nothing here reads a clock. Equal records give equal bytes, and equal arguments equal tables.

pub mod compare;
pub mod end_state;
pub mod ended;
pub mod foreign;
pub mod identical;
pub mod killed;
pub mod latencies;
pub mod listing;
pub mod matrix;
pub mod mmtests;
pub mod noise;
pub mod published;
mod published_rows;
pub mod record;
pub mod score;
pub mod stats;
pub mod store;
mod tables;
pub mod timeline;
pub mod verdict;
pub mod vmstat_rows;

pub use compare::{Comparison, Group};
pub use end_state::EndState;
pub use foreign::{read_foreign, read_proc};
pub use identical::Identical;
pub use latencies::Latencies;
pub use listing::{time_lines, vmstat_listing};
pub use mmtests::read_mmtests;
pub use published::PublishedForm;
pub use record::{
    Durations, Identity, Inputs, Metric, Named, PageblockUse, Record, Scale, Source, State,
    ZoneState,
};
pub use stats::{Better, Sorted, Statistic};
pub use store::{Entry, Put, Store, StoreError};
pub use timeline::{Timeline, TimelineColumn, TimelineValues};
pub use vmstat_rows::Form;
