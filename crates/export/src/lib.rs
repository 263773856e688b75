//! Runs, recordings and states in the forms that other tools read.
//!
//! [`texts`] makes files of `/proc` of a state, [`openmetrics`] metrics of these files under node_exporter's names,
//! [`perfetto`] a trace for Perfetto's interface of events or of a run's counters, and [`mmtests`] a result folder for
//! mmtests' compare script. Everything is made in memory; who asks writes it.

pub mod mmtests;
pub mod openmetrics;
pub mod perfetto;
pub mod texts;

pub use texts::Texts;
