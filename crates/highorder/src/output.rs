//! What verbs print and write: standard output, progress, whole files.

use crate::failure::Failure;
use highorder_files::{Destination, Replace};
use highorder_report::raster;
use highorder_tables::Table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The program and its version, as captions have it.
pub(crate) const VERSION: &str = concat!("highorder ", env!("CARGO_PKG_VERSION"));

/// Prints to standard output. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::input(format!("standard output: cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says something on standard error, so that standard output stays what was asked for.
pub(crate) fn say(line: &str) {
    // Nobody may be listening any more: that is no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says that a file was written.
pub(crate) fn wrote(path: &Path) {
    say(&format!("wrote {}", path.display()));
}

/// Prints to standard output, unless that is where one of these destinations leads: then to standard error,
/// so that what was asked for stands alone.
pub(crate) fn print_beside<'a>(
    text: &[u8],
    written: impl IntoIterator<Item = &'a Destination>,
) -> Result<(), Failure> {
    if !written.into_iter().any(Destination::is_standard_output) {
        return print(text);
    }
    // As for `say`.
    let _ = io::stderr().write_all(text);
    Ok(())
}

/// Whether files may be replaced: an argument of each verb that writes files with names of the user's.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Force {
    /// Replace files that are there already
    #[arg(long)]
    force: bool,
}

impl Force {
    /// What may be done to files that are there.
    pub(crate) fn replace(self) -> Replace {
        Replace::forced(self.force)
    }

    /// This argument as words of a command line.
    pub(crate) fn words(self) -> Vec<String> {
        self.force.then(|| "--force".to_owned()).into_iter().collect()
    }

    /// The place that an argument names, if it is given; what cannot be written to is refused before
    /// anything runs.
    pub(crate) fn destination(self, name: Option<&Path>) -> Result<Option<Destination>, Failure> {
        Ok(name.map(|name| Destination::new(name, self.replace())).transpose()?)
    }

    /// The place of a picture, likewise.
    pub(crate) fn picture(self, name: Option<&Path>) -> Result<Option<PictureFile>, Failure> {
        name.map(|name| PictureFile::new(name, self.replace())).transpose()
    }
}

/// Writes, and says where to.
pub(crate) fn write(destination: &Destination, bytes: &[u8]) -> Result<(), Failure> {
    destination.write(bytes)?;
    wrote(destination.name());
    Ok(())
}

/// Writes files into a folder, which is made if need be as are folders in it, and says so.
pub(crate) fn write_into(
    folder: &Path,
    files: impl IntoIterator<Item = (impl AsRef<Path>, Vec<u8>)>,
    force: Force,
) -> Result<(), Failure> {
    highorder_files::make_folder(folder)?;
    for (name, bytes) in files {
        let path = folder.join(name);
        highorder_files::make_folder(path.parent().unwrap_or(folder))?;
        write(&Destination::new(path, force.replace())?, &bytes)?;
    }
    Ok(())
}

/// A file for a picture, whose ending says in which form. A pipe or a device may have any name, and gets PNG
/// unless its name ends in .svg.
pub(crate) struct PictureFile {
    destination: Destination,
    is_svg: bool,
}

impl PictureFile {
    fn new(name: &Path, replace: Replace) -> Result<Self, Failure> {
        let destination = Destination::new(name, replace)?;
        let ending = name.extension().and_then(|ending| ending.to_str());
        if destination.is_file() && !matches!(ending, Some("svg" | "png")) {
            let message = "expected a name that ends in .png or .svg";
            return Err(Failure::input(format!("{}: {message}", name.display())));
        }
        Ok(Self { destination, is_svg: ending == Some("svg") })
    }

    /// Where it is.
    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Writes it.
    pub(crate) fn write(&self, svg: &str) -> Result<(), Failure> {
        let bytes = match self.is_svg {
            true => svg.as_bytes().to_vec(),
            false => raster::png(svg, 2.0)?,
        };
        write(&self.destination, &bytes)
    }
}

/// A progress bar on standard error with `len` steps, or a spinner where that is not known. Nothing
/// is drawn unless standard error is a terminal.
pub(crate) fn progress(len: Option<u64>, what: &'static str) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = match len {
        Some(_) => "{msg} {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left",
        None => "{spinner} {msg} ({elapsed})",
    };
    let style = ProgressStyle::with_template(style).expect("the templates above are well formed");
    let bar = ProgressBar::with_draw_target(len, target).with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A value for programs, in lines.
pub(crate) fn json(value: &serde_json::Value) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|error| Failure::internal(format!("JSON: {error}")))
}

/// Tables as they stand in a document of JSON.
pub(crate) fn tables_as_json(tables: &[Table]) -> Result<Vec<serde_json::Value>, Failure> {
    let tables: Result<_, serde_json::Error> =
        tables.iter().map(|table| serde_json::from_str(&table.json())).collect();
    tables.map_err(|error| Failure::internal(error.to_string()))
}

/// A command line as it can be pasted into a shell.
pub(crate) fn shell_command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(shell_word).collect();
    quoted.join(" ")
}

fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A moment as `2026-02-28 23:59 UTC`.
pub(crate) fn utc(seconds_since_1970: u64) -> String {
    let seconds = i64::try_from(seconds_since_1970).ok();
    match seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
        Some(moment) => moment.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        None => format!("{seconds_since_1970} s after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_709_251_199), "2024-02-29 23:59 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59 UTC");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let words = ["highorder", "map", "my file", "it's", ""];
        assert_eq!(shell_command(words), r"highorder map 'my file' 'it'\''s' ''");
    }
}
