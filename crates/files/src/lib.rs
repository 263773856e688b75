//! Files that users name: how each is opened, how much of it is read, and how one is written.
//!
//! A user may name anything: a device, a pipe, a folder, a symbolic link, a file of terabytes. Two
//! promises hold for all of it:
//!
//! - **Nothing is destroyed.** [`Destination`] puts a whole file under a free name, or in the place of a
//!   regular file if that is allowed. Pipes and character devices are written into. All else is refused,
//!   and [`Destination::new`] refuses it before any work is done.
//! - **Nothing is read without end.** [`open`] opens regular files and pipes alone, and each reader has a
//!   limit from the table in [`limits`].

mod folder;
mod input;
pub mod limits;
mod lock;
mod output;

pub use folder::{FolderError, own_folder};
pub use input::{Limited, ReadError, check_readable, open, open_within, read, read_text};
pub use limits::Limit;
pub use lock::lock_holder;
pub use output::{Destination, Replace, WriteError, check_folder, make_folder, write};
