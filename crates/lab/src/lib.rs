//! Kernel files, recordings and their replay.

pub mod error;
pub mod kernel_file;
pub mod machine;
pub mod recording;

pub use error::InputError;
pub use kernel_file::Kernel;
pub use recording::Recording;
