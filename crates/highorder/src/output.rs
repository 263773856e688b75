//! What verbs print and write: standard output, progress, whole files.

use crate::failure::Failure;
use highorder_report::raster;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::Permissions;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
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

/// Whether a file that is there already may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// Yes: it can be made again.
    Yes,
    /// No: that is an error.
    No,
}

/// Writes a file that everyone may read as far as the umask allows. It appears whole under its name,
/// or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8], replace: Replace) -> Result<(), Failure> {
    write_with_mode(path, bytes, replace, 0o666)
}

/// A file for a picture, whose ending says in which form; wrong ones are refused before anything runs.
pub(crate) enum PictureFile<'a> {
    /// SVG.
    Svg(&'a Path),
    /// PNG.
    Png(&'a Path),
}

impl<'a> PictureFile<'a> {
    /// The file of this name.
    pub(crate) fn new(path: &'a Path) -> Result<Self, Failure> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Ok(Self::Svg(path)),
            Some("png") => Ok(Self::Png(path)),
            _ => {
                let message = "expected a name that ends in .png or .svg";
                Err(Failure::input(format!("{}: {message}", path.display())))
            }
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, svg: &str) -> Result<(), Failure> {
        let (path, bytes) = match self {
            Self::Svg(path) => (path, svg.as_bytes().to_vec()),
            Self::Png(path) => (path, raster::png(svg, 2.0)?),
        };
        write_file(path, &bytes, Replace::Yes)?;
        wrote(path);
        Ok(())
    }
}

/// Writes a file that only its owner may read; otherwise as [`write_file`].
pub(crate) fn write_private_file(
    path: &Path,
    bytes: &[u8],
    replace: Replace,
) -> Result<(), Failure> {
    write_with_mode(path, bytes, replace, 0o600)
}

fn write_with_mode(path: &Path, bytes: &[u8], replace: Replace, mode: u32) -> Result<(), Failure> {
    let written = (|| {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = tempfile::Builder::new()
            .prefix(".highorder-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        match replace {
            Replace::Yes => file.persist(path),
            Replace::No => file.persist_noclobber(path),
        }
        .map_err(|error| error.error)
    })();
    match written {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::input(format!("{}: cannot write: {error}", path.display()))),
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
    let (days, rest) = (seconds_since_1970 / 86_400, seconds_since_1970 % 86_400);
    let (year, month, day) = date_of(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

/// Year, month and day so many days after 1970-01-01, in the Gregorian calendar.
fn date_of(days: u64) -> (u64, u64, u64) {
    let is_leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    let (mut year, mut day) = (1970, days);
    loop {
        let in_year = if is_leap(year) { 366 } else { 365 };
        if day < in_year {
            break;
        }
        day -= in_year;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for in_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < in_month {
            break;
        }
        day -= in_month;
        month += 1;
    }
    (year, month, day + 1)
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

    #[test]
    fn a_file_is_replaced_only_where_that_is_allowed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        write_file(&path, b"one", Replace::No).expect("nothing is there yet");
        let refused = write_file(&path, b"two", Replace::No);
        assert!(matches!(refused, Err(Failure::Input(m)) if m.contains("cannot write")));
        assert_eq!(std::fs::read(&path).expect("the file"), b"one");
        write_file(&path, b"two", Replace::Yes).expect("it may be replaced");
        assert_eq!(std::fs::read(&path).expect("the file"), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
