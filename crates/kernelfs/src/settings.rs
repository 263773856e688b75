//! Settings: `/proc/sys/vm/*`, `/sys/kernel/mm/*`, and lists of them with their values.
//!
//! Models: kernel/sysctl.c (`proc_dointvec` and kin: numbers with tabs between), mm/huge_memory.c
//! (`enabled_show`, `defrag_show`: all choices, the one in force in brackets), mm/vmscan.c
//! (`enabled_show` of `lru_gen`: hexadecimal).

use highorder_input::InputError;
use std::fmt;

use crate::TextFile;
use crate::lines::{Problems, signed};

/// The value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing: a file that can only be written, as `compact_memory`.
    Empty,
    /// A number, as `swappiness`.
    Number(i64),
    /// Several numbers with tabs between, as `lowmem_reserve_ratio`.
    Numbers(Vec<i64>),
    /// A number in hexadecimal, as `lru_gen/enabled`.
    Hex {
        /// The number.
        value: u64,
        /// How many digits it has at least: 4 of `0x0007`.
        digits: usize,
    },
    /// One of several words, as `always [madvise] never`.
    Choice {
        /// All the words, in the file's order.
        options: Vec<String>,
        /// Which of them is in force.
        chosen: usize,
    },
    /// Anything else, as it is.
    Text(String),
}

impl Setting {
    /// Tells what kind of value a text is; writing it gives the same text back.
    pub fn from_value(text: &str) -> Setting {
        let setting = Setting::guess(text);
        if setting.to_string() == text { setting } else { Setting::Text(text.into()) }
    }

    /// Returns a choice among `options` with `chosen` in force; `None` if it is not one of them.
    pub fn choice(options: &[&str], chosen: &str) -> Option<Setting> {
        let mut setting = Setting::Choice {
            options: options.iter().map(|option| option.to_string()).collect(),
            chosen: 0,
        };
        setting.choose(chosen).then_some(setting)
    }

    fn guess(text: &str) -> Setting {
        if text.is_empty() {
            return Setting::Empty;
        }
        if let Some(value) = signed(text) {
            return Setting::Number(value);
        }
        if let Some(digits) = text.strip_prefix("0x")
            && let Ok(value) = u64::from_str_radix(digits, 16)
        {
            return Setting::Hex { value, digits: digits.len() };
        }
        if let Some(numbers) = text.split('\t').map(signed).collect() {
            return Setting::Numbers(numbers);
        }
        let bracketed = |word: &str| word.len() > 2 && word.starts_with('[') && word.ends_with(']');
        let words: Vec<&str> = text.split(' ').collect();
        let mut found = (0..words.len()).filter(|&i| bracketed(words[i]));
        match (found.next(), found.next()) {
            (Some(chosen), None) => {
                let mut options: Vec<String> = words.iter().map(|word| word.to_string()).collect();
                options[chosen] = words[chosen][1..words[chosen].len() - 1].into();
                Setting::Choice { options, chosen }
            }
            _ => Setting::Text(text.into()),
        }
    }

    /// Returns the number, decimal or hexadecimal.
    pub fn number(&self) -> Option<i64> {
        match self {
            Setting::Number(value) => Some(*value),
            Setting::Hex { value, .. } => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// Returns the numbers, however they are set apart.
    pub fn numbers(&self) -> Option<Vec<i64>> {
        match self {
            Setting::Number(value) => Some(vec![*value]),
            Setting::Numbers(values) => Some(values.clone()),
            Setting::Text(text) => text.split_ascii_whitespace().map(signed).collect(),
            _ => None,
        }
    }

    /// Returns the word in force.
    pub fn chosen(&self) -> Option<&str> {
        match self {
            Setting::Choice { options, chosen } => options.get(*chosen).map(String::as_str),
            _ => None,
        }
    }

    /// Puts another word in force; returns whether it is one of the options.
    pub fn choose(&mut self, word: &str) -> bool {
        let Setting::Choice { options, chosen } = self else { return false };
        let found = options.iter().position(|option| option == word);
        *chosen = found.unwrap_or(*chosen);
        found.is_some()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Empty => Ok(()),
            Setting::Number(value) => write!(f, "{value}"),
            Setting::Numbers(values) => {
                let values: Vec<String> = values.iter().map(i64::to_string).collect();
                f.write_str(&values.join("\t"))
            }
            Setting::Hex { value, digits } => write!(f, "0x{value:0digits$x}"),
            Setting::Choice { options, chosen } => {
                for (i, option) in options.iter().enumerate() {
                    let gap = if i > 0 { " " } else { "" };
                    let (open, close) = if i == *chosen { ("[", "]") } else { ("", "") };
                    write!(f, "{gap}{open}{option}{close}")?;
                }
                Ok(())
            }
            Setting::Text(text) => f.write_str(text),
        }
    }
}

impl TextFile for Setting {
    fn parse(file: &str, text: &[u8]) -> Result<Setting, InputError> {
        let mut problems = Problems::new(file);
        if text.is_empty() {
            return problems.finish(Setting::Empty, text);
        }
        let lines = problems.lines(text);
        for extra in lines.iter().skip(1) {
            problems.line(*extra, "one line");
        }
        let setting = match lines.first().map(|line| line.text) {
            Some("") | None => Setting::Text(String::new()),
            Some(value) => Setting::from_value(value),
        };
        problems.finish(setting, text)
    }

    fn to_text(&self) -> String {
        match self {
            Setting::Empty => String::new(),
            setting => format!("{setting}\n"),
        }
    }
}

/// A setting with the path of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSetting {
    /// The path, e.g. `/proc/sys/vm/swappiness`.
    pub path: String,
    /// The value.
    pub setting: Setting,
    /// Whether a blank follows the value: the newline of its file, as a shell joins lines.
    pub has_blank_after: bool,
}

/// A list of settings, one `path value` a line: what `for f in ...; do echo $f $(cat $f)` makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The settings in file order.
    pub list: Vec<NamedSetting>,
}

impl Settings {
    /// Returns a setting by its path, or by the end of it: `swappiness`,
    /// `transparent_hugepage/defrag`.
    pub fn get(&self, path: &str) -> Option<&Setting> {
        let is_it = |named: &&NamedSetting| match named.path.strip_suffix(path) {
            Some(folder) => folder.is_empty() || folder.ends_with('/'),
            None => false,
        };
        self.list.iter().find(is_it).map(|named| &named.setting)
    }
}

impl TextFile for Settings {
    fn parse(file: &str, text: &[u8]) -> Result<Settings, InputError> {
        let mut problems = Problems::new(file);
        let mut settings = Settings::default();
        for line in problems.lines(text) {
            match line.text.split_once(' ') {
                Some((path, value)) if !path.is_empty() => {
                    let (value, has_blank_after) = match value.strip_suffix(' ') {
                        Some(value) => (value, true),
                        None => (value, false),
                    };
                    let setting = Setting::from_value(value);
                    settings.list.push(NamedSetting {
                        path: path.into(),
                        setting,
                        has_blank_after,
                    });
                }
                _ => problems.line(line, "a path, a blank and a value"),
            }
        }
        problems.finish(settings, text)
    }

    fn to_text(&self) -> String {
        let line = |named: &NamedSetting| {
            let blank = if named.has_blank_after { " " } else { "" };
            format!("{} {}{blank}\n", named.path, named.setting)
        };
        self.list.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_is_told_and_written_back() {
        let choice = Setting::choice(&["always", "madvise", "never"], "madvise").unwrap();
        for (text, setting) in [
            ("60", Setting::Number(60)),
            ("-1", Setting::Number(-1)),
            ("256\t256\t32\t0\t0", Setting::Numbers(vec![256, 256, 32, 0, 0])),
            ("0x0007", Setting::Hex { value: 7, digits: 4 }),
            ("always [madvise] never", choice),
            ("Node", Setting::Text("Node".into())),
            ("", Setting::Empty),
        ] {
            assert_eq!(Setting::from_value(text), setting, "{text}");
            assert_eq!(setting.to_string(), text);
        }
    }

    #[test]
    fn what_would_not_write_back_the_same_stays_text() {
        for text in ["007", "0x", "0xAB", "1 2 3", "[a] [b]", "1\t", "a  [b]x", "[]"] {
            assert_eq!(Setting::from_value(text), Setting::Text(text.into()));
        }
        assert_eq!(Setting::from_value("1 2 3").numbers(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn choosing_moves_the_brackets() {
        let mut setting = Setting::parse("enabled", b"[always] madvise never\n").unwrap();
        assert_eq!(setting.chosen(), Some("always"));
        assert!(setting.choose("never"));
        assert!(!setting.choose("sometimes"));
        assert_eq!(setting.to_text(), "always madvise [never]\n");
        assert_eq!(Setting::choice(&["a"], "b"), None);
    }

    #[test]
    fn a_file_is_one_line() {
        let error = Setting::parse("swappiness", b"60\n70\n").unwrap_err();
        assert_eq!(error.to_string(), "swappiness:2: `70`, expected one line");
        assert!(Setting::parse("swappiness", b"60").is_err());
        assert_eq!(Setting::parse("stat_refresh", b"").unwrap(), Setting::Empty);
        assert_eq!(Setting::parse("f", b"\n").unwrap().to_text(), "\n");
    }

    #[test]
    fn a_list_is_searched_by_path_or_its_end() {
        let text = "/sys/kernel/mm/transparent_hugepage/enabled [always] never\n\
                    /proc/sys/vm/compact_memory \n\
                    /proc/sys/vm/swappiness 60 \n";
        let settings = Settings::parse("settings", text.as_bytes()).unwrap();
        assert_eq!(settings.to_text(), text);
        assert_eq!(settings.get("swappiness"), Some(&Setting::Number(60)));
        assert_eq!(settings.get("/proc/sys/vm/swappiness"), Some(&Setting::Number(60)));
        assert_eq!(settings.get("appiness"), None);
        assert_eq!(settings.get("compact_memory"), Some(&Setting::Empty));
        assert!(Settings::parse("settings", b"nothing\n").is_err());
    }
}
