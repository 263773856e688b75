//! Kernel files, recordings and their replay.

pub mod error;
pub mod free_running;
pub mod future;
pub mod kernel_file;
pub mod lockstep;
pub mod machine;
pub mod recording;

pub use error::InputError;
pub use kernel_file::Kernel;
pub use recording::Recording;
