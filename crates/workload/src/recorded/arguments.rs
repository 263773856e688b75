//! Options of recorded programs: one letter each, perhaps with a value.

use super::program::Size;
use super::{Unknown, file_name};
use highorder_system::Advice;

/// Options of one letter and their values.
pub(super) struct Arguments {
    options: Vec<(char, Option<String>)>,
}

impl Arguments {
    pub(super) fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Unknown> {
        let mut options: Vec<(char, Option<String>)> = Vec::new();
        for word in words {
            let letter = word.strip_prefix('-').and_then(|rest| {
                let mut chars = rest.chars();
                chars.next().filter(|c| c.is_ascii_alphabetic() && chars.as_str().is_empty())
            });
            match (letter, options.last_mut()) {
                (Some(letter), _) => options.push((letter, None)),
                (None, Some((_, value @ None))) => *value = Some(word.to_owned()),
                (None, _) => {
                    return Err(Unknown::Malformed(format!("`{word}`, expected an option")));
                }
            }
        }
        Ok(Self { options })
    }

    fn find(&self, letter: char) -> Option<&(char, Option<String>)> {
        self.options.iter().find(|(other, _)| *other == letter)
    }

    pub(super) fn has(&self, letter: char) -> bool {
        self.find(letter).is_some()
    }

    /// An option's value as it stands.
    pub(super) fn text(&self, letter: char) -> Option<&str> {
        self.find(letter).and_then(|(_, value)| value.as_deref())
    }

    /// A file that an option names.
    pub(super) fn file(&self, letter: char) -> Option<String> {
        self.text(letter).map(file_name)
    }

    pub(super) fn number<T: std::str::FromStr>(&self, letter: char) -> Result<Option<T>, Unknown> {
        let Some((_, value)) = self.find(letter) else { return Ok(None) };
        let text = value.as_deref().unwrap_or_default();
        let wrong = || Unknown::Malformed(format!("`-{letter} {text}`, expected a number"));
        text.parse().map(Some).map_err(|_| wrong())
    }

    /// How many threads, at least one.
    pub(super) fn threads(&self, default: u32) -> Result<u32, Unknown> {
        Ok(self.number('t')?.unwrap_or(default).max(1))
    }

    pub(super) fn size(&self, default_percent: u64) -> Result<Size, Unknown> {
        let percent = self.number('p')?.unwrap_or(default_percent);
        Ok(self.number('m')?.map_or(Size::Percent(percent), Size::Mib))
    }

    pub(super) fn advice(&self) -> Option<Advice> {
        if self.has('H') {
            Some(Advice::Huge)
        } else if self.has('N') {
            Some(Advice::NoHuge)
        } else {
            None
        }
    }

    /// Refuses options that a program does not have.
    pub(super) fn only(&self, letters: &str) -> Result<(), Unknown> {
        match self.options.iter().find(|(letter, _)| !letters.contains(*letter)) {
            None => Ok(()),
            Some((letter, _)) => {
                Err(Unknown::Malformed(format!("`-{letter}`, expected one of -{letters}")))
            }
        }
    }
}
