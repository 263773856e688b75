//! What the tests that boot guests share: where their kernels are kept, and the program that is a guest's process 1.

use crate::vm;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `tests/guest/setup.sh` keeps kernels: `$HIGHORDER_CACHE`, or else a folder of its own.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("HIGHORDER_CACHE")
        .map_or_else(|| PathBuf::from("/tmp/highorder-cache"), PathBuf::from)
}

/// The program that is the process 1 of a test's guest: an example of the test's crate.
///
/// # Errors
/// Why there can be no guest, in words: QEMU does not run, or the example is not built.
///
/// # Panics
/// If this is no test that cargo has built.
pub fn program(example: &str) -> Result<PathBuf, String> {
    let found = Command::new(vm::QEMU).arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err(format!("{} does not run", vm::QEMU));
    }
    // Tests lie in `deps`, beside `examples`.
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = test.parent().and_then(Path::parent).expect("a test lies in a folder of cargo's");
    let program = folder.join("examples").join(example);
    match program.is_file() {
        true => Ok(program),
        false => Err(format!(
            "there is no {}: cargo build --example {example} makes it",
            program.display()
        )),
    }
}

/// A Debian kernel that is kept there.
///
/// # Errors
/// There is none, in words.
pub fn kernel(release: &str) -> Result<vm::Image, String> {
    let image = cache().join(release).join("vmlinuz");
    match image.is_file() {
        true => Ok(vm::Image::Debian(release.to_owned())),
        false => Err(format!("there is no {}", image.display())),
    }
}
