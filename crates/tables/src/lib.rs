//! Tables and numbers for people and programs.
//!
//! [`table`] prints rows as text, Markdown, CSV or JSON; [`text`] has numbers, sizes and shares as people read them.
//! Pictures of the same numbers are the crate `report`'s.

pub mod table;
pub mod text;

pub use table::{Column, Table, Value, multiple};
