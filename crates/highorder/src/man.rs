//! `highorder man`: man pages, from the definition of the command line.

use crate::cli;
use crate::failure::Failure;
use crate::output::{self, Force};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::PathBuf;

/// Where to.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  highorder man > highorder.1
  highorder man man1")]
pub(crate) struct Arguments {
    /// Folder for one page per verb, made if need be; without it, the main page is printed
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Prints or writes the pages.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    let Some(directory) = &arguments.directory else {
        return output::print(&page(&command)?);
    };
    let pages = std::iter::once(&command).chain(command.get_subcommands());
    let pages = pages.map(|command| Ok((file_name(command), page(command)?)));
    let pages: Vec<(String, Vec<u8>)> = pages.collect::<Result<_, Failure>>()?;
    let names = pages.iter().map(|(name, _)| name);
    highorder_files::check_folder(directory, names, arguments.force.replace())?;
    output::write_into(directory, pages, arguments.force)
}

/// As `man` wants it: `highorder-map.1`.
fn file_name(command: &Command) -> String {
    format!("{}.1", command.get_display_name().unwrap_or(command.get_name()))
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    render(command).map_err(|e| Failure::internal(format!("the man page cannot be rendered: {e}")))
}

/// As [`Man::render`] does it, but for what follows the options: there it would fill lines that are
/// commands.
fn render(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("User Commands").source(output::VERSION);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
        section("EXAMPLES", cli::EXAMPLES).to_writer(&mut page)?;
    } else if let Some(notes) = command.get_after_help() {
        section("NOTES", &notes.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// A section of prose, in which indented lines are kept as they are.
fn section(heading: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.chunk_by(|a, b| a.starts_with("  ") == b.starts_with("  ")) {
        if lines[0].starts_with("  ") {
            roff.control("nf", []).text([roman(lines.join("\n"))]).control("fi", []);
        } else {
            roff.text([roman(lines.join("\n").trim_end())]);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_their_lines_and_prose_does_not() {
        let page = section("NOTES", "Say:\n\n  one\n  two\nThat is\nall.").to_roff();
        assert!(page.contains(".nf\n  one\n  two\n.fi\nThat is\nall."), "{page}");
    }
}
