//! What users give: files, what is wrong with them and where, and what was probably meant.
//!
//! All readers of the workspace refuse what they cannot use with one type, [`InputError`]: a list of problems, each
//! with its file, its line, what was found and what was expected. Files of values are TOML:
//!
//! - [`Source`] is a text with its path, which turns places into lines; [`read_toml`] reads one.
//! - [`Kind`] finds a file by its path or by the name of one that comes with the program, and what it is based on.
//! - [`Layers`] lays a file over those that it is based on, so that every value knows where it is written.
//! - [`commented_values`] gives values with the comments beside them.
//! - [`expected`] and its like say what a misspelt name was probably meant to be.

mod based;
mod comments;
mod fence;
pub mod layers;
mod names;
mod printable;
mod problem;

pub use based::{Kind, Source, is_path, read_toml};
pub use comments::{Commented, commented_values};
pub use fence::{fenced, is_fenced};
pub use layers::Layers;
pub use names::{did_you_mean, expected, expected_or_file, nearest, shortened};
pub use printable::{is_harmless, printable};
pub use problem::{InputError, Problem, quote};
