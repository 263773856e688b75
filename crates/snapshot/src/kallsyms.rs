//! Addresses of the running kernel's variables, from `/proc/kallsyms`, and what the kernel tells
//! crash dumps about itself (VMCOREINFO), to check them against. Read by hand: a line is three words, and a few of
//! some hundred thousand lines are kept.

use highorder_input::InputError;
use std::collections::BTreeMap;

/// Addresses by name, of the names that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(BTreeMap<String, u64>);

impl Symbols {
    /// Parses `/proc/kallsyms` for `names`; modules' symbols are passed over.
    ///
    /// # Errors
    /// If every address is zero, as the kernel shows them to those who may not know.
    pub fn parse(file: &str, text: &[u8], names: &[&str]) -> Result<Self, InputError> {
        let mut symbols = BTreeMap::new();
        let mut hidden = 0;
        for line in text.split(|&b| b == b'\n') {
            let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
            let (Some(address), Some(_), Some(name), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(name) = names.iter().find(|n| n.as_bytes() == name) else { continue };
            let address = std::str::from_utf8(address).ok();
            match address.and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
                Some(0) => hidden += 1,
                Some(address) => {
                    symbols.entry((*name).to_owned()).or_insert(address);
                }
                None => {}
            }
        }
        if symbols.is_empty() && hidden > 0 {
            return Err(InputError::file(
                file,
                "all addresses are 0, expected root and no kptr_restrict",
            ));
        }
        Ok(Self(symbols))
    }

    /// Returns the address of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// What VMCOREINFO says: `SYMBOL(x)=hex`, `SIZE(page)=64`, `OFFSET(zone.free_area)=192` ...
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmcoreinfo(BTreeMap<String, String>);

impl Vmcoreinfo {
    /// Parses the note's text, a `KEY=VALUE` a line.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(|line| line.split_once('='));
        Self(lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Returns a value as text, `OSRELEASE` for one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns an address, written in hexadecimal.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.get(&format!("SYMBOL({name})"))?, 16).ok()
    }

    /// Returns a size, length or offset, written in decimal.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_asked_for_are_kept_and_modules_are_passed_over() {
        let text = b"ffffffff81000000 T _stext\nffffffffa0000000 D node_data\t[mod]\n\
                     ffffffff82000000 D node_data\n";
        let symbols = Symbols::parse("kallsyms", text, &["node_data", "phys_base"]).unwrap();
        assert_eq!(symbols.get("node_data"), Some(0xffff_ffff_8200_0000));
        assert_eq!(symbols.get("_stext"), None);
        assert_eq!(symbols.get("phys_base"), None);
    }

    #[test]
    fn hidden_addresses_are_an_error_that_says_so() {
        let text = b"0000000000000000 D node_data\n";
        let error = Symbols::parse("kallsyms", text, &["node_data"]).unwrap_err();
        assert!(error.to_string().contains("kptr_restrict"));
    }

    #[test]
    fn vmcoreinfo_gives_symbols_in_hexadecimal_and_sizes_in_decimal() {
        let info = Vmcoreinfo::parse(b"OSRELEASE=6.12\nSYMBOL(node_data)=ff10\nSIZE(page)=64\n");
        assert_eq!(info.get("OSRELEASE"), Some("6.12"));
        assert_eq!(info.symbol("node_data"), Some(0xff10));
        assert_eq!(info.number("SIZE(page)"), Some(64));
    }
}
